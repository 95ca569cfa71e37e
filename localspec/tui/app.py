"""The chat as a program: one screen, its colours, and the engine's end."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Iterable
from typing import ClassVar, Final

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen

from localspec.engine.client import Engine
from localspec.engine.requests import PairSpec
from localspec.tui.options import ChatOptions
from localspec.tui.screens.chat import ChatScreen
from localspec.tui.theme import DARK, LIGHT

# Names of terminals that have no colours.
_MONOCHROME: Final = re.compile(r"dumb|unknown|vt\d+.*|.*-m(ono)?")


class ChatApp(App[None]):
    """`localspec chat`. Closes the engine when it ends, however it ends."""

    TITLE = "localspec"
    CSS_PATH = "chat.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+q", "quit", "Quit", priority=True)]

    def __init__(self, engine: Engine, pair: PairSpec, options: ChatOptions | None = None) -> None:
        if sys.stdout.isatty() and _MONOCHROME.fullmatch(os.environ.get("TERM", "")):
            os.environ["NO_COLOR"] = "1"  # Textual would send true colours there, and asks nothing else
        # With NO_COLOR set, native colours let Textual drop all of them; otherwise it would turn them into greys.
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        self._engine = engine
        self.chat = ChatScreen(engine, pair, options or ChatOptions())
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

    async def on_unmount(self) -> None:
        """End the engine, which may have to wait for a step; in a thread, since it calls back."""
        await asyncio.to_thread(self._engine.close)
