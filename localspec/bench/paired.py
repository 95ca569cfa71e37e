"""How many times as fast one way is as another, from paired runs, and how far that can be trusted.

Both ways run each case (a prompt at a temperature) right after one another, in turning order, several times over. The
logarithm of the ratio within a pair is free of what the case costs and of most of a machine's drift. Ratios are
averaged by the geometric mean (Fleming & Wallace, "How not to lie with statistics", CACM 1986), every case with the
same weight. The cases are given, not sampled: that a change helps one more than another is no uncertainty. What is
uncertain is the noise between repeated pairs of one case, pooled over the cases as in a block design, and the bounds
are Student's, on the logarithms (Kalibera & Jones, "Rigorous benchmarking in reasonable time", ISMM 2013).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

_T = TypeVar("_T")

# Quantiles of Student's t at 0.99, for 1 to 30 degrees of freedom; the last one is kept beyond, which errs to the safe
# side by at most 6 %.
_T99: Final = (
    *(31.821, 6.965, 4.541, 3.747, 3.365, 3.143, 2.998, 2.896, 2.821, 2.764),
    *(2.718, 2.681, 2.650, 2.624, 2.602, 2.583, 2.567, 2.552, 2.539, 2.528),
    *(2.518, 2.508, 2.500, 2.492, 2.485, 2.479, 2.473, 2.467, 2.462, 2.457),
)

Pass = Sequence[float | None]
"""Of each case, in order: the logarithm of the ratio of one pair; None where it could not be measured."""


@dataclass(frozen=True, slots=True)
class Speedup:
    """`ratio` above 1 is faster. Each of the bounds holds with 99 % confidence; without repetitions they are 0 and inf.

    `n_pairs` is how many pairs it rests on.
    """

    ratio: float
    low: float
    high: float
    n_pairs: int

    @property
    def has_bounds(self) -> bool:
        """Whether there were repetitions."""
        return math.isfinite(self.high)


def in_turn(everyone: Sequence[_T], number: int) -> tuple[_T, ...]:
    """Everyone once. With each `number` the next of them begins, so what drifts within a round favours none."""
    first = number % len(everyone)
    return (*everyone[first:], *everyone[:first])


def speedup(passes: Sequence[Pass]) -> Speedup | None:
    """The speedup over all cases; None when no case was measured.

    Raises:
        ValueError: passes of different length.
    """
    cases = [[value for value in values if value is not None] for values in zip(*passes, strict=True)]
    cases = [values for values in cases if values]
    if not cases:
        return None
    n_pairs = sum(map(len, cases))
    means = [math.fsum(values) / len(values) for values in cases]
    mean = math.fsum(means) / len(cases)
    freedom = n_pairs - len(cases)
    if freedom == 0:
        return Speedup(math.exp(mean), 0.0, math.inf, n_pairs)
    squares = math.fsum((value - centre) ** 2 for values, centre in zip(cases, means, strict=True) for value in values)
    error = math.sqrt(squares / freedom * math.fsum(1 / len(values) for values in cases)) / len(cases)
    margin = _T99[min(freedom, len(_T99)) - 1] * error
    return Speedup(math.exp(mean), math.exp(mean - margin), math.exp(mean + margin), n_pairs)
