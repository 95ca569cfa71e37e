"""From single replies to figures: medians, spreads, sums. Pure functions; docs/metrics.md has the formulas."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from localspec.engine.metrics import RequestMetrics

# Numbers of one reply that do not add up over several.
_OF_ONE_REPLY: Final = frozenset(
    {"ttft_s", "tpot_s", "tokens_per_second", "recent_tokens_per_second", "itl_p50_s", "itl_p95_s"}
)


@dataclass(frozen=True, slots=True)
class Spread:
    """The middle of `n` values, and their extremes."""

    middle: float
    low: float
    high: float
    n: int


def median_spread(values: Sequence[float]) -> Spread | None:
    """Around the median; None of no values."""
    if not values:
        return None
    return Spread(statistics.median(values), min(values), max(values), len(values))


def geometric_spread(values: Sequence[float]) -> Spread | None:
    """Around the geometric mean of positive values: what ratios are averaged by. None of no values."""
    if not values:
        return None
    return Spread(statistics.geometric_mean(values), min(values), max(values), len(values))


def median(values: Iterable[float | None]) -> float | None:
    """The median of the values that there are."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def ratios(numerators: Iterable[float | None], denominators: Iterable[float | None]) -> list[float]:
    """Pair by pair, in order; pairs of which one is missing or zero have no ratio.

    Raises:
        ValueError: they are not equally many.
    """
    pairs = zip(numerators, denominators, strict=True)
    return [above / below for above, below in pairs if above and below]


def pooled(replies: Sequence[RequestMetrics]) -> RequestMetrics:
    """Several replies (at least one) as if they were one: counts, histograms and times added up, no speeds."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(RequestMetrics):
        column = [getattr(reply, field.name) for reply in replies]
        if field.name in _OF_ONE_REPLY:
            values[field.name] = None
        elif isinstance(column[0], tuple):
            values[field.name] = tuple(map(sum, itertools.zip_longest(*column, fillvalue=0)))
        else:
            values[field.name] = sum(column)
    return RequestMetrics(**values)


def acceptance_per_test(metrics: RequestMetrics) -> float | None:
    """Accepted tokens by the tests that were made: the estimate that allows for drafts that were accepted in full."""
    n_tests = metrics.n_accepted + sum(metrics.rejection_histogram)
    return metrics.n_accepted / n_tests if n_tests else None


def ideal_tokens_per_step(acceptance: float, n_draft: float) -> float:
    """(1 - a^(n+1)) / (1 - a): tokens that a step yields when each of n is accepted with probability a, independently.

    Equation 1 of Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative Decoding", 2023. n may
    be a mean.
    """
    if acceptance >= 1.0:
        return n_draft + 1
    return float((1 - acceptance ** (n_draft + 1)) / (1 - acceptance))


def ideal_of(metrics: RequestMetrics) -> float | None:
    """The ideal for the measured acceptance and the mean draft length, plain steps included. None without drafts."""
    acceptance = acceptance_per_test(metrics)
    if acceptance is None or not metrics.n_steps:
        return None
    return ideal_tokens_per_step(acceptance, metrics.n_drafted / metrics.n_steps)


def speculation_efficiency(speedup: float, mean_acceptance_length: float) -> float:
    """What is reached of the speedup that there would be if a step with a draft took as long as one without."""
    return speedup / mean_acceptance_length
