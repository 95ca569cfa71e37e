"""Sizes, counts and times as people read them: one spelling for the commands and the chat."""

from __future__ import annotations

from typing import Final

__all__ = ["file_size", "memory_size", "span", "three_digits", "weights"]

_BINARY_UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB")


def file_size(n_bytes: float) -> str:
    """By powers of a thousand, as the Hub and file managers show files. For memory there is `memory_size`."""
    if n_bytes < 999.5:
        return f"{n_bytes:.0f} B"
    if n_bytes < 999.5e3:
        return f"{n_bytes / 1e3:.0f} kB"
    if n_bytes < 999.5e6:
        return f"{n_bytes / 1e6:.1f} MB" if n_bytes < 9.95e6 else f"{n_bytes / 1e6:.0f} MB"
    return f"{n_bytes / 1e9:.2f} GB" if n_bytes < 99.995e9 else f"{n_bytes / 1e9:.0f} GB"


def memory_size(n_bytes: int) -> str:
    """By powers of 1024, as systems and drivers count memory, at most 8 characters: 613 MiB, 12.0 GiB."""
    if n_bytes < 1000:
        return f"{n_bytes} B"
    value, *units = n_bytes / 1024, *_BINARY_UNITS
    while value >= 999.5 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{three_digits(value)} {units[0]}"


def three_digits(value: float) -> str:
    """A number that is not negative, to three digits, or to whole ones from 100 on."""
    if value < 9.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def weights(count: int) -> str:
    """How many weights a model has: 7.62 B, 135 M."""
    if count < 999_500:
        return f"{count:,}"
    return f"{count / 1e6:.0f} M" if count < 999_500_000 else f"{count / 1e9:.2f} B"


def span(seconds: float) -> str:
    """A time that has passed or is left: 5 s, 1:05 min, 2:03 h."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02} h"
