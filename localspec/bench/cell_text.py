"""Numbers as they stand in a table: with units left to the header, and a dash for what was not measured."""

from __future__ import annotations

from typing import Final

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


def with_extremes(spread: Spread | None, digits: int = 2) -> str:
    """The middle, and the extremes where they differ."""
    if spread is None:
        return NOTHING
    low, high = f"{spread.low:.{digits}f}", f"{spread.high:.{digits}f}"
    return middle(spread, digits) if low == high else f"{middle(spread, digits)} ({low}–{high})"
