"""A piece of a reply on the screen."""

from __future__ import annotations

from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from localspec.tui.typeset import Typeset

_NEWLINE = Content("\n")


class Passage(Widget):
    """Shows lines laid out for its width. One widget, however many blocks it holds."""

    # It has no links of its own, and a reply's must not be clickable.
    auto_links = False

    def __init__(self, typeset: Typeset) -> None:
        super().__init__()
        self._typeset = typeset
        self._width = 0
        self._lines: list[Content] = []

    def show(self, typeset: Typeset) -> None:
        """Replace the text. The screen is laid out anew only if the number of lines has changed."""
        if typeset == self._typeset:
            return
        self._typeset = typeset
        n_lines, width = len(self._lines), self._width
        self._width = 0
        self.refresh(layout=not width or len(self._lines_at(width)) != n_lines)

    def get_content_width(self, container: Size, viewport: Size) -> int:  # noqa: ARG002 - Textual's signature
        """As wide as it may be."""
        return container.width

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002 - Textual's signature
        """As high as its lines."""
        return len(self._lines_at(width))

    def render(self) -> Content:
        """The lines."""
        return _NEWLINE.join(self._lines_at(self.content_size.width))

    def _lines_at(self, width: int) -> list[Content]:
        if width != self._width:
            self._width = width
            self._lines = self._typeset.lines(width) if width else []
        return self._lines
