"""What is read of a chunk: text, the end, and numbers of three kinds of server; nothing that is not there."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import EndpointAnswerError
from localspec.remote.chunks import Chunk, Progress, Reported, read_chunk
from tests.remote.server import chunk

TIMINGS = {"cache_n": 24, "prompt_n": 12, "predicted_n": 30, "predicted_per_second": 41.5, "prompt_ms": 3.0}


def read(answer: Any) -> Chunk:
    return read_chunk(json.dumps(answer), "http://server")


@pytest.mark.parametrize(
    ("delta", "text", "reasoning"),
    [
        ({"role": "assistant", "content": None}, "", ""),
        ({"content": "word"}, "word", ""),
        ({"reasoning_content": "hm"}, "", "hm"),
        ({"reasoning": "hm", "content": ""}, "", "hm"),
        ({"refusal": "no"}, "no", ""),
        ({"content": "half \ud83d of a sign"}, "half \N{REPLACEMENT CHARACTER} of a sign", ""),
        ({}, "", ""),
        (None, "", ""),
    ],
)
def test_text_and_reasoning(delta: dict[str, Any] | None, text: str, reasoning: str) -> None:
    seen = read(chunk(delta=delta))
    assert (seen.text, seen.reasoning) == (text, reasoning)


def test_only_the_first_reply_counts() -> None:
    choices = [{"index": 1, "delta": {"content": "other"}}, {"index": 0, "delta": {"content": "ours"}}]
    assert read({"choices": choices}).text == "ours"


def test_a_chunk_without_numbers_reports_none() -> None:
    assert read(chunk("word")).reported == Reported()
    assert read({"choices": [], "usage": None, "timings": [], "metrics": {"speculative_decoding": None}}) == Chunk()


def test_openai_reports_tokens_and_nothing_of_drafts() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 3}}
    # Predicted outputs are something else than drafts.
    usage["completion_tokens_details"] = {"accepted_prediction_tokens": 2, "rejected_prediction_tokens": 5}
    assert read({"choices": [], "usage": usage}).reported == Reported(9, 3, 4)


def test_llama_cpp_reports_speed_and_drafts_if_there_were_any() -> None:
    plain = Reported(n_prompt_tokens=36, n_cached_tokens=24, n_tokens=30, tokens_per_second=41.5)
    assert read({"timings": TIMINGS}).reported == plain
    drafted = read({"timings": TIMINGS | {"draft_n": 20, "draft_n_accepted": 15}}).reported
    assert drafted == plain.updated(Reported(n_drafted=20, n_accepted=15))


def test_vllm_reports_drafts_beside_usage() -> None:
    drafts = {"num_spec_steps": 43, "num_accepted_draft_tokens": 10, "num_draft_tokens": 129, "num_spec_tokens": 3}
    answer = {"usage": {"prompt_tokens": 9, "completion_tokens": 53}, "metrics": {"speculative_decoding": drafts}}
    assert read(answer).reported == Reported(9, None, 53, 129, 10, 43)


@pytest.mark.parametrize(
    "timings",
    [
        {"draft_n": 5},
        {"draft_n": 5, "draft_n_accepted": 6},
        {"draft_n": -1, "draft_n_accepted": -1},
        {"draft_n": True, "draft_n_accepted": False},
        {"draft_n": "5", "draft_n_accepted": "4"},
        {"draft_n": 5.5, "draft_n_accepted": 4},
        {"draft_n": 10**30, "draft_n_accepted": 4},
        {"predicted_per_second": math.nan},
        {"predicted_per_second": math.inf},
        {"predicted_per_second": 10**400},
        {"predicted_per_second": 0},
        {"predicted_per_second": True},
        {"predicted_n": None, "prompt_n": 4},
    ],
)
def test_numbers_that_cannot_be_are_not_reported(timings: dict[str, Any]) -> None:
    assert read({"timings": timings}).reported == Reported()


def test_what_is_not_repeated_stays_known() -> None:
    before = Reported(n_prompt_tokens=9, n_tokens=1)
    assert before.updated(Reported(n_tokens=2)) == Reported(n_prompt_tokens=9, n_tokens=2)


def test_the_reading_of_a_prompt() -> None:
    progress = {"total": 40, "cache": 8, "processed": 24, "time_ms": 5}
    assert read(chunk(prompt_progress=progress)).progress == Progress(24, 40, 8)
    assert read(chunk(prompt_progress={"total": 4, "processed": 24})).progress is None


@pytest.mark.parametrize(
    "data",
    ["", "no json", "[1]", "7", '{"choices": 7}', '{"choices": [7]}', "[" * 100_000, '{"choices": [{"delta": 7}]}'],
)
def test_what_is_no_chunk_is_refused(data: str) -> None:
    with pytest.raises(EndpointAnswerError, match="http://server streams"):
        read_chunk(data, "http://server")


@pytest.mark.parametrize("content", [7, {"a": 1}, [{"type": "text", "text": "x"}]])
def test_text_of_another_form_is_refused_and_not_guessed_at(content: Any) -> None:
    with pytest.raises(EndpointAnswerError, match="text in another form"):
        read(chunk(delta={"content": content}))


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
NAMES = ["choices", "delta", "index", "content", "reasoning", "usage", "timings", "metrics", "draft_n", "error"]
CHUNKS = st.recursive(JSON, lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(NAMES), inner))


@given(CHUNKS)
def test_no_json_is_more_than_a_chunk_that_cannot_be_used(answer: Any) -> None:
    try:
        seen = read(answer)
    except EndpointAnswerError:
        return
    assert isinstance(seen.text, str)
    assert isinstance(seen.reasoning, str)
