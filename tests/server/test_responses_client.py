"""/v1/responses by the openai client over a real socket, against the tiny pair in its own process."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel

from tests.server.conftest import Served

pytestmark = pytest.mark.native

# The tiny model speaks noise: what it says is decided by grammars, biases and lengths.
GREEDY = {"temperature": 0, "max_output_tokens": 20}
WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"enum": ["Rome", "Oslo"]}, "now": {"type": "boolean"}},
        "required": ["city", "now"],
        "additionalProperties": False,
    },
    "strict": True,
}


class Answer(BaseModel):
    """What a reply has to be."""

    city: Literal["Rome", "Oslo"]
    is_warm: bool


@pytest.fixture(scope="module")
def served(serve: Callable[..., Served]) -> Served:
    return serve(n_ctx=8192, n_parallel=2, n_queue=2)


@pytest.fixture
def client(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="any", max_retries=0, timeout=60) as connected:
        yield connected


def test_a_text_whole_and_streamed(client: openai.OpenAI) -> None:
    whole = client.responses.create(model="tiny", input="Hello", instructions="Be brief.", **GREEDY)
    assert whole.output_text
    assert whole.usage is not None
    assert whole.usage.output_tokens <= 20
    with client.responses.stream(model="tiny", input="Hello", instructions="Be brief.", **GREEDY) as stream:
        events = list(stream)
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == whole.output_text
    assert events[-1].type in ("response.completed", "response.incomplete")
    assert events[-1].response.status == whole.status
    assert events[-1].response.usage is not None
    assert events[-1].response.usage.output_tokens == whole.usage.output_tokens


def test_a_conversation_goes_on(client: openai.OpenAI) -> None:
    turns: list[Any] = [{"role": "user", "content": "Hello"}]
    first = client.responses.create(model="tiny", input=turns, **GREEDY)
    turns += [*first.output, {"role": "user", "content": "And then?"}]
    second = client.responses.create(model="tiny", input=turns, **GREEDY)
    assert second.usage is not None
    assert first.usage is not None
    assert second.usage.input_tokens > first.usage.total_tokens
    assert second.usage.input_tokens_details.cached_tokens > 0


def test_parse(client: openai.OpenAI) -> None:
    for seed in range(3):
        response = client.responses.parse(
            model="tiny", input="Hello", text_format=Answer, max_output_tokens=200, extra_body={"seed": seed}
        )
        assert isinstance(response.output_parsed, Answer)


def test_a_stream_is_parsed_at_its_end(client: openai.OpenAI) -> None:
    with client.responses.stream(model="tiny", input="Hello", text_format=Answer, max_output_tokens=200) as stream:
        final = stream.get_final_response()
    assert isinstance(final.output_parsed, Answer)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "weather"}])
def test_a_call_that_is_due(client: openai.OpenAI, choice: Any) -> None:
    fields: Any = {"model": "tiny", "tools": [WEATHER], "tool_choice": choice, "max_output_tokens": 300}
    fields["parallel_tool_calls"] = False
    with client.responses.stream(input="Weather?", **fields) as stream:
        final = stream.get_final_response()
    (call,) = (item for item in final.output if item.type == "function_call")
    arguments = json.loads(call.arguments)
    assert arguments["city"] in ("Rome", "Oslo")
    assert isinstance(arguments["now"], bool)
    assert call.parsed_arguments == arguments
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "Sunny"}
    for sent_back in (call, call.to_dict(exclude_unset=True)):  # with what the client has parsed
        turns: Any = [{"role": "user", "content": "Weather?"}, sent_back, output]
        answer = client.responses.create(model="tiny", input=turns, tools=[WEATHER], tool_choice="none", **GREEDY)
        assert answer.output_text


def test_logprobs_are_those_of_the_text(client: openai.OpenAI) -> None:
    include: Any = ["message.output_text.logprobs"]
    response = client.responses.create(model="tiny", input="Hello", include=include, top_logprobs=3, **GREEDY)
    message = response.output[0]
    assert message.type == "message"
    text = message.content[0]
    assert text.type == "output_text"
    assert text.logprobs is not None
    written = b"".join(bytes(token.bytes) for token in text.logprobs)
    assert written.decode("utf-8", "replace") == text.text
    assert all(len(token.top_logprobs) == 3 for token in text.logprobs)


def test_errors_are_the_clients_exceptions(client: openai.OpenAI) -> None:
    for is_streamed in (False, True):
        with pytest.raises(openai.BadRequestError) as refused:
            client.responses.create(model="tiny", input="x" * 9000, stream=is_streamed)  # type: ignore[call-overload]
        assert refused.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError, match="keeps no responses"):
        client.responses.create(model="tiny", input="Hello", previous_response_id="resp_1")


def test_a_client_that_closes_its_stream_frees_its_place(client: openai.OpenAI, served: Served) -> None:
    assert served.service is not None
    stream = client.responses.create(
        model="tiny", input="Hello", stream=True, extra_body={"logit_bias": {"257": False}}
    )
    next(iter(stream))
    assert served.service.open_requests
    stream.close()
    deadline = time.monotonic() + 2
    while served.service.open_requests:
        assert time.monotonic() < deadline
        time.sleep(0.005)
