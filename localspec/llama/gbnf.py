"""Literals and character classes of GBNF, llama.cpp's grammar language."""

from __future__ import annotations

from collections.abc import Iterable


def literal(text: str) -> str:
    """A GBNF literal of exactly this text."""
    return '"' + "".join(map(escaped, text)) + '"'


def one_of(expressions: Iterable[str]) -> str:
    """A group of alternatives, in GBNF already."""
    return "( " + " | ".join(expressions) + " )"


def char_class(ranges: Iterable[tuple[int, int]]) -> str:
    """A class of the code points in these ranges, both ends included."""
    parts = (escaped(chr(low)) if low == high else f"{escaped(chr(low))}-{escaped(chr(high))}" for low, high in ranges)
    return "[" + "".join(parts) + "]"


def escaped(char: str) -> str:
    """A character as it is written in a literal and in a class."""
    if char.isascii() and char.isalnum():
        return char
    code = ord(char)
    return f"\\x{code:02X}" if code < 0x100 else f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"
