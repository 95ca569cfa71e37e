"""A look at a grammar before llama.cpp reads it: for what would end the process or take it without end.

llama.cpp's parser recurses over groups, its search for left recursion over all paths through first symbols, and its
stacks grow forever where a rule can come before itself with something after it, behind symbols that may be empty.
What is wrong with a grammar otherwise (unknown rules, no root) llama.cpp says itself.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from localspec.errors import UsageError

_MAX_GROUPS: Final = 500
_MAX_FIRST_SYMBOLS: Final = 10_000
# Steps of the search for left recursion, a few hundred nanoseconds at most each.
_MAX_STEPS: Final = 5_000_000
# llama.cpp writes repetitions out, as symbols and as rules.
_MAX_WRITTEN_OUT: Final = 8_000_000
_SYMBOLS_OF_A_RULE: Final = 20

_TOKEN: Final = re.compile(
    r"""
      (?P<space> (?: [\ \t\r\n]+ | \#[^\r\n]* )+ )
    | (?P<define> [a-zA-Z0-9-]+ ) [\ \t]* ::=
    | (?P<name> [a-zA-Z0-9-]+ )
    | (?P<literal> "[^"\\]*(?:\\.[^"\\]*)*" | \[[^\]\\]*(?:\\.[^\]\\]*)*\] | \. | !?<[^>]*> )
    | (?P<repeat> [*+?] | \{\s* (?P<low>[0-9]+) \s* (?P<more>,)? \s* (?P<high>[0-9]+)? \s*\} )
    | (?P<open> \( ) | (?P<close> \) ) | (?P<alternative> \| )
    """,
    re.VERBOSE | re.DOTALL,
)
_EMPTY: Final = ('""', "[]", "[^]")

# A symbol is the name of a rule, or None for characters.
Symbol = str | None
Rules = dict[str, list[list[Symbol]]]


class _Parsed(NamedTuple):
    """Groups and repetitions are rules of their own; `n_copies` has how often llama.cpp writes one of them."""

    rules: Rules
    n_copies: dict[str, int]


@functools.lru_cache(maxsize=32)
def check(source: str) -> None:
    """Nothing happens where llama.cpp can read the grammar.

    Raises:
        UsageError: it cannot be read, or llama.cpp would not survive or not finish reading or using it.
    """
    rules, n_copies = _parsed(source)
    nullable = _closure(rules, terminals=False)
    edges: dict[str, list[tuple[str, bool]]] = {
        name: [edge for sequence in alternatives for edge in _first_rules(sequence, nullable, rules)]
        for name, alternatives in rules.items()
    }
    n_steps: dict[str, int] = {}
    depth: dict[str, int] = {}
    for component in _components(edges):
        members = set(component)
        if any(grows and target in members for name in component for target, grows in edges[name]):
            raise _invalid(f"left recursion in the rule {_shown(component)}")
        targets = [target for name in component for target, _ in edges[name] if target not in members]
        steps = len(component) + sum(n_steps[target] for target in targets)
        copies = max(n_copies.get(name, 1) for name in component)
        for name in component:
            n_steps[name] = min(steps * copies, _MAX_STEPS + 1)
            depth[name] = len(component) + copies - 1 + max((depth[target] for target in targets), default=0)
    if sum(n_steps.values()) > _MAX_STEPS or max(depth.values(), default=0) > _MAX_FIRST_SYMBOLS:
        raise UsageError(
            "The grammar is too involved: its rules begin with each other in too many ways.",
            hint="Let alternatives differ in their first characters, and repeat less.",
        )


def endless_rule(source: str, root: str) -> str | None:
    """The name of a rule behind `root` that no text can complete: each of its alternatives contains it again."""
    rules = _parsed(source).rules
    finite = _closure(rules, terminals=True)
    reached, ready = {root}, [root]
    while ready:
        name = ready.pop()
        if name in rules and name not in finite:
            return name
        for symbol in (symbol for sequence in rules.get(name, ()) for symbol in sequence):
            if symbol is not None and symbol not in reached:
                reached.add(symbol)
                ready.append(symbol)
    return None


def _parsed(source: str) -> _Parsed:
    parser = _Parser()
    place = 0
    while place < len(source):
        match = _TOKEN.match(source, place)
        if match is None:
            rest = source[place : place + 30]
            raise _invalid("unexpected end of input" if rest[0] in '"[<{' else f"unexpected text at {rest!r}")
        parser.take(match)
        place = match.end()
    parser.finish()
    return _Parsed(parser.rules, parser.n_copies)


class _Parser:
    """Takes a grammar token by token. `_open` are the rules that are being read: a rule and the groups in it."""

    def __init__(self) -> None:
        self.rules: Rules = {}
        self.n_copies: dict[str, int] = {}
        self._open: list[list[list[Symbol]]] = []
        # The symbol that a repetition would repeat, and its length; 0: there is none.
        self._last_length = 0
        self._n_written = 0
        self._n_generated = 0

    def take(self, match: re.Match[str]) -> None:
        kind, text = match.lastgroup, match[0]
        if match["define"]:
            self.finish()
            self._open = [[[]]]
            self.rules[match["define"]] = self._open[0]
            self._last_length = 0
        elif kind != "space":
            if not self._open:
                raise _invalid(f"expecting a rule at {text[:30]!r}")
            self._take_part(match, text)

    def _take_part(self, match: re.Match[str], text: str) -> None:
        """What stands in a rule."""
        kind = match.lastgroup
        if match["repeat"]:
            self._repeat(match)
        elif kind == "open":
            if len(self._open) > _MAX_GROUPS:
                raise _invalid(f"more than {_MAX_GROUPS} groups are inside each other")
            self._open.append([[]])
        elif kind == "close":
            if len(self._open) < 2:
                raise _invalid("a parenthesis is closed that was not opened")
            self._symbol(self._generated(self._open.pop()))
        elif kind == "alternative":
            self._open[-1].append([])
            self._last_length = 0
        elif kind == "name":
            self._symbol(text)
        elif text in _EMPTY:
            self._last_length = 0
        else:
            self._symbol(None, len(text))

    def finish(self) -> None:
        """The rule so far has ended."""
        if len(self._open) > 1:
            raise _invalid("expecting ')'; a parenthesis is not closed")

    def _symbol(self, symbol: Symbol, length: int = 1) -> None:
        self._open[-1][-1].append(symbol)
        self._last_length = length

    def _generated(self, alternatives: list[list[Symbol]], n_copies: int = 1) -> str:
        self._n_generated += 1
        name = f" {self._n_generated}"  # no name in a grammar has a space
        self.rules[name] = alternatives
        self.n_copies[name] = n_copies
        return name

    def _repeat(self, match: re.Match[str]) -> None:
        """As llama.cpp does: so many times the symbol, then a rule for the rest."""
        if not self._last_length:
            raise _invalid(f"expecting preceding item to {match[0]}")
        low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(match[0]) or _counts(match)
        n_optional = 1 if high is None else max(high - low, 0)
        self._n_written += max(low, n_optional) * (self._last_length + _SYMBOLS_OF_A_RULE)
        if self._n_written > _MAX_WRITTEN_OUT:
            raise _invalid("it repeats too much, too often")
        sequence = self._open[-1][-1]
        symbol = sequence[-1]
        if low == 0:
            sequence.pop()
        if n_optional:
            rest = self._generated([[symbol], []], n_optional)
            if high is None:
                self.rules[rest][0].append(rest)
            sequence.append(rest)
        self._last_length = max(low, 1) * self._last_length if sequence else 0


def _counts(match: re.Match[str]) -> tuple[int, int | None]:
    if max(len(match["low"]), len(match["high"] or "")) > 9:
        raise _invalid(f"{match[0][:30]} repeats too often")
    low = int(match["low"])
    if match["high"]:
        return low, int(match["high"])
    return low, None if match["more"] else low


def _closure(rules: Rules, *, terminals: bool) -> set[str]:
    """The rules with an alternative all of whose symbols are such rules, or characters where `terminals`.

    Without terminals: those that may be empty. With: those that can end. Unknown rules count as characters.
    """
    waiting: dict[str, list[tuple[str, list[int]]]] = defaultdict(list)
    found: set[str] = set()
    ready: list[str] = []
    for name, alternatives in rules.items():
        for sequence in alternatives:
            inner = [symbol for symbol in sequence if symbol is not None and symbol in rules]
            if len(inner) < len(sequence) and not terminals:
                continue
            missing = [len(inner)]
            for symbol in inner:
                waiting[symbol].append((name, missing))
            if not inner:
                ready.append(name)
    while ready:
        name = ready.pop()
        if name in found:
            continue
        found.add(name)
        for user, missing in waiting[name]:
            missing[0] -= 1
            if missing[0] == 0:
                ready.append(user)
    return found


def _first_rules(sequence: list[Symbol], nullable: set[str], rules: Rules) -> Iterable[tuple[str, bool]]:
    """The rules that may stand first in the sequence, each with whether something follows it."""
    for place, symbol in enumerate(sequence):
        if symbol is None or symbol not in rules:
            return
        yield symbol, place + 1 < len(sequence)
        if symbol not in nullable:
            return


def _components(edges: dict[str, list[tuple[str, bool]]]) -> Iterable[list[str]]:
    """The strongly connected components, each after all that it leads to (Tarjan's algorithm, without recursion)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    for root, first in edges.items():
        if root in index:
            continue
        work = [(root, iter(first))]
        while work:
            name, targets = work[-1]
            if name not in index:
                index[name] = low[name] = len(index)
                stack.append(name)
                on_stack.add(name)
            for target, _ in targets:
                if target not in index:
                    work.append((target, iter(edges[target])))
                    break
                if target in on_stack:
                    low[name] = min(low[name], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == index[name]:
                    place = _last_place(stack, name)
                    component = stack[place:]
                    del stack[place:]
                    on_stack.difference_update(component)
                    yield component


def _last_place(stack: list[str], name: str) -> int:
    return next(place for place in range(len(stack) - 1, -1, -1) if stack[place] == name)


def _shown(component: list[str]) -> str:
    return min((name for name in component if " " not in name), default="of a group")


def _invalid(reason: str) -> UsageError:
    return UsageError(
        f"The grammar is not valid: {reason}.",
        hint="GBNF needs a rule named root; see grammars/README.md of llama.cpp.",
    )
