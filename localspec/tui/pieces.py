"""A growing reply in pieces: only the last one changes, so a step costs the same in a long reply as in a short one.

A piece ends where a cut does not show, or anywhere if there is no such place for too long. The next one begins with
hidden lines, which open again what the cut left open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from textual.content import Content

from localspec.engine.events import TextSpan
from localspec.printable import printable
from localspec.tui.markdown_text import markdown_lines
from localspec.tui.reasoning import ReasoningQuote
from localspec.tui.reopening import Opening, is_blank, opening_of_last
from localspec.tui.typeset import Typeset

# Characters. A piece longer than the first is cut at the next good place; one longer than the second anywhere.
SOFT_LIMIT: Final = 800
HARD_LIMIT: Final = 2400
# Highlighting makes code the dearest text to lay out.
_CODE_LIMIT: Final = SOFT_LIMIT // 2


class Pieces(Protocol):
    """Cuts a reply while it grows."""

    def feed(self, spans: Iterable[TextSpan]) -> Sequence[Typeset]:
        """Add text. The first of the result replaces the last piece so far; the others follow it."""


@dataclass(frozen=True, slots=True)
class MarkdownPiece:
    """Some lines of a reply. The first `n_hidden` only say what the others belong to."""

    source: str
    n_hidden: int = 0
    references: Mapping[str, Any] = field(default_factory=dict)

    def lines(self, width: int) -> list[Content]:
        """See `Typeset`."""
        return markdown_lines(self.source, width, n_hidden=self.n_hidden, references=self.references)


class MarkdownPieces:
    """Cuts Markdown, whenever a line is complete. `references`: see `link_definitions`."""

    def __init__(self, references: Mapping[str, Any] | None = None) -> None:
        self._references = references or {}
        self._head: list[str] = []  # complete lines of the last piece
        self._n_hidden = 0
        self._length = 0  # of the head without what was opened again
        self._tail = ""  # the line that still grows
        self._reasoning = ReasoningQuote()
        self._done: list[MarkdownPiece] = []

    def feed(self, spans: Iterable[TextSpan]) -> Sequence[Typeset]:
        """See `Pieces`."""
        *lines, tail = (self._tail + printable(self._reasoning.markdown(spans))).split("\n")
        for line in lines:
            self._add_line(self._broken(line))
        self._tail = self._broken(tail)
        pieces = [*self._done, self._piece(self._tail)]
        self._done.clear()
        return pieces

    def _piece(self, tail: str) -> MarkdownPiece:
        return MarkdownPiece("\n".join([*self._head, tail]), self._n_hidden, self._references)

    def _broken(self, line: str) -> str:
        """Add what is too much of a line as lines of their own; returns the rest."""
        while len(line) > HARD_LIMIT:
            end = line.rfind(" ", 1, HARD_LIMIT) + 1 or HARD_LIMIT
            self._add_line(line[:end])
            line = line[end:]
        return line

    def _add_line(self, line: str) -> None:
        if self._length > _CODE_LIMIT:
            self._cut_before(line)
        self._head.append(line)
        self._length += len(line) + 1

    def _cut_before(self, line: str) -> None:
        opening = opening_of_last([*self._head, line])
        if opening is None:
            limit = HARD_LIMIT
            opening = Opening(["x"], 1) if is_blank(line) else Opening([], 0)  # below an "x" the gap stays one
        else:
            n_characters = sum(map(len, self._head[len(self._head) - opening.n_code :]))
            limit = _CODE_LIMIT if n_characters > _CODE_LIMIT else SOFT_LIMIT
        if self._length > limit:
            self._done.append(self._piece(""))
            self._head, self._n_hidden, self._length = opening.lines, opening.n_hidden, 0
