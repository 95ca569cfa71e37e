"""Grammars in replies that are drafted: the draft changes nothing, asleep, awake and across the trigger."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from localspec.engine.events import Finished
from localspec.engine.loader import LoadedPair
from localspec.engine.requests import Mode, SamplingParams
from tests.engine.conftest import InProcessEngine, end_of, raw, text_of, tokens_of
from tests.native_fixtures import TinyModels

pytestmark = pytest.mark.native

GREEDY = SamplingParams(temperature=0.0)
PROMPTS = ("The quick brown fox", "abcabcabc", "{}", "one two three")
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 8},
            "n": {"type": "array", "items": {"type": "integer"}},
        },
        "required": ["name", "n"],
    }
)


@pytest.fixture(params=["draft", "stranger"])
def speculating(request: pytest.FixtureRequest, load: Callable[..., LoadedPair], tiny_models: TinyModels) -> Any:
    """With a draft that mostly agrees, and with one whose tokens are all rejected."""
    return InProcessEngine(load(tiny_models.target, getattr(tiny_models, request.param)))


def assert_same_in_all_modes(engine: InProcessEngine, prompt: str, sampling: SamplingParams) -> str:
    plain = engine.run(raw(prompt, mode=Mode.PLAIN, max_tokens=60, sampling=sampling))
    assert isinstance(end_of(plain), Finished)
    for fields in (
        {"mode": Mode.DRAFT, "fixed_length": True, "num_speculative_tokens": 5},
        {"mode": Mode.LOOKUP, "fixed_length": True, "num_speculative_tokens": 3},
        {"mode": Mode.AUTO},
    ):
        assert tokens_of(engine.run(raw(prompt, max_tokens=60, sampling=sampling, **fields))) == tokens_of(plain), (
            fields
        )
    return text_of(plain)


@pytest.mark.parametrize("prompt", PROMPTS)
def test_an_awake_grammar(speculating: InProcessEngine, prompt: str):
    grammar = 'root ::= ( "ab" [c-f]{2} "-"? )+ "." '
    text = assert_same_in_all_modes(speculating, prompt, SamplingParams(temperature=0.0, grammar=grammar))
    assert re.match(r"(ab[c-f]{2}-?)+", text)


@pytest.mark.parametrize("prompt", PROMPTS)
def test_a_json_schema(speculating: InProcessEngine, prompt: str):
    sampling = SamplingParams(temperature=0.0, json_schema=SCHEMA)
    assert re.match(r'\{\s*"', assert_same_in_all_modes(speculating, prompt, sampling))


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("place", [0, 7, 20])
def test_a_grammar_that_wakes_up_in_the_reply(speculating: InProcessEngine, prompt: str, place: int):
    """Its trigger is what the model says anyway, so drafts reach over it."""
    free = speculating.run(raw(prompt, mode=Mode.PLAIN, max_tokens=40, sampling=GREEDY))
    model = speculating.pair.target.model
    said = b"".join(model.token_bytes(token) for token in tokens_of(free)[: place + 2])[-2:].decode("latin-1")
    # The trigger is of bytes, which Latin-1 spells; those above ASCII are left open.
    trigger = "".join(re.escape(char) if char.isascii() else "[\\x80-\\xff]" for char in said)
    sampling = SamplingParams(
        temperature=0.0, grammar='root ::= [0-9]{4} "." [x-z]{30}', grammar_triggers=(f"{trigger}()",)
    )
    assert re.search(r"[0-9]{4}\.[x-z]{30}\Z", assert_same_in_all_modes(speculating, prompt, sampling))


def test_reasoning_that_is_passed_over(speculating: InProcessEngine):
    """The trigger is said in the passage, which does not end."""
    free = text_of(speculating.run(raw(mode=Mode.PLAIN, max_tokens=60, sampling=GREEDY)))
    trigger = re.search(r"[!-~]", free)
    assert trigger is not None
    sampling = SamplingParams(
        temperature=0.0,
        grammar='root ::= [!-~] "x"{20}',
        grammar_triggers=(f"({re.escape(trigger[0])})",),
        grammar_passes_over=("", "</think>"),
    )
    assert assert_same_in_all_modes(speculating, "The quick brown fox", sampling) == free
