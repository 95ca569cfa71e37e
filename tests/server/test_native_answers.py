"""llama.cpp's answers, from scripted events."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.engine.events import (
    Finished,
    FinishReason,
    Prefilling,
    Queued,
    Step,
    StepDecoded,
    TextSpan,
    TokenChance,
    TokenLogprobs,
)
from localspec.engine.metrics import MetricsRecorder, RequestMetrics
from localspec.engine.requests import GenerateRequest, Mode, RawPrompt, SamplingParams
from localspec.server.generation_settings import generation_settings
from localspec.server.native_answers import NativeReply, pick_fields, piece_text, probabilities
from localspec.speculative.rejection import Origin

REQUEST = GenerateRequest(
    RawPrompt("The capital of France is"),
    SamplingParams(temperature=0.0, logit_bias=((5, -math.inf), (7, 1.5))),
    max_tokens=9,
    stop=("END",),
    request_id="r",
)


def metrics(n_prompt: int, n_tokens: int) -> RequestMetrics:
    recorder = MetricsRecorder()
    recorder.prompt(n_prompt, 2)
    for _ in range(n_tokens):
        recorder.step(
            n_tokens=1,
            n_draft=0,
            n_accepted=0,
            source=None,
            draft_s=0,
            draft_pass_s=0,
            verify_s=0.1,
            judge_s=0,
            step_s=0.1,
        )
    return recorder.snapshot()


def spans(*texts: str) -> tuple[TextSpan, ...]:
    return tuple(TextSpan(text, Origin.TARGET) for text in texts)


def step(text: str, *tokens: int, n: int, logprobs: tuple[TokenLogprobs, ...] = ()) -> StepDecoded:
    did = Step(tokens, (Origin.DRAFT,) * len(tokens), len(tokens), len(tokens) - 1, 0.1)
    return StepDecoded("r", spans(text) if text else (), did, metrics(5, n), logprobs)


def end(reason: FinishReason = FinishReason.STOP, text: str = "", stop: str | None = None, n: int = 4) -> Finished:
    return Finished("r", spans(text) if text else (), reason, metrics(5, n), stop)


def reply(**fields: object) -> NativeReply:
    settings = generation_settings(REQUEST)
    return NativeReply(0, "tiny", "The capital of France is", settings, **fields)  # type: ignore[arg-type]


EVENTS = [
    Queued("r", 77, Mode.AUTO),
    Prefilling("r", 5, 5, 2),
    step(" Paris", 11, 12, n=2),
    step("", 13, n=3),
    step(".\n", 14, n=4),
]


def test_a_whole_answer_has_the_text_and_what_it_was_made_with() -> None:
    whole = reply(returns_tokens=True)
    assert [whole.chunk(event) for event in [*EVENTS, end(text="!")]] == [None] * 6
    answer = whole.answer(end(text="!"))
    assert answer["content"] == " Paris.\n!"
    assert answer["tokens"] == [11, 12, 13, 14]
    assert answer["stop"] is True
    assert (answer["tokens_evaluated"], answer["tokens_predicted"], answer["tokens_cached"]) == (5, 4, 8)
    assert answer["has_new_line"] is True
    assert answer["generation_settings"]["seed"] == 77
    assert answer["generation_settings"]["n_predict"] == 9
    assert answer["generation_settings"]["stop"] == ["END"]
    assert answer["timings"]["predicted_n"] == 4
    assert answer["prompt"] == "The capital of France is"
    assert "completion_probabilities" not in answer
    json.dumps(answer, allow_nan=False)


def test_tokens_are_only_told_when_asked_for() -> None:
    whole = reply()
    for event in EVENTS:
        whole.chunk(event)
    assert whole.answer(end())["tokens"] == []


def test_a_stream_says_every_text_and_token_once() -> None:
    stream = reply(streams=True)
    last = end(text="!")
    chunks = [chunk for event in [*EVENTS, last] if (chunk := stream.chunk(event)) is not None]
    answer = stream.answer(last)
    assert "".join(chunk["content"] for chunk in chunks) + answer["content"] == " Paris.\n!"
    assert [token for chunk in chunks for token in chunk["tokens"]] == [11, 12, 13, 14]
    assert [chunk["stop"] for chunk in chunks] == [False] * 4
    assert [chunk["tokens_predicted"] for chunk in chunks] == [2, 3, 4, 4]
    assert set(chunks[0]) == {
        "index",
        "content",
        "tokens",
        "stop",
        "id_slot",
        "tokens_predicted",
        "tokens_evaluated",
    }
    assert answer["stop"] is True
    assert answer["tokens"] == []
    assert answer["has_new_line"] is True


def test_a_stream_tells_timings_and_progress_when_asked_for() -> None:
    times = iter([10.0, 10.0, 10.5])
    stream = reply(streams=True, tells_timings=True, tells_progress=True, now=lambda: next(times))
    progress = stream.chunk(Prefilling("r", 3, 5, 2))
    assert progress is not None
    assert progress["prompt_progress"] == {"total": 5, "cache": 2, "processed": 3, "time_ms": 0}
    progress = stream.chunk(Prefilling("r", 5, 5, 2))
    assert progress is not None
    assert progress["prompt_progress"] == {"total": 5, "cache": 2, "processed": 5, "time_ms": 500}
    chunk = stream.chunk(step("a", 1, n=1))
    assert chunk is not None
    assert chunk["timings"]["predicted_n"] == 1


@pytest.mark.parametrize(
    ("finished", "stop_type", "word", "truncated"),
    [
        (end(), "eos", "", False),
        (end(stop="END"), "word", "END", False),
        (end(FinishReason.LENGTH), "limit", "", False),
        (end(FinishReason.CONTEXT_FULL), "limit", "", True),
    ],
)
def test_why_a_reply_ended(finished: Finished, stop_type: str, word: str, truncated: bool) -> None:
    answer = reply().answer(finished)
    assert (answer["stop_type"], answer["stopping_word"], answer["truncated"]) == (stop_type, word, truncated)


def test_a_prompt_that_was_only_read_is_in_the_cache_whole() -> None:
    answer = reply().answer(end(FinishReason.LENGTH, n=0))
    assert (answer["content"], answer["tokens_predicted"], answer["tokens_cached"]) == ("", 0, 5)


def test_probabilities_have_llama_cpps_shape_also_where_bytes_are_no_text() -> None:
    euro = TokenChance(3, b" \xe2\x82", -0.5)
    never = TokenChance(4, b"\xac", -math.inf)
    assert probabilities([TokenLogprobs(euro, (euro, never))]) == [
        {
            "id": 3,
            "token": " ",
            "bytes": [32, 226, 130],
            "logprob": -0.5,
            "top_logprobs": [
                {"id": 3, "token": " ", "bytes": [32, 226, 130], "logprob": -0.5},
                {"id": 4, "token": "�", "bytes": [172], "logprob": -3.4028234663852886e38},
            ],
        }
    ]


def test_a_stream_tells_the_probabilities_of_a_step_with_the_step() -> None:
    chance = TokenLogprobs(TokenChance(1, b"a", -0.1), ())
    stream, whole = reply(streams=True), reply()
    event = step("ab", 1, 2, n=2, logprobs=(chance, chance))
    chunk = stream.chunk(event)
    whole.chunk(event)
    assert chunk is not None
    assert len(chunk["completion_probabilities"]) == 2
    assert "completion_probabilities" not in stream.answer(end())
    assert len(whole.answer(end())["completion_probabilities"]) == 2


def test_settings_are_json_also_with_a_forbidden_token() -> None:
    settings = generation_settings(REQUEST)
    assert settings["logit_bias"] == [{"token": 5, "bias": False}, {"token": 7, "bias": 1.5}]
    json.dumps(settings, allow_nan=False)


def test_fields_are_picked_by_path() -> None:
    answer = {"content": "x", "timings": {"prompt_n": 3}, "stop": True}
    assert pick_fields(answer, ["content", "timings/prompt_n", "timings/nope", "nope", "stop/x"]) == {
        "content": "x",
        "timings/prompt_n": 3,
    }
    # What llama.vim asks for when it only warms the cache.
    assert pick_fields(answer, [""]) == {}


@given(st.text(max_size=4), st.binary(max_size=4))
def test_the_text_of_a_piece_is_its_whole_characters(text: str, rest: bytes) -> None:
    assert piece_text(text.encode()) == text
    assert piece_text(text.encode() + rest).startswith(text)
