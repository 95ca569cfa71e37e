"""How long a forward pass takes, by its number of rows: learned from the passes that run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# How far one pass moves the estimate for its own width, and for every width: machines slow down as a whole.
_OWN_STEP: Final = 0.1
_COMMON_STEP: Final = 0.1
# A pass that was held up by something else counts as one that took this many times the estimate, at most.
_MAX_SURPRISE: Final = 2.0


class PassTimes:
    """Estimated seconds of a forward pass of n rows, and of what is computed from it; never less for more rows.

    There is an estimate for every width up to `widest`, which follows the passes that run; beyond it times go on
    linearly.
    """

    def __init__(self, measured: Mapping[int, float], widest: int = 0) -> None:
        """Start from `measured`: rows to seconds, for some widths; between and beyond them times are linear.

        `widest`: the widest pass to follow, at least the widest that was measured.

        Raises:
            ValueError: nothing was measured, or something that is not above 0.
        """
        if not measured or min(measured) < 1 or min(measured.values()) <= 0.0:
            raise ValueError(f"Pass times must be seconds above 0 for widths above 0, at least one; got {measured}.")
        known = sorted(measured.items())
        self._common = 1.0
        self._seconds: list[float] = []  # [n - 1]: of n rows, before the common factor
        left_rows, left_s = 0, known[0][1]
        for rows, seconds in known:
            slope = (max(seconds, left_s) - left_s) / (rows - left_rows)
            self._seconds += [left_s + slope * (n - left_rows) for n in range(left_rows + 1, rows + 1)]
            left_rows, left_s = rows, self._seconds[-1]
        while len(self._seconds) < widest:
            self._seconds.append(self._seconds[-1] + self._slope())

    def seconds(self, n_rows: int) -> float:
        """Estimate for `n_rows` (>= 1)."""
        widest = len(self._seconds)
        if n_rows <= widest:
            return self._common * self._seconds[n_rows - 1]
        return self._common * (self._seconds[-1] + self._slope() * (n_rows - widest))

    def observe(self, n_rows: int, seconds: float) -> None:
        """Learn from a pass. One that is wider than `widest` says too little about narrow ones."""
        if n_rows > len(self._seconds):
            return
        surprise = seconds / self.seconds(n_rows)
        surprise = min(max(surprise, 1.0 / _MAX_SURPRISE), _MAX_SURPRISE) - 1.0
        self._common *= 1.0 + _COMMON_STEP * surprise
        known = self._seconds
        own = known[n_rows - 1] = known[n_rows - 1] * (1.0 + _OWN_STEP * surprise)
        # Neighbours give way where they would contradict: a wider pass never takes less time.
        for i in range(n_rows, len(known)):
            if known[i] >= own:
                break
            known[i] = own
        for i in range(n_rows - 2, -1, -1):
            if known[i] <= own:
                break
            known[i] = own

    def _slope(self) -> float:
        """Per row, over all widths; rows cost as much as the first one where nothing else is known."""
        n = len(self._seconds)
        return (self._seconds[-1] - self._seconds[0]) / (n - 1) if n > 1 else self._seconds[0]
