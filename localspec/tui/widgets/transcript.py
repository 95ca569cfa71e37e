"""The chat so far."""

from __future__ import annotations

from typing import Final

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from localspec.printable import printable
from localspec.tui.conversation import Exchange
from localspec.tui.widgets.reply import ReplyView

# A pasted file is shown by its beginning: the whole of it is in the request, not on the screen.
_SHOWN_LINES: Final = 40
_SHOWN_CHARACTERS: Final = 4000


class PromptView(Static):
    """A prompt that was sent."""

    def __init__(self, prompt: str) -> None:
        super().__init__(Content(shortened(printable(prompt))), markup=False)


class NoticeLine(Static):
    """A remark of the program, between the turns."""

    def __init__(self, text: str) -> None:
        super().__init__(Content(printable(text)), markup=False)


class Transcript(VerticalScroll):
    """Turns, oldest first. It follows its end until the user scrolls away, and again when the end is reached."""

    def __init__(self, welcome: Widget) -> None:
        super().__init__()
        self._welcome = welcome
        self._by_origin = False
        self._overflows = False
        self._last_notice = ""
        self._exchanges: list[tuple[PromptView, ReplyView]] = []

    def compose(self) -> ComposeResult:
        """The welcome; turns are mounted below it."""
        yield self._welcome

    def watch_virtual_size(self) -> None:
        """The text has grown, or wraps otherwise."""
        self.call_next(self._follow_if_longer)  # the new height of the window is known by then

    def _follow_if_longer(self) -> None:
        """Follow the end once there is one to follow: an anchored view would put a short chat at its bottom."""
        overflows = self.virtual_size.height > self.container_size.height
        if overflows != self._overflows:
            self._overflows = overflows
            self.anchor(overflows)
            if not overflows:
                self.scroll_home(animate=False, immediate=True)

    def release_anchor(self) -> None:
        """The user scrolls. Who only tries to go on beyond the end has not scrolled away from it."""
        super().release_anchor()
        self.call_after_refresh(self._follow_at_end)

    def _follow_at_end(self) -> None:
        if self._overflows and self.scroll_y >= self.max_scroll_y:
            self.anchor()

    @property
    def last_reply(self) -> ReplyView | None:
        """The newest reply."""
        return self._exchanges[-1][1] if self._exchanges else None

    def add(self, exchange: Exchange) -> ReplyView:
        """Show a prompt and room for its reply, and follow it."""
        turn = PromptView(exchange.prompt), ReplyView(exchange.reply, by_origin=self._by_origin)
        self._exchanges.append(turn)
        self.mount(*turn)
        if self._overflows:
            self.anchor()
        return turn[1]

    def note(self, text: str) -> None:
        """Show a remark, unless it repeats the last one."""
        if text and text != self._last_notice:
            self._last_notice = text
            self.mount(NoticeLine(text))

    def remove_last(self) -> None:
        """Take the last prompt and reply away."""
        for widget in self._exchanges.pop():
            widget.remove()

    def clear(self) -> None:
        """Leave only the welcome."""
        self._exchanges.clear()
        self._last_notice = ""
        self.remove_children(list(self.children)[1:])

    def page(self, pages: int) -> None:
        """Scroll by pages, up or down."""
        height = self.scrollable_content_region.height
        self.scroll_to(y=self.scroll_y + pages * height, animate=False, immediate=True)

    def show_origins(self, by_origin: bool) -> None:
        """Show all replies by origin, or as Markdown."""
        self._by_origin = by_origin
        for _, reply in self._exchanges:
            reply.show_origins(by_origin)


def shortened(prompt: str) -> str:
    """A prompt, or its beginning and how much more there is."""
    lines = prompt.split("\n")
    shown = "\n".join(lines[:_SHOWN_LINES])[:_SHOWN_CHARACTERS]
    if len(shown) == len(prompt):
        return prompt
    return f"{shown}\n… {len(prompt) - len(shown):,} more characters"
