"""Text of models, files and pastes, made safe to show: nothing in it can steer the terminal or reorder a line."""

from __future__ import annotations

from typing import Final

_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
_MAX_VALUE: Final = 60
_CONTROL_PICTURES: Final = 0x2400  # U+2400 onward: a visible picture for each control character below the space


def _table() -> dict[int, str | None]:
    table: dict[int, str | None] = {code: chr(_CONTROL_PICTURES + code) for code in range(0x20)}
    table[0x7F] = "\N{SYMBOL FOR DELETE}"
    table |= dict.fromkeys(range(0x80, 0xA0), _REPLACEMENT)  # C1: a terminal may read them as escape sequences
    table |= dict.fromkeys(range(0x202A, 0x202F), _REPLACEMENT)  # bidirectional embeddings and overrides
    table |= dict.fromkeys(range(0x2066, 0x206A), _REPLACEMENT)  # bidirectional isolates
    table |= dict.fromkeys(range(0xD800, 0xE000), _REPLACEMENT)  # lone surrogates cannot be encoded
    table |= dict.fromkeys(range(0xE0000, 0xE0080), _REPLACEMENT)  # tag characters: text that nobody sees
    table |= dict.fromkeys((0x2028, 0x2029), "\n")
    table[0x0D] = None  # the other half of CRLF
    del table[0x09], table[0x0A]
    return table


_TABLE: Final = _table()


def printable(text: str) -> str:
    """The text with every control character replaced by a visible sign; newline and tab stay, CR goes.

    Works character by character, so a stream may be passed piece by piece.
    """
    return text.translate(_TABLE)


def shown_value(value: object) -> str:
    """A value from a file as its source would write it, cut where it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of more than 4,300 digits, which hexadecimal ones may have
        return "a number of thousands of digits"
    return text if len(text) <= _MAX_VALUE else f"{text[: _MAX_VALUE - 3]}..."


def one_line(text: str) -> str:
    """The same on a single line, with one space where there was any white space: for names in tables and lists."""
    return " ".join(printable(text).split())
