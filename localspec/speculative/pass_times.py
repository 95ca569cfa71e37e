"""How long a forward pass takes, by its rows and the context that they attend to: learned from passes that run.

A pass of n rows over c cells of the KV cache takes base(n) + c * (a + b * n): what the weights take, and attention. A
GPU waits for the cache to be read, once for all rows (b is small); a CPU computes every row by itself (a is small), so
that over a long text three rows take three times as long as one, and drafts stop paying.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

# A surprise moves the times of all widths, since machines slow down as a whole, and those near its own once more. The
# two in a fixed proportion, on a logarithmic scale: then the estimates have one place of rest, and noise cannot drive
# the common part and the others apart.
_COMMON_STEP: Final = 0.12
_OWN_STEP: Final = 0.04
# What was measured at load counts as so many passes; after as many more, the steps are as above.
_PASSES_AT_FIRST: Final = 2
# A pass that was held up by something else counts as one that took this many times the estimate, at most. Nothing makes
# a pass faster than it is, so the other way there is no limit.
_MOST_SLOWED: Final = 1.35
# Below so many cells attention is too little of a pass to be measured in one; and only a context of this many times as
# many shows more than what is known.
_LEAST_CELLS: Final = 1024
_WORTH_MEASURING: Final = 1.5
# Estimates are kept for these widths, for the measured ones and for the widest, and are linear in between.
_KNOTS: Final = (1, 2, 3, 5, 9, 17, 33, 65)


class PassTimes:
    """Estimated seconds of a forward pass of n rows; never less for more rows, nor more than n passes of one row.

    Estimates up to the width `widest` follow the passes that run; beyond it times go on linearly.
    """

    def __init__(self, measured: Mapping[int, float], widest: int = 0) -> None:
        """Start from `measured`: rows to seconds, for some widths; between and beyond them times are linear.

        `widest`: the widest pass to follow, at least the widest that was measured.

        Raises:
            ValueError: nothing was measured, or something that is not above 0.
        """
        if not measured or min(measured) < 1 or min(measured.values()) <= 0.0:
            raise ValueError(f"Pass times must be seconds above 0 for widths above 0, at least one; got {measured}.")
        self._widest = max(widest, *measured)
        knots = sorted({*measured, 1, self._widest, *(n for n in _KNOTS if n < self._widest)})
        self._knots = np.array(knots, float)
        self._logs = np.log(_extended(measured, knots))
        self._n_observed = 0
        self._table: list[float] = []  # [n - 1]: of n rows
        self._per_cell_s = self._per_row_and_cell_s = 0.0
        self._n_cells = 0  # where they were measured
        self._tabulate()

    def seconds(self, n_rows: int, n_cells: int = 0) -> float:
        """Estimate for `n_rows` (>= 1) that attend to `n_cells` tokens of context."""
        return self._base_s(n_rows) + n_cells * (self._per_cell_s + n_rows * self._per_row_and_cell_s)

    def _base_s(self, n_rows: int) -> float:
        if n_rows <= self._widest:
            return self._table[n_rows - 1]
        slope = (self._table[-1] - self._table[0]) / (self._widest - 1) if self._widest > 1 else self._table[0]
        return self._table[-1] + slope * (n_rows - self._widest)

    def is_worth_measuring(self, n_cells: int) -> bool:
        """Whether passes over so much context would show what attention takes there."""
        return n_cells >= max(_LEAST_CELLS, _WORTH_MEASURING * self._n_cells)

    def learn_context(self, n_cells: int, measured: Mapping[int, float]) -> None:
        """Learn what attention takes from passes over `n_cells` tokens of context: rows to seconds, for two widths."""
        (narrow, narrow_s), (wide, wide_s) = sorted(measured.items())
        of_narrow, of_wide = max(0.0, narrow_s - self._base_s(narrow)), max(0.0, wide_s - self._base_s(wide))
        # Rows share their work or do not; they never hinder each other.
        per_row_s = min(max(0.0, (of_wide - of_narrow) / (wide - narrow)), of_narrow / narrow)
        self._per_row_and_cell_s = per_row_s / n_cells
        self._per_cell_s = (of_narrow - narrow * per_row_s) / n_cells
        self._n_cells = n_cells

    def assume_context(self, other: PassTimes, ratio: float) -> None:
        """Until it is measured: attention takes `ratio` times what it takes in the passes of `other`."""
        if not self._n_cells:
            self._per_cell_s = ratio * other._per_cell_s
            self._per_row_and_cell_s = ratio * other._per_row_and_cell_s

    def observe(self, n_rows: int, seconds: float, n_cells: int = 0) -> None:
        """Learn from a pass. One that is wider than `widest` says too little about narrow ones."""
        if n_rows > self._widest or seconds <= 0.0:
            return
        self._n_observed += 1
        expected_s = self.seconds(n_rows, n_cells)
        surprise = min(math.log(seconds / expected_s), math.log(_MOST_SLOWED))
        surprise *= max(1.0, 1.0 / ((_PASSES_AT_FIRST + self._n_observed) * (_COMMON_STEP + _OWN_STEP)))
        self._logs += _COMMON_STEP * surprise
        # Each part takes the blame by its share: a long text must not spoil what is known of short ones.
        of_base = self._table[n_rows - 1] / expected_s
        of_attention = math.exp((_COMMON_STEP + _OWN_STEP * (1.0 - of_base)) * surprise)
        self._per_cell_s *= of_attention
        self._per_row_and_cell_s *= of_attention
        surprise *= of_base
        right = int(self._knots.searchsorted(n_rows))
        share = 1.0
        if right and self._knots[right] != n_rows:
            share = float((n_rows - self._knots[right - 1]) / (self._knots[right] - self._knots[right - 1]))
            self._logs[right - 1] += (1.0 - share) * _OWN_STEP * surprise
        self._logs[right] += share * _OWN_STEP * surprise
        self._tabulate()

    def _tabulate(self) -> None:
        rows = np.arange(1.0, self._widest + 1.0)
        times = np.interp(rows, self._knots, np.exp(self._logs))
        times = np.minimum(times, rows * times[0])
        # A hiccup makes a pass slower, never faster: where a wider one takes less, that is the better estimate.
        self._table = np.minimum.accumulate(times[::-1])[::-1].tolist()


def _extended(measured: Mapping[int, float], widths: list[int]) -> list[float]:
    """Seconds at `widths`, ascending; where only one width is known, every row costs as much as the first."""
    known = sorted(measured.items())
    rows, seconds = zip(*known, strict=True)
    slope = (seconds[-1] - seconds[0]) / (rows[-1] - rows[0]) if len(known) > 1 else seconds[0] / rows[0]
    beyond_s = max(slope, 0.0)
    return [float(np.interp(n, rows, seconds)) + beyond_s * max(0, n - rows[-1]) for n in widths]
