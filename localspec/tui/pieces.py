"""A growing reply in pieces: only the last one changes, so a step costs the same in a long reply as in a short one.

The cuts are where they do not show: at a blank line between blocks, before an item of a list, inside a code block
(its fence is closed and opened again). Where a block offers none of these for too long, at the end of a line, and in a
line without end at a space.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from textual.content import Content

from localspec.engine.events import TextSpan
from localspec.printable import printable
from localspec.tui.markdown_text import markdown_lines
from localspec.tui.typeset import BLANK, Typeset

# Characters. A piece longer than the first is cut at the next good place; one longer than the second anywhere.
SOFT_LIMIT: Final = 800
HARD_LIMIT: Final = 2400
# What is opened again in the next piece must leave room for more.
_REOPENED_LIMIT: Final = SOFT_LIMIT // 2

_FENCE: Final = re.compile(r"^[ \t]*(?:(?:[*+-]|\d{1,9}[.)])[ \t]+)?(?P<mark>`{3,99}|~{3,99})(?P<info>[^`\n]*)$")
_LIST_ITEM: Final = re.compile(r"^(?:[*+-]|\d{1,9}[.)])[ \t]")
_TABLE_RULE: Final = re.compile(r"^\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)+\|?[ \t]*$")


class Pieces(Protocol):
    """Cuts a reply while it grows."""

    def feed(self, spans: Iterable[TextSpan]) -> Sequence[Typeset]:
        """Add text. The first of the result replaces the last piece so far; the others follow it."""


@dataclass(frozen=True, slots=True)
class MarkdownPiece:
    """Some blocks of a reply. A gap stands above it unless it goes on with the list or code block before."""

    source: str
    has_gap: bool = False
    is_continued: bool = False

    def lines(self, width: int) -> list[Content]:
        """See `Typeset`."""
        lines = markdown_lines(self.source, width, is_continued=self.is_continued)
        return [BLANK, *lines] if self.has_gap and lines else lines


@dataclass(frozen=True, slots=True)
class _Fence:
    mark: str
    info: str
    indent: int

    @property
    def opening(self) -> str:
        return f"{self.mark}{self.info}\n"

    def is_closed_by(self, line: str) -> bool:
        text = line.strip()
        indent = len(line) - len(line.lstrip())
        return len(text) >= len(self.mark) and set(text) == {self.mark[0]} and indent <= self.indent + 3


class MarkdownPieces:
    """Cuts Markdown. It reads each line once, when the line is complete."""

    def __init__(self) -> None:
        self._head = ""  # complete lines of the last piece
        self._tail = ""  # the line that still grows
        self._has_gap = False
        self._is_continued = False
        self._fence: _Fence | None = None
        self._dedent = 0  # a fence that was opened again stands at the margin, and so must its lines
        self._in_list = False
        self._after_block = False  # the line before is blank, or closes a fence
        self._line_before = ""
        self._table_head = ""
        self._done: list[MarkdownPiece] = []

    def feed(self, spans: Iterable[TextSpan]) -> Sequence[Typeset]:
        """See `Pieces`."""
        *lines, tail = (self._tail + printable("".join(span.text for span in spans))).split("\n")
        for line in lines:
            self._add_line(self._broken(line))
        self._tail = self._broken(tail)
        pieces = [*self._done, MarkdownPiece(self._head + self._tail, self._has_gap, self._is_continued)]
        self._done.clear()
        return pieces

    def _broken(self, line: str) -> str:
        """Add what is too much of a line as lines of their own; returns the rest."""
        while len(line) > HARD_LIMIT:
            end = line.rfind(" ", 1, HARD_LIMIT) + 1 or HARD_LIMIT
            self._add_line(line[:end])
            line = line[end:]
        return line

    def _add_line(self, line: str) -> None:
        if self._fence is not None:
            self._add_code_line(line, self._fence)
        else:
            self._add_text_line(line)
        self._line_before = line

    def _add_code_line(self, line: str, fence: _Fence) -> None:
        if fence.is_closed_by(line):
            self._head += (fence.mark if self._dedent else line) + "\n"
            self._fence, self._dedent = None, 0
            self._after_block = True
            return
        is_nested = fence.indent > 0 and not self._dedent
        if len(self._head) > (HARD_LIMIT if is_nested else SOFT_LIMIT):
            self._cut(has_gap=False)
        self._head += _dedented(line, self._dedent) + "\n"

    def _add_text_line(self, line: str) -> None:
        is_blank = not line.strip()
        is_at_margin = not is_blank and line[0] not in " \t"
        is_item = _LIST_ITEM.match(line) is not None
        is_good_place = is_at_margin and (self._after_block or (is_item and self._in_list))
        if len(self._head) > (SOFT_LIMIT if is_good_place else HARD_LIMIT):
            self._cut(has_gap=self._after_block)
        if is_at_margin:
            self._in_list = is_item or (self._in_list and not self._after_block)
        if "|" not in line:
            self._table_head = ""
        elif _TABLE_RULE.match(line) and "|" in self._line_before:
            self._table_head = _short(f"{self._line_before}\n{line}\n")
        self._head += line + "\n"
        self._after_block = is_blank
        if match := _FENCE.match(line):
            indent = match.start("mark")
            if indent <= 3 or self._in_list:
                self._fence = _Fence(match["mark"], _short(match["info"]), indent)

    def _cut(self, *, has_gap: bool) -> None:
        """End the piece after its complete lines. What they left open is opened again in the next one."""
        fence = self._fence
        closing = "" if fence is None else " " * (0 if self._dedent else fence.indent) + f"{fence.mark}\n"
        self._done.append(MarkdownPiece(self._head + closing, self._has_gap, self._is_continued))
        self._has_gap = has_gap
        self._is_continued = fence is not None
        if fence is None:
            self._head = self._table_head
        else:
            self._head = fence.opening
            self._dedent = fence.indent


def _short(text: str) -> str:
    return text if len(text) <= _REOPENED_LIMIT else ""


def _dedented(line: str, indent: int) -> str:
    return line[:indent].lstrip(" \t") + line[indent:]
