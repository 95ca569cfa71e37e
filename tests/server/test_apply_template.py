"""POST /apply-template over a scripted engine."""

from __future__ import annotations

import json
from typing import Any

import pytest

from localspec.engine.questions import AnswerValue, Question, Render
from tests.server.native_endpoint import native_endpoint

WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}


async def test_a_chat_becomes_the_text_that_the_template_makes_of_it() -> None:
    async with native_endpoint() as endpoint:
        body = {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}]}
        exchange = await endpoint.post("/apply-template", body)
    assert exchange.json == {"prompt": "<system>s<user>hi<assistant>"}
    assert not endpoint.engine.requests


async def test_what_llama_vscode_sends_with_tools() -> None:
    body = {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"role": "assistant", "content": None, "tool_calls": [_call("weather", "{}")]},
            {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        ],
        "model": "qwen",
        "tools": [WEATHER],
        "tool_choice": "auto",
    }
    rendered: list[Render] = []

    def answer(question: Question) -> AnswerValue:
        assert isinstance(question, Render)
        rendered.append(question)
        return "text"

    async with native_endpoint(answers=answer) as endpoint:
        exchange = await endpoint.post("/apply-template", raw=json.dumps(body).encode())
    assert exchange.json == {"prompt": "text"}
    said = repr(rendered[-1].prompt)
    for part in ("hi", "weather", "sunny"):
        assert part in said


def _call(name: str, arguments: str) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "x"}, "messages"),
        ({"messages": [{"role": "user", "content": "x"}], "nope": 1}, "nope"),
    ],
)
async def test_what_is_no_chat_is_refused(body: dict[str, Any], param: str) -> None:
    async with native_endpoint() as endpoint:
        exchange = await endpoint.post("/apply-template", body)
    assert (exchange.status, exchange.error["param"]) == (400, param)


async def test_a_picture_is_refused() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    async with native_endpoint() as endpoint:
        exchange = await endpoint.post("/apply-template", {"messages": [{"role": "user", "content": [picture]}]})
    assert exchange.status == 400
    assert not endpoint.engine.questions
