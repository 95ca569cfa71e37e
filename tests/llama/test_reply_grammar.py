"""Grammars that sleep: free until a trigger, then bound from the trigger's place on, however the tokens lie."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localspec.errors import UsageError
from localspec.llama.model import Model
from localspec.llama.sampler import SamplerChain
from localspec.llama.sampling_params import SamplingParams
from tests.tiny_models import EOS, write_tiny_model

pytestmark = pytest.mark.native

# Tokens in which triggers and the ends of passages begin, lie and end, and none of which is cut the same way.
WORDS = ("<call", "call>", "l>1", "ll>12", "<call>1", "x<call>", ">x", "1x", "23", "</think>", "ink><call>1", "<think")
MARK = "[TOOL_CALLS]"
EOS_ID, MARK_ID = 257, 259 + len(WORDS)
FREE = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
CALL = 'root ::= "<call>" [0-9] [0-9] [0-9]'
TRIGGER = "(<call>[0-9]{0,3})"


@pytest.fixture(scope="module")
def wordy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    with Model(
        write_tiny_model(tmp_path_factory.mktemp("words") / "words.gguf", words=WORDS, controls=(MARK,))
    ) as model:
        yield model


def chain(model: Model, **params: object) -> SamplerChain:
    return SamplerChain(model, SamplingParams(**{**FREE, **params}), n_ctx=64, seed=1)


def allowed(sampler: SamplerChain, model: Model) -> set[int]:
    return set(sampler.distribution(np.zeros(model.n_vocab, np.float32)).ids.tolist())


def text_of(model: Model, token: int) -> bytes:
    return model.token_bytes(token, special=True)


def start_of_call(text: bytes) -> int | None:
    """Where a call begins that the text ends with."""
    match = re.search(rb"<call>[0-9]{0,3}\Z", text)
    return match.start() if match else None


def is_begun(call: bytes) -> bool:
    """Whether it is a beginning of what the grammar says."""
    return b"<call>".startswith(call) or re.fullmatch(rb"<call>[0-9]{0,3}", call) is not None


def after(call: bytes, model: Model) -> set[int]:
    """The tokens that may follow a call's beginning."""
    if len(call) == 9:
        return {EOS_ID}
    return {token for token in range(model.n_vocab) if token != EOS_ID and is_begun(call + text_of(model, token))}


def answer_in(text: bytes, passage: tuple[str, str] | None) -> bytes:
    """The text after the passage in which no trigger counts; b"" where it is not over."""
    if passage is None:
        return text
    opening, closing = (each.encode() for each in passage)
    if opening and opening.startswith(text.lstrip()):
        return b""
    if not text.lstrip().startswith(opening):
        return text
    return text.partition(closing)[2]


tokens_about_calls = st.one_of(
    st.sampled_from([*range(259, 259 + len(WORDS)), *b"<cal>123x \n", MARK_ID, 258]), st.integers(0, 255)
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    start=st.sampled_from([b"", b"<think>", b" <think>a", b"<think><call>1</think>", b"<thin", b"text "]),
    tokens=st.lists(tokens_about_calls, max_size=14),
    passage=st.sampled_from([None, ("<think>", "</think>"), ("", "</think>")]),
    seed=st.integers(0, 99),
)
def test_any_text_is_free_until_a_trigger_and_bound_from_its_place_on(
    wordy: Model, start: bytes, tokens: list[int], passage: tuple[str, str] | None, seed: int
):
    """And a copy of the state, made at any place over any other state, does the same from there on."""
    params = {"grammar": CALL, "grammar_triggers": (TRIGGER,), "grammar_passes_over": passage}
    everything, choose = set(range(wordy.n_vocab)), random.Random(seed)
    text, call = b"", None
    with chain(wordy, **params) as committed, chain(wordy, **params) as ahead:
        for token in [*start, *tokens]:
            expected = everything if call is None else after(call, wordy)
            assert allowed(committed, wordy) == expected
            ahead.copy_state_from(committed)
            assert allowed(ahead, wordy) == expected
            for _ in range(3):  # a draft that is thrown away
                drafted = choose.choice(sorted(allowed(ahead, wordy)))
                if drafted == EOS_ID:
                    break
                ahead.accept(drafted)
            if call is not None:
                if expected == {EOS_ID}:
                    break
                token = token if token in expected else min(expected)  # noqa: PLW2901
            committed.accept(token)
            text += text_of(wordy, token)
            if call is not None:
                call += text_of(wordy, token)
            else:
                answer = answer_in(text, passage)
                place = start_of_call(answer)
                call = None if place is None else answer[place:]
        ahead.copy_state_from(committed)
        assert allowed(ahead, wordy) == allowed(committed, wordy)


SPELLINGS = {
    "byte by byte": [*b"so <call>"],
    "one token": [*b"so ", "x<call>"],
    "from the middle of a token": ["x<call>"],
    "to the middle of a token": [*b"<ca", "l", "l>1"],
    "over three tokens": ["<call", *b">"],
    "with what follows": ["<call>1", "23"],
    "in both": [*b"<ca", "ll>12"],
    "after another beginning": ["<call", "<call", *b">"],
    "after one that is none": ["<call", ">x", "<call", *b">"],
}


@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS)
def test_however_the_trigger_lies_in_the_tokens(wordy: Model, spelling: list[int | str]):
    ids = [259 + WORDS.index(each) if isinstance(each, str) and len(each) > 1 else each for each in spelling]
    tokens = [ord(each) if isinstance(each, str) else each for each in ids]
    text = b"".join(text_of(wordy, token) for token in tokens)
    with chain(wordy, grammar=CALL, grammar_triggers=(TRIGGER,)) as sampler:
        for token in tokens[:-1]:
            sampler.accept(token)
        if spelling != SPELLINGS["with what follows"]:
            assert EOS_ID in allowed(sampler, wordy), "asleep"
        sampler.accept(tokens[-1])
        place = start_of_call(text)
        assert place is not None
        assert allowed(sampler, wordy) == after(text[place:], wordy)


def test_reasoning_never_wakes_it(wordy: Model):
    params = {"grammar": CALL, "grammar_triggers": (TRIGGER,), "grammar_passes_over": ("<think>", "</think>")}
    with chain(wordy, **params) as sampler:
        for byte in b"\n<think>I could <call>123, or <call></thin <call>1":
            sampler.accept(byte)
            assert EOS_ID in allowed(sampler, wordy)
        for byte in b"</think> so <call>":
            sampler.accept(byte)
        assert allowed(sampler, wordy) == after(b"<call>", wordy)


def test_one_token_may_end_the_reasoning_and_begin_the_call(wordy: Model):
    params = {"grammar": CALL, "grammar_triggers": (TRIGGER,), "grammar_passes_over": ("", "</think>")}
    with chain(wordy, **params) as sampler:
        for token in [*b"a <call>1 </th", 259 + WORDS.index("ink><call>1")]:
            assert EOS_ID in allowed(sampler, wordy)
            sampler.accept(token)
        assert allowed(sampler, wordy) == after(b"<call>1", wordy)


def test_a_control_token_is_a_trigger(wordy: Model):
    trigger = f"({re.escape(MARK)})"
    with chain(wordy, grammar=f'root ::= "{MARK}" "x"', grammar_triggers=(trigger,)) as sampler:
        for token in [*b"some text", MARK_ID]:
            assert EOS_ID in allowed(sampler, wordy)
            sampler.accept(token)
        assert allowed(sampler, wordy) == {ord("x")}


def test_what_is_before_the_group_is_not_part_of_the_grammar(wordy: Model):
    """And a trigger without a group is part of it as a whole; several triggers wake the same grammar."""
    params = {"grammar": 'root ::= "b" "c" | "def"', "grammar_triggers": ("a(b)", "de")}
    for text, follows in ((b"zab", {ord("c")}), (b"zde", {ord("f")})):
        with chain(wordy, **params) as sampler:
            for byte in text:
                assert EOS_ID in allowed(sampler, wordy)
                sampler.accept(byte)
            assert allowed(sampler, wordy) == follows


def test_triggers_far_into_a_reply_are_found(wordy: Model):
    with chain(wordy, grammar=CALL, grammar_triggers=(TRIGGER,)) as sampler:
        for byte in b"so far <cal no call. " * 400 + b"<call>":
            sampler.accept(byte)
        assert allowed(sampler, wordy) == after(b"<call>", wordy)


def test_characters_of_several_bytes_before_and_in_the_trigger(wordy: Model):
    with chain(wordy, grammar='root ::= "é" [a-z]', grammar_triggers=("ä(é)",)) as sampler:
        for byte in "öäé".encode():
            sampler.accept(byte)
        assert allowed(sampler, wordy) == set(range(ord("a"), ord("z") + 1))


def test_a_copy_forgets_that_it_was_awake_and_wakes_up_again(wordy: Model):
    params = {"grammar": CALL, "grammar_triggers": (TRIGGER,)}
    with chain(wordy, **params) as asleep, chain(wordy, **params) as other:
        for byte in b"<cal":
            asleep.accept(byte)
        for _ in range(3):
            other.copy_state_from(asleep)
            assert EOS_ID in allowed(other, wordy)
            other.accept(259 + WORDS.index("l>1"))
            assert allowed(other, wordy) == after(b"<call>1", wordy)
        assert EOS_ID in allowed(asleep, wordy)


@pytest.mark.parametrize("trigger", ["(", "[", "a**", "(" * 5_000 + ")" * 5_000, "\\"])
def test_a_trigger_that_is_no_expression_is_refused(wordy: Model, trigger: str):
    with pytest.raises(UsageError, match="trigger is not a regular expression"):
        chain(wordy, grammar=CALL, grammar_triggers=(trigger,))


def test_a_wrong_grammar_is_refused_while_it_sleeps(wordy: Model):
    with pytest.raises(UsageError, match="not valid"):
        chain(wordy, grammar="root ::= nothing", grammar_triggers=(TRIGGER,))


def test_the_end_of_the_reply_is_no_text(wordy: Model):
    with chain(wordy, grammar=CALL, grammar_triggers=(f"{re.escape(EOS)}(<call>)",)) as sampler:
        for byte in b"<call>":
            sampler.accept(byte)
        assert EOS_ID in allowed(sampler, wordy)
