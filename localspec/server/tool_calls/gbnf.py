"""Pieces of GBNF, llama.cpp's grammar language, and of the regular expressions that wake a grammar up."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from localspec.llama.gbnf import escaped
from localspec.llama.sampling_params import GrammarSchema

WS = "ws ::= [ \\t\\n]{0,8}\n"
# The same in triggers.
SPACE = "[ \\t\\n]{0,8}"


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules as text, one a line, and those that are made of JSON schemas."""

    text: str
    schemas: tuple[GrammarSchema, ...] = ()


def until(rule: str, delimiter: str) -> str:
    """Rules by which `rule` is any text that ends with the first `delimiter`, the delimiter included.

    One rule for each length of a beginning of the delimiter that may stand at the end so far, as Knuth, Morris and
    Pratt search: a state machine, in which no rule looks back.
    """
    n = len(delimiter)
    chars = sorted(set(delimiter))
    lines = []
    for state in range(n):
        moves: dict[int, list[str]] = {}
        for char in chars:
            moves.setdefault(_overlap(delimiter[:state] + char, delimiter), []).append(char)
        back = "".join(escaped(char) for char in chars)
        alternatives = [f"[^{back}] {rule}-0"]
        for target, these in moves.items():
            text = "".join(escaped(char) for char in these)
            alternatives.append(f"[{text}]" + ("" if target == n else f" {rule}-{target}"))
        lines.append(f"{rule}-{state} ::= " + " | ".join(alternatives) + "\n")
    return f"{rule} ::= {rule}-0\n" + "".join(lines)


def beginning(text: str) -> str:
    """A regular expression of every beginning of the text, the empty one included."""
    expression = ""
    for char in reversed(text):
        expression = f"(?:{re.escape(char)}{expression})?"
    return expression


def trigger(opening: str, following: str = "") -> str:
    """A trigger at `opening`, which the grammar begins with, followed by `ws` and `following`.

    The token that ends the opening may hold some of what comes after it.
    """
    return f"({re.escape(opening)}{SPACE}{beginning(following)})"


def any_of(texts: Iterable[str]) -> str:
    """A regular expression of exactly these texts."""
    return "(?:" + "|".join(map(re.escape, texts)) + ")"


def _overlap(text: str, delimiter: str) -> int:
    """The length of the longest beginning of the delimiter that ends the text."""
    return next(n for n in range(min(len(text), len(delimiter)), -1, -1) if text.endswith(delimiter[:n]))
