"""Tool calls that the tiny pair makes over a real socket: noise, but by the grammar."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest

from tests.server.conftest import Served

pytestmark = pytest.mark.native

# Nothing in it can go on without end, as a text could.
SWITCH = {
    "type": "function",
    "function": {
        "name": "switch",
        "description": "Switches a lamp",
        "parameters": {
            "type": "object",
            "properties": {
                "lamp": {"enum": ["hall", "kitchen"]},
                "level": {"type": "integer", "minimum": 0},
                "steps": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
                "colour": {"anyOf": [{"type": "null"}, {"const": "red"}]},
            },
            "required": ["lamp", "level", "steps"],
        },
    },
}
WAIT = {"type": "function", "function": {"name": "wait"}}


@pytest.fixture(scope="module")
def served(serve: Callable[..., Served]) -> Served:
    return serve(n_ctx=8192, n_parallel=2, n_queue=2)


@pytest.fixture
def client(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="any", max_retries=0, timeout=60) as connected:
        yield connected


def called(client: openai.OpenAI, mode: str, **fields: Any) -> list[tuple[str, str]]:
    """Name and arguments of the calls of a stream, put together from its deltas."""
    stream = client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": "Light!"}],
        stream=True,
        max_tokens=400,
        parallel_tool_calls=False,
        extra_body={"localspec": {"mode": mode}},
        **fields,
    )
    calls: list[tuple[str, str]] = []
    ids, reasons = set(), []
    for chunk in stream:
        (choice,) = chunk.choices
        assert not choice.delta.content
        reasons.append(choice.finish_reason)
        for delta in choice.delta.tool_calls or ():
            assert delta.function is not None
            if delta.id:
                assert delta.index == len(calls)
                ids.add(delta.id)
                calls.append((delta.function.name or "", delta.function.arguments or ""))
            else:
                assert delta.function.name is None
                name, arguments = calls[delta.index]
                calls[delta.index] = (name, arguments + (delta.function.arguments or ""))
    assert len(ids) == len(calls)
    assert reasons[-1] == "tool_calls"
    assert set(reasons[:-1]) == {None}
    return calls


def is_right(arguments: dict[str, Any]) -> bool:
    return (
        set(arguments) <= {"lamp", "level", "steps", "colour"}
        and arguments["lamp"] in ("hall", "kitchen")
        and type(arguments["level"]) is int
        and arguments["level"] >= 0
        and 1 <= len(arguments["steps"]) <= 3
        and all(isinstance(step, bool) for step in arguments["steps"])
        and arguments.get("colour") in (None, "red")
    )


def test_a_call_that_is_due_is_the_same_with_and_without_drafts(client: openai.OpenAI) -> None:
    fields = {"tools": [SWITCH, WAIT], "tool_choice": {"type": "function", "function": {"name": "switch"}}}
    plain = called(client, "plain", temperature=0, **fields)
    assert called(client, "draft", temperature=0, **fields) == plain
    ((name, arguments),) = plain
    assert name == "switch"
    assert is_right(json.loads(arguments))


@pytest.mark.parametrize("mode", ["plain", "draft", "lookup", "auto"])
def test_any_call_is_right_at_any_temperature(client: openai.OpenAI, mode: str) -> None:
    for seed in range(5):
        calls = called(client, mode, tools=[SWITCH, WAIT], tool_choice="required", temperature=1.5, seed=seed)
        ((name, arguments),) = calls
        assert is_right(json.loads(arguments)) if name == "switch" else (name, json.loads(arguments)) == ("wait", {})


def test_a_stream_and_a_whole_reply_make_the_same_call(client: openai.OpenAI) -> None:
    fields: dict[str, Any] = {"tools": [SWITCH], "tool_choice": "required", "temperature": 0}
    reply = client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": "Light!"}],
        max_tokens=400,
        parallel_tool_calls=False,
        extra_body={"localspec": {"mode": "draft"}},
        **fields,
    )
    (choice,) = reply.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    made = [(call.function.name, call.function.arguments) for call in choice.message.tool_calls or ()]
    assert made == called(client, "draft", **fields)
