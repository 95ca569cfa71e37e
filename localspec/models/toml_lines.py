"""Where in a TOML file something stands. The standard library's parser tells lines only of what is not TOML at all."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from typing import Final

__all__ = ["line_of"]

_HEADER: Final = re.compile(r"\s*(\[\[?)(.+?)\]\]?\s*(?:#.*)?$")
_KEY: Final = re.compile(
    r"\s*((?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*'))*)\s*="
)


def line_of(text: str, keys: Sequence[str | int]) -> int:
    """The line, from 1 on, of the value that `keys` lead to; of the innermost table around it where it has no line.

    Numbers are places in an array of tables. 1 where nothing is found.
    """
    wanted = tuple(keys)
    table: tuple[str | int, ...] = ()
    n_tables: Counter[tuple[str | int, ...]] = Counter()
    found, n_shared = 1, 0
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = _path(header[2])
            if header[1] == "[[":
                n_tables[table] += 1
                table = (*table, n_tables[table] - 1)
            place = table
        elif key := _KEY.match(line):
            place = (*table, *_path(key[1]))
        else:
            continue
        shared = min(len(place), len(wanted))  # a table may be named only by one within it
        if place[:shared] == wanted[:shared] and shared > n_shared:
            found, n_shared = number, shared
    return found


def _path(dotted: str) -> tuple[str | int, ...]:
    """The keys in "a.'b c'.d"; none where that is no key."""
    try:
        value: object = tomllib.loads(f"{dotted} = 0")
    except ValueError:
        return ()
    path: list[str | int] = []
    while isinstance(value, dict) and len(value) == 1:
        ((key, value),) = value.items()
        path.append(key)
    return tuple(path)
