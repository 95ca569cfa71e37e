"""From the choice of a pair to the engine: first what is missing is fetched, then a running reply is waited for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.printable import one_line
from localspec.tui.pairs import Pairs

if TYPE_CHECKING:
    from localspec.pairing.chosen import ChosenPair, ReadyPair
    from localspec.pairing.downloads import Download, DownloadState

Tell = Callable[[str, bool], None]
"""Shows a line; the second argument is whether something went wrong."""


class PairLoading:
    """Keeps the last choice until it can be loaded. Call `look` whenever a download or a reply may have ended."""

    def __init__(
        self,
        pairs: Pairs,
        *,
        is_replying: Callable[[], bool],
        load: Callable[[ChosenPair, ReadyPair], None],
        tell: Tell,
    ) -> None:
        self._pairs = pairs
        self._is_replying = is_replying
        self._load = load
        self._tell = tell
        self._waiting: ChosenPair | None = None
        self._told_to_wait = False
        self._states: dict[str, DownloadState] = {}
        self._fetched: dict[str, Path] = {}  # rows may be taken away

    def choose(self, pair: ChosenPair) -> None:
        """Fetch what is missing and load the pair; a choice that waited until now is dropped, its downloads go on.

        Raises:
            LocalspecError: as `look`.
        """
        self._waiting = pair
        self._told_to_wait = False
        self._take_note()
        missing = [model for model in pair.missing if model.reference not in self._fetched]
        for model in missing:
            self._pairs.downloads.start(model)
        if missing:
            self._tell("It is loaded as soon as it is here. F2 leads back to the chat meanwhile.", False)
        self.look()

    def look(self) -> None:
        """Tell what has ended, and load what was chosen if nothing is in the way any more.

        Raises:
            LocalspecError: the pair cannot be loaded.
        """
        rows = self._take_note()
        pair = self._waiting
        if pair is None:
            return
        missing = [model.reference for model in pair.missing if model.reference not in self._fetched]
        if missing:
            # One that was stopped, or has failed, may be resumed; one that was taken away is not wanted any more.
            self._waiting = pair if all(reference in rows for reference in missing) else None
        elif not self._is_replying():
            self._waiting = None
            self._load(pair, self._pairs.ready(pair, self._fetched))
        elif not self._told_to_wait:
            self._told_to_wait = True
            self._tell("A reply runs: the pair is loaded when it has ended. Escape in the chat stops it.", False)

    def _take_note(self) -> dict[str, Download]:
        rows = {row.reference: row for row in self._pairs.downloads.rows}
        for reference, row in rows.items():
            was, self._states[reference] = self._states.get(reference), row.state
            if was is None or was is row.state:
                continue
            if row.error is not None:
                self._tell(f"{one_line(reference)}: {row.error.message} {row.error.hint}".strip(), True)
            elif row.path is not None:
                self._tell(f"{one_line(reference)} is here.", False)
        self._fetched |= {reference: row.path for reference, row in rows.items() if row.path is not None}
        return rows
