"""The chat as a program: its screens, its colours, the pair that is to be loaded next, and the engine's end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, ClassVar, Final

from textual import on
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen

from localspec.engine.client import Engine
from localspec.engine.requests import PairSpec
from localspec.errors import LocalspecError
from localspec.printable import printable
from localspec.tui.messages import DownloadsChanged, PairChosen, PairsAsked, ReplyEnded
from localspec.tui.options import ChatOptions
from localspec.tui.pair_loading import PairLoading
from localspec.tui.pairs import Pairs
from localspec.tui.screens.chat import ChatScreen
from localspec.tui.theme import DARK, LIGHT

if TYPE_CHECKING:
    from localspec.pairing.chosen import ChosenPair, ReadyPair
    from localspec.tui.screens.pair import PairScreen

# Names of terminals that have no colours.
_MONOCHROME: Final = re.compile(r"dumb|unknown|vt\d+.*|.*-m(ono)?")
_PAIR_SCREEN: Final = "pairs"


class ChatApp(App[None]):
    """`localspec chat`. Closes the engine, and ends the downloads, when it ends, however it ends.

    `pair` None: there is none yet, and the first thing to do is to choose one.
    """

    TITLE = "localspec"
    CSS_PATH = "chat.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+q", "quit", "Quit", priority=True)]

    def __init__(self, engine: Engine, pair: PairSpec | None, options: ChatOptions | None = None) -> None:
        if sys.stdout.isatty() and _MONOCHROME.fullmatch(os.environ.get("TERM", "")):
            os.environ["NO_COLOR"] = "1"  # Textual would send true colours there, and asks nothing else
        # With NO_COLOR set, native colours let Textual drop all of them; otherwise it would turn them into greys.
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        options = options or ChatOptions()
        self._engine = engine
        self._make_pairs = options.pairs
        self._pairs: Pairs | None = None
        self._is_first_run = options.is_first_run or pair is None
        self._pair_screen: PairScreen | None = None
        self._pair_loading: PairLoading | None = None
        self._downloads_announced = False
        # As the settings and the profile of the last pair have it.
        self._drafting = options.mode, options.num_speculative_tokens, options.fixed_length
        self.chat = ChatScreen(engine, pair, options)
        self.register_theme(DARK)
        self.register_theme(LIGHT)
        self.theme = DARK.name

    def get_default_screen(self) -> Screen[None]:
        """The chat."""
        return self.chat

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:  # noqa: ARG002 - Textual's signature
        """The chat's commands, then the program's."""
        yield from self.chat.commands()
        yield SystemCommand("Theme", "Change the colours", self.action_change_theme)
        yield SystemCommand("Quit", "End the chat", self.action_quit)

    def action_help_quit(self) -> None:
        """Ctrl+C without a selection: stop the reply, or say how to quit."""
        if self.chat.session.open is not None:
            self.chat.action_stop()
        else:
            self.notify("Ctrl+Q quits.")

    def on_mount(self) -> None:
        """Without a pair, choose one first."""
        if self.chat.session.pair is None:
            self.show_pairs()

    async def on_unmount(self) -> None:
        """End the engine, which may have to wait for a step, and the downloads; in threads, since both call back."""
        ends = [self._engine.close, *([self._pairs.close] if self._pairs is not None else [])]
        await asyncio.gather(*map(asyncio.to_thread, ends))

    # --- pairs --------------------------------------------------------------------------------------------------------

    @on(PairsAsked)
    def show_pairs(self) -> None:
        """Choose models."""
        if self._make_pairs is None:
            return
        if self._pair_screen is not None:
            self._pair_screen.look_again()
        else:
            self._pair_screen = self._new_pair_screen(self._make_pairs())
            self.install_screen(self._pair_screen, _PAIR_SCREEN)  # so it stays as it is when it is left
        if self._pair_screen not in self.screen_stack:
            self.push_screen(_PAIR_SCREEN)

    def _new_pair_screen(self, pairs: Pairs) -> PairScreen:
        from localspec.tui.screens.pair import PairScreen  # only now: it knows models, memory and more

        self._pairs = pairs
        self._pair_loading = PairLoading(
            pairs, is_replying=lambda: self.chat.session.is_running, load=self._load_pair, tell=self._tell
        )
        pairs.downloads.on_change = self._announce_downloads
        return PairScreen(pairs, lambda: self.chat.session.pair, is_first_run=self._is_first_run)

    @on(PairChosen)
    def choose_pair(self, message: PairChosen) -> None:
        """Fetch what is missing of it, and load it."""
        self._act(lambda loading: loading.choose(message.pair))

    @on(DownloadsChanged)
    def look_at_downloads(self) -> None:
        """Show how they stand; a pair may wait for them."""
        self._downloads_announced = False
        if self._pairs is not None:
            self.chat.show_downloads(self._pairs.downloads.rows)
        if self._pair_screen is not None:
            self._pair_screen.look_at_downloads()
        self._act(PairLoading.look)

    @on(ReplyEnded)
    def look_at_pair(self) -> None:
        """A pair may wait for the end of the reply."""
        self._act(PairLoading.look)

    def _act(self, act: Callable[[PairLoading], None]) -> None:
        if self._pair_loading is not None:
            try:
                act(self._pair_loading)
            except LocalspecError as error:
                self._tell(f"{error.message} {error.hint}", True)

    def _load_pair(self, chosen: ChosenPair, ready: ReadyPair) -> None:
        if self._pair_screen is not None and self.screen is self._pair_screen and self._pair_screen.shows(chosen):
            self._pair_screen.dismiss()
        self.chat.use_pair(ready.spec)
        drafting = ready.mode, ready.num_speculative_tokens, ready.fixed_length
        if drafting != self._drafting:  # else what was changed by keys stays
            self._drafting = drafting
            self.chat.use_drafting(*drafting)
        if ready.notice:
            self.notify(printable(ready.notice), markup=False)  # over the chat, which comes into view

    def _tell(self, text: str, is_problem: bool) -> None:
        if self._pair_screen is not None and self.screen is self._pair_screen:
            self._pair_screen.say(text, is_problem=is_problem)  # a notification would hide the downloads
            return
        self.notify(printable(text), severity="error" if is_problem else "information", markup=False)

    def _announce_downloads(self) -> None:
        """On a thread of a download: one message, however much has changed until somebody looks."""
        if not self._downloads_announced:
            self._downloads_announced = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: the chat has ended
                self.post_message(DownloadsChanged())
