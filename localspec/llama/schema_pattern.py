"""A JSON schema's `pattern` as GBNF: the texts of JSON strings that the regular expression matches.

What grammars can say of regular expressions: literals, classes, groups, alternatives, repetition, and anchors at both
ends. Characters that JSON writes with a backslash are allowed where the expression names them, and nowhere else.
"""

from __future__ import annotations

import json
from typing import Final

from localspec.llama.gbnf import char_class, literal, one_of

_LAST: Final = 0x10FFFF
_DIGITS: Final = [(0x30, 0x39)]
_WORD: Final = [(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)]
_SPACE: Final = [(0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0)]
_CLASSES: Final = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_CONTROLS: Final = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "0": "\0"}
# What stands in a JSON string as it is: no control characters, quotes, backslashes, and no halves of characters.
_PLAIN: Final = [(0x20, 0x21), (0x23, 0x5B), (0x5D, 0x7E), (0x80, 0xD7FF), (0xE000, _LAST)]
_MAX_REPEATS: Final = 1000
_MAX_DEPTH: Final = 30

Ranges = list[tuple[int, int]]


class UnknownPatternError(ValueError):
    """The expression uses something that a grammar cannot say, or is not valid."""


def pattern_rule(pattern: str, any_char: str) -> str:
    """A GBNF expression of the inside of a JSON string; `any_char` is the rule of one character in it.

    Raises:
        UnknownPatternError: the pattern cannot be written as one.
    """
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
        while not self.is_done and self._text[self.at] not in "|)$":
            parts.append(self._atom() + self._repetition())
        return " ".join(parts) or '""'

    def _atom(self) -> str:
        char = self.next()
        if char == "(":
            return self._group()
        if char == "[":
            return self._class()
        if char == ".":
            return char_class(_PLAIN)
        if char == "\\":
            return _written(self._escape())
        if char in "*+?{^":
            raise UnknownPatternError(f"{char} cannot stand there")
        return literal(json.dumps(char, ensure_ascii=False)[1:-1])

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
        while self.takes("|"):
            alternatives.append(self.sequence())
        if not self.takes(")"):
            raise UnknownPatternError("a group is not closed, or has an anchor in it")
        self._depth -= 1
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
        return _written(_others(ranges) if is_negated else ranges, names_controls=not is_negated)

    def _class_member(self) -> Ranges:
        char = self.next()
        return self._escape(in_class=True) if char == "\\" else [(ord(char), ord(char))]

    def _escape(self, *, in_class: bool = False) -> Ranges:
        char = self.next()
        if char.lower() in _CLASSES:
            ranges = _CLASSES[char.lower()]
            return _others(ranges) if char.isupper() else ranges
        if char in "xu":
            digits = self._text[self.at : self.at + (2 if char == "x" else 4)]
            self.at += len(digits)
            try:
                code = int(digits, 16)
            except ValueError as error:
                raise UnknownPatternError("an escape in it is no number") from error
            return [(code, code)]
        if char in _CONTROLS:
            char = _CONTROLS[char]
        elif char.isalnum() and not (in_class and char == "b"):
            raise UnknownPatternError(f"\\{char} is not known")
        return [(ord(char), ord(char))]

    def _repetition(self) -> str:
        found = ""
        if not self.is_done and self._text[self.at] in "*+?":
            found = self.next()
        elif self.takes("{"):
            low, comma, high = self._until("}").partition(",")
            if not low.strip().isdecimal() or not (high.strip().isdecimal() or not high.strip()):
                raise UnknownPatternError("a repetition in it has no number")
            self._n_repeats += max(int(low), int(high or 0))
            if self._n_repeats > _MAX_REPEATS or (high.strip() and int(high) < int(low)):
                raise UnknownPatternError("it repeats too often")
            found = "{" + str(int(low)) + comma + (str(int(high)) if high.strip() else "") + "}"
        self.takes("?")  # how much is tried first makes no difference here
        return found

    def _until(self, end: str) -> str:
        start = self.at
        while self.next() != end:
            pass
        return self._text[start : self.at - 1]


def _others(ranges: Ranges) -> Ranges:
    """All code points outside of the ranges."""
    others, low = [], 0
    for first, last in sorted(ranges):
        if first > low:
            others.append((low, first - 1))
        low = max(low, last + 1)
    if low <= _LAST:
        others.append((low, _LAST))
    return others


def _written(ranges: Ranges, *, names_controls: bool = True) -> str:
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
