"""JSON as models write it: read with some patience, passed on as JSON that every client can read."""

from __future__ import annotations

import json
from typing import Any


def read(text: str) -> Any:
    """The value. Line breaks and other control characters may stand in strings as they are.

    Raises:
        ValueError: it is no JSON; NaN and Infinity are none.
    """
    try:
        return json.loads(text, strict=False, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("too deep") from error


def checked(text: str) -> str:
    """The text itself if it is strict JSON, which keeps numbers as they are written; else the same value as that.

    Raises:
        ValueError: it is no JSON.
    """
    value = read(text)
    try:
        text.encode()
        json.loads(text)
    except ValueError:
        return write(value)
    return text


def write(value: Any) -> str:
    """A value that `read` gave. Halves of surrogate pairs, which UTF-8 cannot say, are escaped.

    Raises:
        ValueError: a number in it is too large.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is no JSON")
