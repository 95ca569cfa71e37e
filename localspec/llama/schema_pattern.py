"""A JSON schema's `pattern` as GBNF: the texts of JSON strings that the regular expression matches.

What grammars can say of regular expressions: literals, classes, groups, alternatives, repetition, and anchors at both
ends; of ECMAScript's syntax, as JSON schemas have it. Characters that JSON writes with a backslash are allowed where
the expression names them, and nowhere else.
"""

from __future__ import annotations

import json
import re
import string
from typing import Final

from localspec.llama.gbnf import char_class, literal, one_of

_LAST: Final = 0x10FFFF
_DIGITS: Final = [(0x30, 0x39)]
_WORD: Final = [(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)]
_SPACE: Final = [
    *((0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029)),
    *((0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)),
]
_CLASSES: Final = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_CONTROLS: Final = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "0": "\0"}
# What stands in a JSON string as it is: no control characters, quotes, backslashes, and no halves of characters.
_PLAIN: Final = [(0x20, 0x21), (0x23, 0x5B), (0x5D, 0x7E), (0x80, 0xD7FF), (0xE000, _LAST)]
_LINE_ENDS: Final = [(0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029)]
_MAX_REPEATS: Final = 1000
# llama.cpp refuses to repeat a group of many symbols often.
_MAX_REPEATED_SYMBOLS: Final = 2000
_MAX_DEPTH: Final = 30

_COUNTS: Final = re.compile(r"([0-9]{1,9})(,([0-9]{1,9})?)?\}")

Ranges = list[tuple[int, int]]


class UnknownPatternError(ValueError):
    """The expression uses something that a grammar cannot say, or is not valid."""


def pattern_rule(pattern: str, any_char: str, low: int = 0, high: int | None = None) -> str:
    """A GBNF expression of the inside of a JSON string; `any_char` is the rule of one character in it.

    Lengths from `low` to `high` count where all of the pattern is one repeated class of characters.

    Raises:
        UnknownPatternError: the pattern cannot be written as one.
    """
    reader = _Reader(pattern)
    repeated = reader.repeated_class()
    if repeated is not None:
        char, least, most = repeated
        least, most = max(least, low), high if most is None else most if high is None else min(most, high)
        if least <= _MAX_REPEATS and (most is None or least <= most):
            return f"{char}{{{least},{'' if most is None or most > _MAX_REPEATS else most}}}"
    reader = _Reader(pattern)
    alternatives = []
    while True:
        before = "" if reader.takes("^") else f"{any_char}* "
        body = reader.sequence()
        after = "" if reader.takes("$") else f" {any_char}*"
        alternatives.append(before + body + after)
        if not reader.takes("|"):
            break
    if not reader.is_done:
        raise UnknownPatternError(f"its character {reader.at} cannot stand there")
    return one_of(alternatives)


class _Reader:
    """Recursive descent over the expression's text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._depth = 0
        self._n_repeats = 0
        # Rules that llama.cpp makes of what was read, and names in it.
        self._n_symbols = 0
        # Of the last atom, group or sequence.
        self._may_be_empty = False
        self.at = 0

    @property
    def is_done(self) -> bool:
        return self.at >= len(self._text)

    def takes(self, text: str) -> bool:
        if not self._text.startswith(text, self.at):
            return False
        self.at += len(text)
        return True

    def next(self) -> str:
        if self.is_done:
            raise UnknownPatternError("it ends too early")
        self.at += 1
        return self._text[self.at - 1]

    def sequence(self) -> str:
        """Atoms with their repetitions, up to an alternative, a closing parenthesis, an anchor or the end."""
        parts = []
        all_may_be_empty = True
        while not self.is_done and self._text[self.at] not in "|)$":
            n_before = self._n_symbols
            self._may_be_empty = False
            atom = self._atom()
            parts.append(atom + self._repetition(max(1, self._n_symbols - n_before)))
            all_may_be_empty = all_may_be_empty and self._may_be_empty
        self._may_be_empty = all_may_be_empty
        return " ".join(parts) or '""'

    def repeated_class(self) -> tuple[str, int, int | None] | None:
        """The one class of characters that is all of the expression, from its start to its end, and how often."""
        if not self.takes("^") or self.is_done or self._text[self.at] in "(^$|)*+?{":
            return None
        atom = self._atom()
        low, high = self._counts()
        # A character with an escape in JSON is one, too: what it is written as is a group.
        return (atom, low, high) if self._text[self.at :] == "$" else None

    def _atom(self) -> str:
        char = self.next()
        if char == "(":
            return self._group()
        if char == "[":
            return self._class()
        if char == ".":
            return in_string(others(_LINE_ENDS), names_controls=False)
        if char == "\\":
            return self._chars(self._escape())
        if char in "*+?{^":
            raise UnknownPatternError(f"{char} cannot stand there")
        return in_string([(ord(char), ord(char))])

    def _chars(self, ranges: Ranges, *, names_controls: bool = True) -> str:
        self._n_symbols += 1
        return in_string(ranges, names_controls=names_controls)

    def _group(self) -> str:
        if self.takes("?"):
            if self.takes("<") and self._text[self.at : self.at + 1] not in ("=", "!"):
                while self.next() != ">":
                    pass
            elif not self.takes(":"):
                raise UnknownPatternError("it looks ahead or back")
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise UnknownPatternError("its groups are too deep")
        alternatives = [self.sequence()]
        may_be_empty = self._may_be_empty
        while self.takes("|"):
            alternatives.append(self.sequence())
            may_be_empty = may_be_empty or self._may_be_empty
        self._may_be_empty = may_be_empty
        if not self.takes(")"):
            raise UnknownPatternError("a group is not closed, or has an anchor in it")
        self._depth -= 1
        self._n_symbols += 1
        return one_of(alternatives)

    def _class(self) -> str:
        is_negated = self.takes("^")
        ranges: Ranges = []
        while not self.takes("]"):
            low = self._class_member()
            if len(low) == 1 and low[0][0] == low[0][1] and self.takes("-"):
                if self._text[self.at : self.at + 1] == "]":
                    ranges.append((0x2D, 0x2D))
                else:
                    high = self._class_member()
                    if len(high) != 1 or high[0][0] != high[0][1] or high[0][0] < low[0][0]:
                        raise UnknownPatternError("a range in it is the wrong way round")
                    low = [(low[0][0], high[0][0])]
            ranges += low
        return self._chars(others(ranges) if is_negated else ranges, names_controls=not is_negated)

    def _class_member(self) -> Ranges:
        char = self.next()
        return self._escape(in_class=True) if char == "\\" else [(ord(char), ord(char))]

    def _escape(self, *, in_class: bool = False) -> Ranges:
        char = self.next()
        if char.lower() in _CLASSES:
            ranges = _CLASSES[char.lower()]
            return others(ranges) if char.isupper() else ranges
        if char in "xu":
            n_digits = 2 if char == "x" else 4
            digits = self._text[self.at : self.at + n_digits]
            if len(digits) < n_digits or not all(digit in string.hexdigits for digit in digits):
                raise UnknownPatternError("an escape in it is no number")
            self.at += n_digits
            return [(int(digits, 16), int(digits, 16))]
        if in_class and char == "b":
            char = "\b"
        elif char in _CONTROLS:
            char = _CONTROLS[char]
        elif char.isalnum():
            raise UnknownPatternError(f"\\{char} is not known")
        return [(ord(char), ord(char))]

    def _repetition(self, n_symbols: int) -> str:
        start = self.at
        low, high = self._counts()
        if self.at == start:
            return ""
        if high is None and self._may_be_empty:
            raise UnknownPatternError("it repeats without end what may be empty")
        self._may_be_empty = self._may_be_empty or low == 0
        times = max(low, high or 0)
        self._n_repeats += times
        if self._n_repeats > _MAX_REPEATS or n_symbols * times > _MAX_REPEATED_SYMBOLS:
            raise UnknownPatternError("it repeats too often")
        self._n_symbols += max(1, (high or 0) - low)
        return f"{{{low},{'' if high is None else high}}}"

    def _counts(self) -> tuple[int, int | None]:
        """How often the last atom repeats; the second None: without end."""
        low: int
        high: int | None
        low, high = 1, 1
        if not self.is_done and self._text[self.at] in "*+?":
            low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}[self.next()]
        elif self.takes("{"):
            match = _COUNTS.match(self._text, self.at)
            if match is None:
                raise UnknownPatternError("a repetition in it has no number")
            self.at = match.end()
            low = int(match[1])
            high = low if match[2] is None else int(match[3]) if match[3] else None
            if high is not None and high < low:
                raise UnknownPatternError("a repetition in it is the wrong way round")
        else:
            return low, high
        self.takes("?")  # how much is tried first makes no difference here
        return low, high


def others(ranges: Ranges) -> Ranges:
    """All code points outside of the ranges."""
    outside, low = [], 0
    for first, last in sorted(ranges):
        if first > low:
            outside.append((low, first - 1))
        low = max(low, last + 1)
    if low <= _LAST:
        outside.append((low, _LAST))
    return outside


def in_string(ranges: Ranges, *, names_controls: bool = True) -> str:
    """The characters of the ranges as JSON writes them in a string."""
    plain = [
        (max(low, first), min(high, last))
        for low, high in ranges
        for first, last in _PLAIN
        if max(low, first) <= min(high, last)
    ]
    options = [char_class(plain)] if plain else []
    if names_controls:
        options += [
            literal("\\u007f" if code == 0x7F else json.dumps(chr(code))[1:-1])
            for code in (*range(0x20), 0x22, 0x5C, 0x7F)
            if any(low <= code <= high for low, high in ranges)
        ]
    if not options:
        raise UnknownPatternError("a class in it is empty")
    return options[0] if len(options) == 1 else one_of(options)
