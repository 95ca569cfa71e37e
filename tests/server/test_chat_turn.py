"""The grammar of an answer that comes after reasoning: what llama.cpp lets through it, character by character."""

from __future__ import annotations

import ctypes
import math

import pytest

from localspec.llama.model import Model
from localspec.server.chat_turn import _answer_after
from localspec.server.reasoning import CHANNELS, Reasoning

pytestmark = pytest.mark.native

TAGS = Reasoning("<think>", "</think>")
WRAPPED = Reasoning("<think>", "</think>", ("<response>", "</response>"))
ANSWER = 'answer ::= "{}"\n'


def is_allowed(model: Model, grammar: str, text: str) -> bool:
    """Whether the whole text is a reply by the grammar. Tokens of the tiny vocabulary are bytes."""
    import llama_cpp

    sampler = llama_cpp.llama_sampler_init_grammar(model.vocab_handle, grammar.encode(), b"root")
    assert sampler
    try:
        for token in (*model.tokenize(text, add_special=False, parse_special=False), 257):  # 257 ends the reply
            data = llama_cpp.llama_token_data(id=token, logit=1.0, p=0.0)
            candidates = llama_cpp.llama_token_data_array(data=ctypes.pointer(data), size=1, selected=-1, sorted=False)
            llama_cpp.llama_sampler_apply(sampler, ctypes.byref(candidates))
            if math.isinf(candidates.data[0].logit):
                return False
            if token != 257:
                llama_cpp.llama_sampler_accept(sampler, token)
        return True
    finally:
        llama_cpp.llama_sampler_free(sampler)


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
    assert is_allowed(target, _answer_after(reasoning, is_open) + ANSWER, text) == expected
