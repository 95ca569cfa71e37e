"""A schema's patterns as grammars: what matches is let through, and what is let through matches."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from localspec.llama.grammar import grammar_source
from localspec.llama.model import Model
from localspec.llama.sampling_params import SamplingParams
from localspec.llama.schema_pattern import UnknownPatternError, pattern_rule
from tests.server.grammar_probe import GrammarProbe

pytestmark = pytest.mark.native

SHARES_MODEL = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=80
)


@contextmanager
def grammar_of(model: Model, pattern: str, **more: int) -> Iterator[GrammarProbe]:
    source = grammar_source(SamplingParams(json_schema=json.dumps({"type": "string", "pattern": pattern, **more})))
    assert source is not None
    with GrammarProbe(model, source) as probe:
        yield probe


CHARS = [*"abz09_- é😀", '"', "\\\\", "\\.", "\\n", "\\t", "\\x41", "\\u00e9", "\\/", "\\$"]
CLASSES = ["[abc]", "[a-z]", "[0-9_]", "[a-]", "[-a]", "[\\]\\\\]", "[é-ü]", '["\\n]', "\\d", "\\w", "\\s", "[\\d_]"]
WIDE = [".", "[^a]", "[^\\d\\n]", "\\D", "\\W", "\\S"]
BOUNDED = ["", "", "?", "{2}", "{1,3}", "{0,2}", "{1,2}?"]
TIMES = [*BOUNDED, "*", "+", "{2,}", "*?"]


def bodies(atoms: list[str], times: list[str]) -> st.SearchStrategy[str]:
    """Expressions without anchors."""

    def sequences(atom: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        part = st.builds("{}{}".format, atom, st.sampled_from(times))
        return st.lists(part, min_size=1, max_size=3).map("".join)

    def groups(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        group = st.builds(
            "({}{})".format, st.sampled_from(["", "?:"]), st.lists(inner, min_size=1, max_size=3).map("|".join)
        )
        return sequences(st.one_of(st.sampled_from(atoms), group))

    return st.recursive(sequences(st.sampled_from(atoms)), groups, max_leaves=5)


@SHARES_MODEL
@given(st.data(), bodies(CHARS + CLASSES, TIMES))
def test_what_matches_is_let_through(target: Model, data: st.DataObject, body: str):
    anywhere = bool(data.draw(st.booleans()))
    text = data.draw(st.from_regex(re.compile(body, re.ASCII), fullmatch=True))
    if anywhere:
        text = data.draw(st.text("ab\n", max_size=2)) + text + data.draw(st.text('é"', max_size=2))
    written = json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
    with grammar_of(target, body if anywhere else f"^({body})$") as grammar:
        assert grammar.allows(written), (body, written)


def is_known(pattern: str) -> bool:
    try:
        pattern_rule(pattern, "json-char")
    except UnknownPatternError:
        return False
    return True


# Walks in repetitions without end may not come out of them.
@SHARES_MODEL
@given(bodies(CHARS + CLASSES + WIDE, BOUNDED), st.sampled_from(["^({})$", "^({})"]), st.integers(0, 99))
def test_what_is_let_through_matches(target: Model, body: str, frame: str, seed: int):
    pattern = frame.format(body)
    assume(is_known(pattern))
    validator = jsonschema_rs.Draft202012Validator({"type": "string", "pattern": pattern})
    choose = random.Random(seed)
    with grammar_of(target, pattern) as grammar:
        for _ in range(4):
            text = grammar.walk(choose)
            assert validator.is_valid(json.loads(text)), (pattern, text)


# Pattern, inner texts that it lets through, and texts that it does not.
CASES: dict[str, tuple[str, list[str], list[str]]] = {
    "anywhere": ("b", ["b", "abc", r"\nb\"", "bb"], ["", "a"]),
    "empty": ("", ["", "a"], []),
    "both ends": ("^b$", ["b"], ["ab", "ba", ""]),
    "alternatives have anchors of their own": ("^a|b$", ["a", "ax", "b", "xb"], ["x", "xa", "bx"]),
    "escapes of JSON": (r'^["\\\n\t/]$', [r"\"", r"\\", r"\n", r"\t", "/"], ['"', "\\", "n", r"\u000a", r"\/"]),
    "controls": (r"^\x01\u001f\v\f\0$", [r"\u0001\u001f\u000b\f\u0000"], [r"\u0001\u001f\u000b\f0"]),
    "backspace, in a class only": (r"^[\b]$", [r"\b"], ["b"]),
    "digits are ASCII": (r"^\d$", ["7"], ["٧", "a"]),
    "space as ECMAScript has it": (r"^\s$", [" ", r"\n", "\u00a0", "\u3000", "\ufeff"], ["a", r"\u001c"]),
    "no space": (r"^\S$", ["a", "é", "\u200b"], [" ", "\u3000", "\u2028"]),
    "a dot is no line end": ("^.$", ["a", "é", "😀", " "], ["", "\u2028", "\u2029", r"\n"]),
    "ranges": ("^[b-dé-ü-]$", ["b", "d", "é", "ö", "-"], ["a", "e", "ý"]),
    "named groups": ("^(?<year>[0-9]{4})$", ["2024"], ["x"]),
    "as many as possible or as few": ("^a*?b+?$", ["b", "aab"], ["a"]),
    "counts": ("^(ab){2,3}$", ["abab", "ababab"], ["ab", "abababab"]),
    "no more than none": ("^ab{0}c{0,0}$", ["a"], ["ab", "ac"]),
    "brackets that are none": ("^]}$", ["]}"], ["]"]),
}


@pytest.mark.parametrize(("pattern", "allowed", "refused"), CASES.values(), ids=CASES)
def test_expressions(target: Model, pattern: str, allowed: list[str], refused: list[str]):
    with grammar_of(target, pattern) as grammar:
        assert [text for text in allowed if not grammar.allows(f'"{text}"')] == []
        assert [text for text in refused if grammar.allows(f'"{text}"')] == []


@pytest.mark.parametrize(
    ("pattern", "low", "high", "lengths"),
    [
        ("^[a-z]+$", 0, 3, {1, 2, 3}),
        ("^[a-z]*$", 2, None, {2, 3, 4, 5}),
        ("^a{2,4}$", 3, 9, {3, 4}),
        ("^.{0,3}$", 1, 2, {1, 2}),
        ("^\\w$", 0, 4, {1}),
        ("^[a-z]{2,}$", 0, 3, {2, 3}),
    ],
)
def test_lengths_of_one_repeated_class(target: Model, pattern: str, low: int, high: int | None, lengths: set[int]):
    more = {"minLength": low} if high is None else {"minLength": low, "maxLength": high}
    with grammar_of(target, pattern, **more) as grammar:
        assert {n for n in range(6) if grammar.allows('"' + "a" * n + '"')} == lengths


@pytest.mark.parametrize(
    "pattern",
    [
        *("(?=a)", "(?!a)", "(?<=a)", "(?<!a)", r"(a)\1", r"\bword\b", r"\p{L}", r"\u{1F600}", r"\cJ", "(?i)a"),
        *(
            "(a",
            "a)",
            "[a",
            "a\\",
            "*a",
            "a**",
            "a{2}{3}",
            "a{3,2}",
            "a{,2}",
            "a{x}",
            "a{",
            "[z-a]",
            "[]",
            "(^a)",
            "(a$)",
        ),
        *(
            r"\x4",
            r"\x+1",
            r"\u12",
            r"\u 12",
            "a^",
            "$a",
            "(?",
            "(?<",
            "(?<a",
            "a{1001}",
            "(a{9}){999}",
            "(a*)*",
            "(a|b?)+",
            "(){2,}",
            "^a{ 2}$",
        ),
        *("(" * 40 + "a" + ")" * 40, "a{" + "9" * 5000 + "}", "\ud800", "a{\u0661}"),
    ],
    ids=lambda pattern: ascii(pattern)[:20],
)
def test_what_grammars_cannot_say_or_is_no_expression(pattern: str):
    with pytest.raises(UnknownPatternError):
        pattern_rule(pattern, "json-char")
