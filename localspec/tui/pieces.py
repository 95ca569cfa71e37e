"""A growing reply in pieces: only the last one changes, so a step costs the same in a long reply as in a short one.

A piece ends before a line that begins a block, an item of a list or a row of a table, or inside a code block. The next
piece begins with hidden lines, which open again what the cut left open: its lists, quotes and code block. So the parser
reads on as if there had been no cut. Where there is no such line for too long, a piece ends anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from textual.content import Content

from localspec.engine.events import TextSpan
from localspec.printable import printable
from localspec.tui.markdown_text import markdown_lines, parse_markdown
from localspec.tui.typeset import Typeset

# Characters. A piece longer than the first is cut at the next good place; one longer than the second anywhere.
SOFT_LIMIT: Final = 800
HARD_LIMIT: Final = 2400
# Highlighting makes code the dearest text to lay out.
_CODE_LIMIT: Final = SOFT_LIMIT // 2
# What is opened again must leave room for more.
_OPENING_LIMIT: Final = SOFT_LIMIT

# What opens the quotes and list items of a line.
_MARKERS: Final = re.compile(r"(?:[ \t]*(?:>|(?:[*+-]|\d{1,9}[.)])(?=\s|$)))*[ \t]*")


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


class _Opening(NamedTuple):
    lines: list[str]
    n_hidden: int
    limit: int = SOFT_LIMIT  # a shorter piece is not worth the cut


class MarkdownPieces:
    """Cuts Markdown, whenever a line is complete. `references`: see `link_definitions`."""

    def __init__(self, references: Mapping[str, Any] | None = None) -> None:
        self._references = references or {}
        self._head: list[str] = []  # complete lines of the last piece
        self._n_hidden = 0
        self._length = 0  # of the head without what was opened again
        self._tail = ""  # the line that still grows
        self._done: list[MarkdownPiece] = []

    def feed(self, spans: Iterable[TextSpan]) -> Sequence[Typeset]:
        """See `Pieces`."""
        *lines, tail = (self._tail + printable("".join(span.text for span in spans))).split("\n")
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
            opening = _opening([*self._head, line])
            if opening is None and self._length > HARD_LIMIT:
                opening = _Opening([], 0) if line.strip() else _Opening(["x"], 1)  # "x": a gap below it stays one
            if opening is not None and self._length > opening.limit:
                self._done.append(self._piece(""))
                self._head, self._n_hidden, self._length = opening.lines, opening.n_hidden, 0
        self._head.append(line)
        self._length += len(line) + 1


def _opening(lines: Sequence[str]) -> _Opening | None:
    """What a piece must begin with if it is cut before the last line; None if that is no good place."""
    last = len(lines) - 1
    starts = [(token, token.map[0]) for token in parse_markdown("\n".join(lines)) if token.map]
    around = [(token, start) for token, start in starts if start <= last < (token.map or (0, 0))[1]]
    if not around:
        return None
    token, start = next((each for each in around if each[1] == last), around[-1])
    containers = [at for each, at in around if at < last and each.type in ("list_item_open", "blockquote_open")]
    kept = {at: _stand_in(lines[at]) for at in containers} or {-1: "x"}
    n_shown, limit = 0, SOFT_LIMIT
    if token.type == "fence" and start < last:
        kept[start] = lines[start]
        limit = _CODE_LIMIT
    elif token.type in ("tbody_open", "tr_open"):
        table = max(at for each, at in around if each.type == "table_open")
        kept |= {table: lines[table], table + 1: lines[table + 1]}
        n_shown = 2
    elif token.type == "list_item_open":
        sibling = max(at for each, at in starts if each.type == token.type and each.level == token.level and at < last)
        kept[sibling] = _stand_in(lines[sibling])
    elif start == last and not containers:
        kept[last - 1] = ""
    elif start < last or not _is_blank(lines[last - 1]):
        return None
    # Blank lines between its items make a list loose.
    kept |= {at - 1: lines[at - 1] for at in (*kept, last) if at > 0 and _is_blank(lines[at - 1])}
    opened = [kept[at] for at in sorted(kept)]
    return _Opening(opened, len(opened) - n_shown, limit) if sum(map(len, opened)) <= _OPENING_LIMIT else None


def _stand_in(line: str) -> str:
    """A line that opens what `line` opens, with a word as its text."""
    match = _MARKERS.match(line)
    markers = match[0] if match else ""
    return f"{markers}x" if markers.endswith((" ", "\t")) else f"{markers} x"


def _is_blank(line: str) -> bool:
    """Nothing but the signs of a quote."""
    return not line.strip("> \t")
