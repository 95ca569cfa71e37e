"""How often drafted tokens are accepted, by what is known of them before the target sees them: counts that fade."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Final

# Tests that a class remembers, in effect: enough to tell 0.9 from 0.95, few enough to follow the text.
_MEMORY: Final = 150.0


class AcceptanceTable:
    """Estimated probability that the target accepts a token of some class, given that the token is tested.

    A class is a range of a number: the place in the draft, how sure the drafter was, how much text a copy matches.
    Only tested tokens count. Those behind a rejection say nothing, and neither does the end of a draft that was
    accepted whole: counting tests instead of lengths is what allows for that censoring.
    """

    def __init__(self, lower_bounds: Sequence[float], *, prior_tests: float = 4.0) -> None:
        """Classes begin at `lower_bounds`, ascending; below the first bound is one more class.

        `prior_tests`: how many tests a prior is worth. Many where classes hardly differ, few where they do.
        """
        self._lower_bounds = list(lower_bounds)
        self._prior_tests = prior_tests
        self._tests = [0.0] * (len(lower_bounds) + 1)
        self._accepted = [0.0] * (len(lower_bounds) + 1)

    def estimate(self, number: float, prior: float) -> float:
        """Posterior mean for the class of `number`: its counts, and `prior` as if that were a few tests."""
        of = bisect.bisect_right(self._lower_bounds, number)
        return (self._accepted[of] + self._prior_tests * prior) / (self._tests[of] + self._prior_tests)

    def record(self, number: float, *, accepted: bool) -> None:
        """A token of the class of `number` was tested."""
        of = bisect.bisect_right(self._lower_bounds, number)
        keep = 1.0 - 1.0 / _MEMORY
        self._tests[of] = self._tests[of] * keep + 1.0
        self._accepted[of] = self._accepted[of] * keep + accepted
