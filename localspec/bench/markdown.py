"""Markdown of a report: names come from outside, and files are read without a renderer too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from localspec.printable import one_line

_MARKUP: Final = frozenset("\\|`*_<[")


def escaped(text: str) -> str:
    """The text on one line, with nothing in it that ends a cell or begins markup."""
    return "".join(f"\\{character}" if character in _MARKUP else character for character in one_line(text))


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with its columns lined up: the first, which names the row, to the left, numbers to the right."""
    lines = [[escaped(cell) for cell in row] for row in (header, *rows)]
    widths = [max(3, *map(len, column)) for column in zip(*lines, strict=True)]
    rule = ["-" * widths[0], *(f"{'-' * (width - 1)}:" for width in widths[1:])]
    return "\n".join(_line(row, widths) for row in (lines[0], rule, *lines[1:]))


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = row
    cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
    return f"| {' | '.join(cells)} |"
