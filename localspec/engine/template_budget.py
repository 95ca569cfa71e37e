"""What one rendering of a chat template may cost: limits, how values are weighed, and the error when one is passed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Final

import jinja2

__all__ = [
    "MAX_DETAIL",
    "MAX_RANGE",
    "STEP",
    "Budget",
    "TooMuchError",
    "text_bytes",
    "weigh",
    "weigh_number",
    "within_value",
]

MAX_VALUE_BYTES: Final = 16_000_000  # one value
MAX_TOTAL_BYTES: Final = (
    256_000_000  # all values that one rendering makes: some templates copy the prompt for every turn
)
MAX_SECONDS: Final = 15.0  # some look back over the whole chat for every turn; a thousand turns then take seconds
MAX_RANGE: Final = 10_000  # numbers in a range
MAX_BITS: Final = 4096  # of an integer
MAX_DEPTH: Final = 48  # of lists in lists
MAX_DETAIL: Final = 400  # characters of a number, of a set of characters to strip, of a date layout
STEP: Final = 16  # bytes that an operation, or an item of a container, counts for


class TooMuchError(jinja2.TemplateError):
    """The template asked for more text or time than a chat can need."""


class Budget:
    """What one rendering may still spend, in bytes and seconds."""

    __slots__ = ("_deadline", "_left")

    def __init__(self) -> None:
        self._left = MAX_TOTAL_BYTES
        self._deadline = time.monotonic() + MAX_SECONDS

    def spend(self, n_bytes: int) -> None:
        """Raises TooMuchError once nothing is left."""
        self._left -= n_bytes
        if self._left < 0:
            raise TooMuchError(f"it makes more than {MAX_TOTAL_BYTES / 1e6:.0f} MB of text")
        if time.monotonic() > self._deadline:
            raise TooMuchError(f"it runs for more than {MAX_SECONDS:g} seconds")


def weigh(value: object, depth: int = 0) -> int:
    """Bytes of a value, items of containers included.

    A list may hold another one many times over, so that its text is exponentially longer than its memory: weighing
    follows every path, and stops with TooMuchError at MAX_VALUE_BYTES.
    """
    if isinstance(value, str):
        return within_value(STEP + text_bytes(len(value), value))
    if isinstance(value, int):
        return weigh_number(value.bit_length())
    if isinstance(value, Mapping):
        parts: Iterable[object] = chain(value.keys(), value.values())
    elif isinstance(value, list | tuple):
        parts = value
    else:
        return STEP
    if depth > MAX_DEPTH:
        raise TooMuchError(f"it nests lists more than {MAX_DEPTH} deep")
    total = STEP
    for part in parts:
        total = within_value(total + weigh(part, depth + 1))
    return total


def weigh_number(n_bits: int) -> int:
    """The cost of an integer of so many bits."""
    if n_bits > MAX_BITS:
        raise TooMuchError(f"it computes a number of more than {MAX_BITS:,} bits")
    return STEP


def text_bytes(n_chars: int, *texts: str) -> int:
    """At most so many bytes hold `n_chars` characters taken from `texts`."""
    return n_chars if all(text.isascii() for text in texts) else 4 * n_chars


def within_value(n_bytes: int) -> int:
    """`n_bytes` again, when one value may have that many."""
    if n_bytes > MAX_VALUE_BYTES:
        raise TooMuchError(f"it makes a value of more than {MAX_VALUE_BYTES / 1e6:.0f} MB")
    return n_bytes
