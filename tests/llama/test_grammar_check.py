"""Grammars that llama.cpp would not survive are refused before it reads them; the others are not."""

from __future__ import annotations

import pytest

from localspec.errors import UsageError
from localspec.llama.grammar import grammar_sampler
from localspec.llama.grammar_check import check, endless_rule
from localspec.llama.model import Model
from tests.llama.grammar_process import GrammarProcess
from tests.server.grammar_probe import GrammarProbe

pytestmark = pytest.mark.native


def forks(n: int) -> str:
    """2^n ways through the first symbols of n rules."""
    lines = (f'{a}{i} ::= a{i + 1} "{a}" | b{i + 1} "x"' for i in range(n) for a in "ab")
    return "\n".join(["root ::= a0", *lines, f'a{n} ::= "q"', f'b{n} ::= "r"'])


HOSTILE = {
    "deep groups": ("root ::= " + "(" * 400_000 + '"x"' + ")" * 400_000, "500 groups"),
    "open groups": ("root ::= " + "(" * 100_000, "500 groups"),
    "a rule before itself": (
        'root ::= a\na ::= b a "z" | "x"\nb ::= c c\nc ::= "y" | ""',
        "left recursion in the rule a",
    ),
    "a group before itself": ('root ::= ("a"? root)* "b"', "left recursion"),
    "many ways": (forks(40), "too involved"),
    "a long chain": (
        "\n".join(["root ::= a0", *(f"a{i} ::= a{i + 1}" for i in range(40_000)), 'a40000 ::= "x"']),
        "involved",
    ),
    "much repeated": (f'root ::= "{"x" * 100_000}"{{2000}}', "repeats too much"),
    "repeated in turns": (
        "\n".join(f'root{"" if i == 0 else i} ::= "x"{{0,2000}}' for i in range(3_000)),
        "repeats too much",
    ),
    "giant counts": ('root ::= "x"{' + "9" * 5_000 + "}", "repeats too often"),
    "a count beyond 64 bits": ('root ::= "x"{0,' + "9" * 40 + "}", "repeats too often"),
    "an open literal": ('root ::= "' + "x" * 900_000, "unexpected end"),
    "an open class": ("root ::= [" + "x" * 900_000, "unexpected end"),
}


@pytest.mark.parametrize(("source", "message"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_grammar_is_an_error(grammar_process: GrammarProcess, source: str, message: str):
    assert message in grammar_process.outcome(grammar=source)


FINE = {
    "nested repetitions": ('root ::= (("a"* | "b"*) "c"?)* "d"', ["d", "aabcd"]),
    "recursion to the right": ('root ::= "a" root | "b"', ["b", "aab"]),
    "recursion in the middle": ('root ::= "(" root ")" | ""', ["", "(())"]),
    "optional rules first": ('root ::= a? b\na ::= "a"\nb ::= "b" root?', ["b", "abab"]),
    "counts": ('root ::= "ab"{2} [c]{1,2} ("d"{0,1}){0} "e"{ 1 , }', ["ababce", "ababccee"]),
    "comments and lines": ('# first\nroot ::= # then\n  "a" | # or\n  "b" # end\n\n# last', ["a", "b"]),
    "groups over lines": ('root ::= (\n  "a"\n  | "b" # or\n)\nother ::= "c"\n', ["a", "b"]),
    "escapes": (r'root ::= "\"\\\x41\u00e9\U0001F600" [\]\[^\-"]' + "\n", ['"\\Aé😀]', '"\\Aé😀-']),
    "empty parts": ('root ::= "" "a" | [] "b"', ["a", "b"]),
    "a class with a bracket and a quote": (r'root ::= ["|(\]] "x"', ['"x', "|x", "(x", "]x"]),
    "names with digits and dashes": ('root ::= a-1 x2\na-1 ::= "a"\nx2 ::= .', ["ab", "aé"]),
    "a rule written twice": ('root ::= "a"\nroot ::= "b"', ["b"]),
    "a token": ("root ::= <|start|> [a]", []),
}


@pytest.mark.parametrize(("source", "texts"), FINE.values(), ids=FINE)
def test_other_grammars_are_llama_cpps(target: Model, source: str, texts: list[str]):
    check(source)
    if texts:
        with GrammarProbe(target, source) as grammar:
            assert [text for text in texts if not grammar.allows(text)] == []


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ('root ::= ("a"', "parenthesis is not closed"),
        ('root ::= "a")', "not opened"),
        ("root ::= *", "preceding item"),
        ('"a"', "expecting a rule"),
        ('root ::= "a" ; "b"', "unexpected text at '; "),
        ('root ::= "\\q"', "unknown escape"),
        ("root ::= other", "Undefined rule identifier 'other'"),
        ('root ::= root "a"', "left recursion"),
        ("root ::= root", "left recursion"),
        ('start ::= "a"', "root"),
        ('root ::= "a"{3000}', "reduce the number of repetitions"),
    ],
)
def test_what_is_wrong_is_said(target: Model, source: str, words: str):
    with pytest.raises(UsageError, match="grammar is not valid") as error:
        grammar_sampler(target, source)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("source", "endless"),
    [
        ('root ::= "a" root', "root"),
        ('root ::= "a" | "b" x\nx ::= [a-z] x', "x"),
        ('root ::= "a" x\nx ::= ("b" x)*', None),
        ('root ::= "a"\nx ::= "b" x', None),  # nobody comes there
        ('root ::= "a" x y\nx ::= "b" | x', None),
    ],
)
def test_rules_without_end_are_found(source: str, endless: str | None):
    assert endless_rule(source, "root") == endless
