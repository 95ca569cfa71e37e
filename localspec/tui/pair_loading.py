"""From the choice of a pair to the engine: first what is missing is fetched, then a running reply is waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from localspec.engine.requests import PairSpec
from localspec.printable import one_line
from localspec.tui.pairs import Pairs

if TYPE_CHECKING:
    from localspec.pairing.chosen import ChosenPair
    from localspec.pairing.downloads import Download


class Chat(Protocol):
    """What loads."""

    @property
    def is_replying(self) -> bool:
        """Whether the engine works on a reply."""

    def use_pair(self, pair: PairSpec) -> None:
        """Load it, or exchange the draft model."""


class PairLoading:
    """Keeps the last choice until it can be loaded. Call `look` whenever a download or the reply may have ended.

    `tell` shows a line; its second argument is whether something went wrong.
    """

    def __init__(self, pairs: Pairs, chat: Chat, tell: Callable[[str, bool], None]) -> None:
        self._pairs = pairs
        self._chat = chat
        self._tell = tell
        self._waits_for_reply = False
        self.waiting: ChosenPair | None = None

    def choose(self, pair: ChosenPair) -> None:
        """Fetch what is missing and load the pair; a choice that waited until now is dropped, its downloads go on."""
        self.waiting = pair
        self._waits_for_reply = False
        rows = self._rows()
        missing = [model for model in pair.missing if model.reference not in rows or rows[model.reference].path is None]
        for model in missing:
            self._pairs.downloads.start(model)
        if missing:
            self._tell("The pair is loaded when it is here. Escape leads back to the chat.", False)
        self.look()

    def look(self) -> None:
        """Load what was chosen if nothing is in the way any more."""
        if self.waiting is None:
            return
        rows = self._rows()
        wanted = [rows.get(model.reference) for model in self.waiting.missing]
        ended = [row for row in wanted if row is not None and row.can_resume]
        if ended:
            # A failure is told of where downloads are watched; who resumes it has to choose the pair again.
            self.waiting = None
            self._tell(f"{one_line(ended[0].reference)} is not here, so its pair is not loaded.", True)
        elif all(row is not None and row.path is not None for row in wanted):
            self._load(self.waiting, rows)

    def _load(self, pair: ChosenPair, rows: dict[str, Download]) -> None:
        if self._chat.is_replying:
            if not self._waits_for_reply:
                self._waits_for_reply = True
                self._tell("The pair is loaded when the reply has ended; Escape in the chat stops it.", False)
            return
        self.waiting = None
        fetched = {reference: row.path for reference, row in rows.items() if row.path is not None}
        self._chat.use_pair(self._pairs.spec(pair, fetched))

    def _rows(self) -> dict[str, Download]:
        return {row.reference: row for row in self._pairs.downloads.rows}
