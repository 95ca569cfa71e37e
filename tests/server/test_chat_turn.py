"""The grammar of an answer that comes after reasoning: what llama.cpp lets through it, character by character."""

from __future__ import annotations

import pytest

from localspec.llama.model import Model
from localspec.server.chat_turn import _answer_after
from localspec.server.reasoning import CHANNELS, Reasoning
from tests.server.grammar_probe import GrammarProbe

pytestmark = pytest.mark.native

TAGS = Reasoning("<think>", "</think>")
WRAPPED = Reasoning("<think>", "</think>", ("<response>", "</response>"))
ANSWER = 'answer ::= "{}"\n'


@pytest.mark.parametrize(
    ("reasoning", "is_open", "text", "expected"),
    [
        (TAGS, False, "{}", True),
        (TAGS, False, "\n{}", True),
        (TAGS, False, "<think>a < b </thin</think>\n\n{}", True),
        (TAGS, False, "<think></think>{}", True),
        (TAGS, False, "<think>{}", False),
        (TAGS, False, "Sure: {}", False),
        (TAGS, False, "<think>a</think>{}{}", False),
        (TAGS, True, "a</think>{}", True),
        (TAGS, True, "{}", False),
        (TAGS, True, "a</think>b{}", False),
        (WRAPPED, False, "<think>a</think><response>{}</response>", True),
        (WRAPPED, False, "<think>a</think>{}", False),
        (
            CHANNELS,
            False,
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>{}",
            True,
        ),
        (CHANNELS, False, "<|channel|>final<|message|>{}", True),
        (CHANNELS, False, "{}", False),
    ],
)
def test_reasoning_then_the_answer(
    target: Model, reasoning: Reasoning, is_open: bool, text: str, expected: bool
) -> None:
    with GrammarProbe(target, _answer_after(reasoning, is_open) + ANSWER) as grammar:
        assert grammar.allows(text) == expected
