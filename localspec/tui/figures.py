"""Numbers as they stand on the screen: short, with a unit, and never wider than they say."""

from __future__ import annotations

from typing import Final

from localspec import quantities
from localspec.quantities import three_digits

NOTHING: Final = "–"  # there is no number yet


def rate(tokens_per_second: float | None) -> str:
    """Tokens per second, without the unit; at most 5 cells."""
    if tokens_per_second is None:
        return NOTHING
    return f"{tokens_per_second:.1f}" if tokens_per_second < 999.95 else count(round(tokens_per_second))


def percent(share: float | None) -> str:
    """A share of 1 as a percentage, at most 7 cells."""
    return NOTHING if share is None else f"{100 * share:.1f} %"


def share(value: float | None) -> str:
    """A share of 1 as a whole percentage, at most 5 cells."""
    return NOTHING if value is None else f"{100 * value:.0f} %"


def length(n_tokens: float | None) -> str:
    """A mean acceptance or draft length, at most 5 cells."""
    return NOTHING if n_tokens is None else f"{n_tokens:.2f}"


def seconds(value: float | None) -> str:
    """A duration, at most 7 cells below eleven days."""
    return NOTHING if value is None else f"{three_digits(value)} s"


def count(value: int) -> str:
    """A number of tokens: exact below ten thousand, then in thousands or millions; at most 5 cells below 1000 M."""
    if value < 10_000:
        return f"{value:,}"
    if value < 999_500:
        return f"{value / 1e3:.1f}k" if value < 99_950 else f"{value / 1e3:.0f}k"
    return f"{three_digits(value / 1e6)}M"


def size(n_bytes: int | None) -> str:
    """A number of bytes of memory, at most 8 cells."""
    return NOTHING if n_bytes is None else quantities.memory_size(n_bytes)


def file_size(n_bytes: float | None, *, is_guess: bool = False) -> str:
    """The size of a file; at most 9 cells."""
    return NOTHING if n_bytes is None else f"{'~' if is_guess else ''}{quantities.file_size(n_bytes)}"
