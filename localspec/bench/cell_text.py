"""Numbers as they stand in a table: with units left to the header, and a dash for what was not measured."""

from __future__ import annotations

from typing import Final

from localspec.bench.paired import Speedup
from localspec.bench.statistics import Spread

NOTHING: Final = "–"


def number(value: float | None, digits: int = 1) -> str:
    """A plain number."""
    return NOTHING if value is None else f"{value:.{digits}f}"


def percent(value: float | None) -> str:
    """A share, as a whole percentage."""
    return NOTHING if value is None else f"{value:.0%}"


def milliseconds(seconds: float | None) -> str:
    """Seconds, in milliseconds."""
    return number(None if seconds is None else 1e3 * seconds)


def middle(spread: Spread | None, digits: int = 1) -> str:
    """The middle alone."""
    return number(None if spread is None else spread.middle, digits)


def times(ratio: float) -> str:
    """How many times as fast."""
    return f"{ratio:.2f} x"


def bounds(low: float, high: float, digits: int = 2) -> str:
    """What a number lies between."""
    return f"{low:.{digits}f} to {high:.{digits}f}"


def times_within(speedup: Speedup) -> str:
    """How many times as fast, with the bounds if it has any."""
    return (
        f"{times(speedup.ratio)} ({bounds(speedup.low, speedup.high)})" if speedup.has_bounds else times(speedup.ratio)
    )


def with_extremes(spread: Spread | None, digits: int = 2) -> str:
    """The middle, and the extremes where they differ."""
    if spread is None:
        return NOTHING
    shown, low, high = (number(value, digits) for value in (spread.middle, spread.low, spread.high))
    return shown if low == high else f"{shown} ({low}–{high})"
