"""The openai client over a real socket, against the tiny pair in its own process."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

import openai
import pytest
from openai.types.chat import ChatCompletion
from pydantic import BaseModel

from tests.server.conftest import Served

pytestmark = pytest.mark.native

HELLO = [{"role": "user", "content": "Hello"}]
# The tiny model speaks noise at great speed: long enough to be interrupted.
ENDLESS = {"model": "tiny", "messages": HELLO, "extra_body": {"ignore_eos": True}, "stream": True}


@pytest.fixture(scope="module")
def served(serve: Callable[..., Served]) -> Served:
    return serve(n_ctx=8192, n_parallel=2, n_queue=2)


@pytest.fixture
def client(served: Served) -> Iterator[openai.OpenAI]:
    with connect(served) as connected:
        yield connected


def connect(served: Served, **options: object) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{served.url}/v1", api_key="any", **{"max_retries": 0, "timeout": 60, **options})


def until(holds: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def is_idle(served: Served) -> bool:
    assert served.service is not None
    return not served.service.open_requests


def chat(client: openai.OpenAI, **fields: object) -> ChatCompletion:
    reply = client.chat.completions.create(**{"model": "tiny", "messages": HELLO, "max_tokens": 20, **fields})
    assert isinstance(reply, ChatCompletion)
    return reply


def test_models(client: openai.OpenAI, served: Served) -> None:
    (model,) = client.models.list().data
    assert client.models.retrieve(model.id).id == model.id
    assert model.model_dump()["meta"]["n_ctx"] == 8192
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4o")


def test_a_chat(client: openai.OpenAI) -> None:
    reply = chat(client, extra_body={"ignore_eos": True})
    assert reply.choices[0].finish_reason == "length"
    assert reply.choices[0].message.content
    assert reply.usage is not None
    assert reply.usage.completion_tokens == 20
    assert reply.usage.prompt_tokens > 20
    assert reply.model_dump()["timings"]["predicted_n"] == 20


def test_a_stream_says_what_a_whole_reply_says(client: openai.OpenAI) -> None:
    whole = chat(client, temperature=0, seed=3)
    chunks = list(
        client.chat.completions.create(
            model="tiny",
            messages=HELLO,
            max_tokens=20,
            temperature=0,
            seed=3,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason


def test_a_seed_repeats_all_choices_and_choices_differ(client: openai.OpenAI) -> None:
    # Drafts whose length follows the clock spend random numbers by the clock, too.
    plain = {"seed": 11, "temperature": 1.5, "extra_body": {"localspec": {"mode": "plain"}}}
    once, again = (chat(client, n=2, **plain) for _ in range(2))
    texts = [choice.message.content for choice in once.choices]
    assert texts == [choice.message.content for choice in again.choices]
    assert len(set(texts)) == 2
    # The first choice is what the seed gives by itself.
    assert chat(client, **plain).choices[0].message.content == texts[0]


def test_logprobs_are_those_of_the_text(client: openai.OpenAI) -> None:
    reply = chat(client, logprobs=True, top_logprobs=3, temperature=0)
    told = reply.choices[0].logprobs
    assert told is not None
    assert told.content is not None
    written = b"".join(bytes(token.bytes or []) for token in told.content)
    assert written.decode("utf-8", "replace") == reply.choices[0].message.content
    for token in told.content:
        assert len(token.top_logprobs) == 3
        assert token.logprob == max(other.logprob for other in token.top_logprobs)  # greedy
        assert token.logprob <= 0


def test_a_schema_is_followed(client: openai.OpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"enum": ["x", "y"]}, "b": {"type": "boolean"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    for seed in range(3):
        form = {"type": "json_schema", "json_schema": {"name": "it", "schema": schema, "strict": True}}
        reply = chat(client, response_format=form, max_tokens=200, seed=seed)
        value = json.loads(reply.choices[0].message.content or "")
        assert set(value) == {"a", "b"}
        assert value["a"] in ("x", "y")
        assert value["b"] in (True, False)


class Setting(BaseModel):
    """What a reply has to be."""

    mode: Literal["on", "off"]
    is_kept: bool


def test_a_type_is_parsed_whole_and_streamed(client: openai.OpenAI) -> None:
    fields: Any = {"model": "tiny", "messages": HELLO, "response_format": Setting, "max_tokens": 200}
    for seed in range(3):
        parsed = client.chat.completions.parse(**fields, seed=seed).choices[0].message.parsed
        assert isinstance(parsed, Setting)
        with client.chat.completions.stream(**fields, seed=seed) as stream:
            kinds = {event.type for event in stream}
            final = stream.get_final_completion()
        assert isinstance(final.choices[0].message.parsed, Setting)
        assert {"chunk", "content.delta", "content.done"} <= kinds


SWITCH: Any = {
    "type": "function",
    "function": {
        "name": "switch",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"mode": {"enum": ["on", "off"]}, "is_kept": {"type": "boolean"}},
            "required": ["mode", "is_kept"],
            "additionalProperties": False,
        },
    },
}


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "switch"}}])
def test_a_call_is_made_and_answered_whole_and_streamed(client: openai.OpenAI, choice: Any) -> None:
    fields: Any = {"model": "tiny", "messages": HELLO, "tools": [SWITCH], "tool_choice": choice, "max_tokens": 300}
    fields["parallel_tool_calls"] = False
    whole = client.chat.completions.create(**fields)
    with client.chat.completions.stream(**fields) as stream:
        streamed = stream.get_final_completion()
    before = chat(client, max_tokens=1).usage
    for reply in (whole, streamed):
        assert reply.choices[0].finish_reason == "tool_calls"
        message = reply.choices[0].message
        assert message.tool_calls is not None
        (call,) = message.tool_calls
        assert call.type == "function"
        assert call.function.name == "switch"
        Setting.model_validate_json(call.function.arguments, strict=True)
        counts = set()
        for sent_back in (message, message.model_dump()):  # all keys, and what the client has parsed
            turns: Any = [*HELLO, sent_back, {"role": "tool", "tool_call_id": call.id, "content": "Done"}]
            answer = chat(client, messages=turns, tools=[SWITCH], tool_choice="none", max_tokens=5)
            assert answer.usage is not None
            counts.add(answer.usage.prompt_tokens)
        assert len(counts) == 1, "what was parsed is no part of the prompt"
        assert before is not None
        assert counts.pop() > before.prompt_tokens


def test_a_model_that_writes_refuses_to_embed(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="not made for embeddings") as refused:
        client.embeddings.create(model="tiny", input="Hello")
    assert (refused.value.type, refused.value.code) == ("not_supported_error", "embeddings_not_supported")


def test_stop_strings(client: openai.OpenAI) -> None:
    whole = chat(client, temperature=0).choices[0].message.content or ""
    stopped = chat(client, temperature=0, stop=[whole[5:7], "never"])
    assert stopped.choices[0].finish_reason == "stop"
    assert stopped.choices[0].message.content == whole[: whole.index(whole[5:7])]


def test_biases(client: openai.OpenAI) -> None:
    letter = chat(client, temperature=0, max_tokens=8, logit_bias={"65": 1000}).choices[0].message.content
    assert letter is not None
    assert len(set(letter)) == 1
    banned = chat(client, temperature=0, max_tokens=8, logit_bias={letter[0]: 1000})
    assert banned.choices[0].message.content == letter  # by its text


def test_completions(client: openai.OpenAI) -> None:
    reply = client.completions.create(
        model="tiny", prompt=["Once", "Twice"], max_tokens=5, temperature=0, logprobs=1, echo=False
    )
    assert [choice.index for choice in reply.choices] == [0, 1]
    first = reply.choices[0]
    assert first.logprobs is not None
    assert "".join(first.logprobs.tokens or []) == first.text
    tokens = list(b"Once")
    assert (
        client.completions.create(model="tiny", prompt=tokens, max_tokens=5, temperature=0, echo=True).choices[0].text
    )
    streamed = client.completions.create(model="tiny", prompt="Once", max_tokens=5, temperature=0, stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == first.text


def test_errors_are_the_clients_exceptions(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        chat(client, extra_body={"nonsense": 1})
    assert (refused.value.param, refused.value.code) == ("nonsense", "unknown_parameter")
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model="tiny", prompt="x" * 9000, stream=True)
    assert refused.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError, match="grammar"):
        chat(client, extra_body={"grammar": "root ::= nothing"})


def test_a_client_that_closes_its_stream_frees_its_place(client: openai.OpenAI, served: Served) -> None:
    for _ in range(5):
        stream = client.chat.completions.create(**ENDLESS)
        next(iter(stream))
        assert not is_idle(served)
        stream.close()
        until(lambda: is_idle(served), 2.0)


def test_a_client_that_loses_patience_frees_its_place(served: Served) -> None:
    with connect(served, timeout=0.3) as impatient:
        with pytest.raises(openai.APITimeoutError):
            impatient.chat.completions.create(**{**ENDLESS, "stream": False})
        until(lambda: is_idle(served), 2.0)
        with pytest.raises(openai.APITimeoutError):
            impatient.completions.create(model="tiny", prompt="Once", max_tokens=-1, extra_body={"ignore_eos": True})
        until(lambda: is_idle(served), 2.0)


async def test_one_that_is_cancelled_frees_its_place(served: Served) -> None:
    async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="any", max_retries=0) as client:
        for is_streamed in (True, False):
            asking = asyncio.create_task(client.chat.completions.create(**{**ENDLESS, "stream": is_streamed}))
            while is_idle(served):
                await asyncio.sleep(0.005)
            if is_streamed:
                await (await asking).close()
            else:
                asking.cancel()
            await asyncio.to_thread(until, lambda: is_idle(served), 2.0)


def test_too_many_at_once(client: openai.OpenAI, served: Served) -> None:
    streams = [client.chat.completions.create(**ENDLESS) for _ in range(2)]
    waiting = [threading.Thread(target=lambda: chat(client), daemon=True) for _ in range(2)]
    for thread in waiting:
        thread.start()
    assert served.service is not None
    until(lambda: len(served.service.open_requests) == 4)
    with pytest.raises(openai.RateLimitError) as refused:
        chat(client)
    assert refused.value.code == "queue_full"
    assert int(refused.value.response.headers["retry-after"]) >= 1
    for stream in streams:
        stream.close()
    for thread in waiting:
        thread.join(60)
    until(lambda: is_idle(served))


def test_a_time_limit(serve: Callable[..., Served]) -> None:
    served = serve(n_ctx=8192, request_timeout_s=0.3)
    with connect(served) as client:
        with pytest.raises(openai.InternalServerError) as refused:
            client.chat.completions.create(**{**ENDLESS, "stream": False})
        assert (refused.value.status_code, refused.value.code) == (504, "request_timeout")
        with pytest.raises(openai.APIError, match="longer than"):
            list(client.chat.completions.create(**ENDLESS))
        until(lambda: is_idle(served), 2.0)
        assert chat(client).choices


def test_the_end_of_the_endpoint_ends_its_streams(serve: Callable[..., Served]) -> None:
    served = serve(n_ctx=8192, shutdown_s=0.2)
    with connect(served) as client:
        stream = client.chat.completions.create(**ENDLESS)
        next(iter(stream))
        ending = threading.Thread(target=served.stop)
        ending.start()
        with pytest.raises(openai.APIError, match="shutting down"):
            list(stream)
        ending.join(30)
        assert not ending.is_alive()


def test_an_engine_that_dies_is_started_again(served: Served, client: openai.OpenAI) -> None:
    import psutil

    stream = client.chat.completions.create(**ENDLESS)
    next(iter(stream))
    process_id = served.engine.process_id
    assert process_id is not None
    psutil.Process(process_id).kill()
    with pytest.raises(openai.APIError, match="engine stopped"):
        list(stream)
    until(lambda: is_idle(served), 2.0)
    assert chat(client).choices[0].message.content
    assert served.engine.process_id != process_id
