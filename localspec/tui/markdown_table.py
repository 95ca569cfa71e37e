"""Tables as lines: columns as wide as their text, shared out when there is not room for all."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import zip_longest

from textual.content import Content

from localspec.tui.typeset import BLANK

_SEPARATOR = Content.styled(" │ ", "dim")
_LEAST_COLUMN = 3


@dataclass(slots=True)
class Table:
    """Rows of cells; the first is the header."""

    rows: list[list[Content]] = field(default_factory=list)
    is_right: list[bool] = field(default_factory=list)  # by column; centred text stays on the left

    def add_row(self) -> None:
        """Start a row."""
        self.rows.append([])

    def add_cell(self, content: Content) -> None:
        """Add a cell to the last row."""
        self.rows[-1].append(content)

    def add_alignment(self, style: str) -> None:
        """How the next column is set: the style attribute that the parser gives a header cell."""
        self.is_right.append("right" in style)

    def lines(self, width: int) -> list[Content]:
        """Lay out the table in `width` cells; cells wrap. With more columns than fit, they stand below each other."""
        if not self.rows:
            return []
        n_columns = max(len(row) for row in self.rows)
        room = width - (n_columns - 1) * _SEPARATOR.cell_length
        if room < n_columns * _LEAST_COLUMN:
            return [line for row in self.rows for cell in row for line in cell.wrap(width)]
        natural = [
            max(_LEAST_COLUMN, *(cell.get_optimal_width({}, width) for cell in column))
            for column in zip_longest(*self.rows, fillvalue=BLANK)
        ]
        widths = shared_widths(natural, room)
        header, *body = self.rows
        rule = Content.styled("─┼─".join("─" * column for column in widths), "dim")
        lines = [*self._row_lines([cell.stylize_before("bold") for cell in header], widths), rule]
        for row in body:
            lines.extend(self._row_lines(row, widths))
        return lines

    def _row_lines(self, row: list[Content], widths: list[int]) -> list[Content]:
        cells = [*row, *[BLANK] * (len(widths) - len(row))]
        columns = [cell.wrap(width) for cell, width in zip(cells, widths, strict=True)]
        lines = []
        for pieces in zip_longest(*columns, fillvalue=BLANK):
            padded = [
                piece.pad_left(width - piece.cell_length) if is_right else piece.pad_right(width - piece.cell_length)
                for piece, width, is_right in zip(pieces, widths, self.is_right, strict=True)
            ]
            lines.append(_SEPARATOR.join(padded).rstrip())
        return lines


def shared_widths(natural: list[int], room: int) -> list[int]:
    """Give every column what it needs, or an even share of what is left if it needs more: narrow ones come first."""
    widths = [0] * len(natural)
    n_left = len(natural)
    for index in sorted(range(len(natural)), key=natural.__getitem__):
        widths[index] = min(natural[index], room // n_left)
        room -= widths[index]
        n_left -= 1
    return widths
