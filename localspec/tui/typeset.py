"""Lines of styled text for a given width: the form in which replies reach the screen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from textual.content import Content

# Below this a margin gives way: deep nesting on a narrow terminal still leaves room for words.
_LEAST_TEXT_WIDTH = 12

BLANK = Content("")


class Typeset(Protocol):
    """Something that can be laid out."""

    def lines(self, width: int) -> list[Content]:
        """The lines, none wider than `width` cells."""


@dataclass(slots=True)
class Margin:
    """What stands left of a nested block: `first` on its first line (a bullet), `rest` on the others."""

    first: Content
    rest: Content
    is_started: bool = False


@dataclass(slots=True)
class LineWriter:
    """Collects lines of blocks, wraps them between margins, and puts one blank line where a gap was asked for."""

    width: int
    lines: list[Content] = field(default_factory=list)
    margins: list[Margin] = field(default_factory=list)
    _gap: bool = False

    @property
    def text_width(self) -> int:
        """Cells that the margins leave."""
        return max(_LEAST_TEXT_WIDTH, self.width - sum(margin.first.cell_length for margin in self.margins))

    def gap(self) -> None:
        """Ask for a blank line before the next one; at the top there is none."""
        self._gap = bool(self.lines)

    def write(self, block: Content) -> None:
        """Wrap `block` and add it. Newlines in it start new lines."""
        self.write_lines(block.wrap(self.text_width))

    def write_lines(self, lines: Sequence[Content]) -> None:
        """Add lines that are laid out already."""
        if self._gap:
            self._gap = False
            started = [margin.rest for margin in self.margins if margin.is_started]
            self.lines.append(BLANK.join(started).rstrip())
        for line in lines:
            prefix = [margin.rest if margin.is_started else margin.first for margin in self.margins]
            for margin in self.margins:
                margin.is_started = True
            # A margin that gave way is cut on the left: the innermost bullet is the one that matters.
            room = self.width - line.cell_length
            joined = BLANK.join(prefix)
            if joined.cell_length > room:
                joined = joined[len(joined) - max(0, room) :]
            self.lines.append(joined + line)
