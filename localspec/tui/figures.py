"""Numbers as they stand on the screen: short, with a unit, and never wider than they say."""

from __future__ import annotations

from typing import Final

NOTHING: Final = "–"  # there is no number yet

_BYTE_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def _three_digits(value: float) -> str:
    if value < 9.995:
        return f"{value:.2f}"
    if value < 99.95:
        return f"{value:.1f}"
    return f"{value:.0f}"


def rate(tokens_per_second: float | None) -> str:
    """Tokens per second, without the unit; at most 5 cells."""
    if tokens_per_second is None:
        return NOTHING
    return f"{tokens_per_second:.1f}" if tokens_per_second < 999.95 else count(round(tokens_per_second))


def percent(share: float | None) -> str:
    """A share of 1 as a percentage, at most 7 cells."""
    return NOTHING if share is None else f"{100 * share:.1f} %"


def length(tokens_per_step: float | None) -> str:
    """A mean acceptance length, at most 5 cells."""
    return NOTHING if tokens_per_step is None else f"{tokens_per_step:.2f}"


def seconds(value: float | None) -> str:
    """A duration, at most 7 cells below eleven days."""
    return NOTHING if value is None else f"{_three_digits(value)} s"


def count(value: int) -> str:
    """A number of tokens: exact below ten thousand, then with a suffix; at most 5 cells."""
    if value < 10_000:
        return f"{value:,}"
    for suffix in ("k", "M"):
        value_in_unit = value / 1000 if suffix == "k" else value / 1e6
        if value_in_unit < 999.5:
            return (
                f"{_three_digits(value_in_unit)}{suffix}" if value_in_unit < 99.95 else f"{value_in_unit:.0f}{suffix}"
            )
    return f"{value / 1e9:.1f}G"


def size(n_bytes: int | None) -> str:
    """A number of bytes in binary units, at most 8 cells."""
    if n_bytes is None:
        return NOTHING
    value = float(n_bytes)
    for unit in _BYTE_UNITS:
        if value < 999.5:
            break
        value /= 1024
    return f"{n_bytes} B" if unit == "B" else f"{_three_digits(value)} {unit}"
