"""The input of a response: which items are read, what they are to the model, and what is refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi.exceptions import RequestValidationError
from openai.types.responses import Response
from pydantic import ValidationError

from localspec.server.errors import RefusedFieldError, _validation_body
from localspec.server.response_prompt import messages_of
from localspec.server.response_request import ResponseRequest

CALL = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "3"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}


def request(**fields: Any) -> ResponseRequest:
    return ResponseRequest.model_validate({"model": "tiny", "input": "Hi", **fields})


def messages(given: Any, instructions: str | None = None) -> list[tuple[str, str, dict[str, Any]]]:
    body = request(input=given, instructions=instructions)
    return [
        (message.role, message.content, dict(message.more)) for message in messages_of(body.input, body.instructions)
    ]


def said(text: str, **fields: Any) -> dict[str, Any]:
    """A message as a response tells it."""
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part], **fields}


def test_text_is_a_turn_of_the_user() -> None:
    assert messages("Hi") == [("user", "Hi", {})]
    assert messages("Hi", "Be brief.") == [("system", "Be brief.", {}), ("user", "Hi", {})]


def test_messages_with_and_without_parts_and_type() -> None:
    parts = [{"type": "input_text", "text": "one"}, {"type": "input_text", "text": "two"}]
    given = [{"role": "user", "content": parts}, said("three"), {"type": "message", "role": "user", "content": "four"}]
    assert messages(given) == [("user", "one\ntwo", {}), ("assistant", "three", {}), ("user", "four", {})]
    refusal = [{"type": "refusal", "refusal": "No."}]
    assert messages([{"role": "assistant", "content": refusal}]) == [("assistant", "No.", {})]


def test_instructions_and_leading_messages_are_one_system_turn() -> None:
    given = [
        {"role": "developer", "content": "b"},
        {"role": "system", "content": "c"},
        {"role": "user", "content": "d"},
    ]
    assert messages(given, "a") == [("system", "a\n\nb\n\nc", {}), ("user", "d", {})]
    later = [{"role": "user", "content": "d"}, {"role": "developer", "content": "e"}]
    assert messages(later, "a") == [("system", "a", {}), ("user", "d", {}), ("system", "e", {})]


def test_what_one_reply_said_is_one_turn() -> None:
    given = [{"role": "user", "content": "1+2?"}, REASONING, said("Let me add."), CALL, {**CALL, "call_id": "c2"}]
    call = {"type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    more = {"reasoning_content": "Hm.", "tool_calls": [{"id": "c1", **call}, {"id": "c2", **call}]}
    assert messages(given) == [("user", "1+2?", {}), ("assistant", "Let me add.", more)]


def test_outputs_answer_their_calls_by_name() -> None:
    parts = [{"type": "input_text", "text": "4"}]
    second = {**CALL, "call_id": "c2", "name": "mul"}
    turns = messages([CALL, second, OUTPUT, {**OUTPUT, "call_id": "c2", "output": parts}, said("Done.")])
    assert [turn[0] for turn in turns] == ["assistant", "tool", "tool", "assistant"]
    assert turns[1] == ("tool", "3", {"tool_call_id": "c1", "name": "add"})
    assert turns[2] == ("tool", "4", {"tool_call_id": "c2", "name": "mul"})
    # Calls and outputs in pairs are a turn each.
    assert [turn[0] for turn in messages([CALL, OUTPUT, second, {**OUTPUT, "call_id": "c2"}])] == [
        "assistant",
        "tool",
        "assistant",
        "tool",
    ]


def test_replies_in_a_row_stay_apart() -> None:
    assert [turn[1] for turn in messages([said("one"), said("two")])] == ["one", "two"]
    turns = messages([CALL, said("text after a call")])
    assert [(role, content) for role, content, _ in turns] == [("assistant", ""), ("assistant", "text after a call")]


def test_reasoning_that_only_another_server_can_read_says_nothing() -> None:
    summary = [{"type": "summary_text", "text": "It thought."}]
    foreign = {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "gAAA", "content": None}
    assert messages([foreign, said("two")]) == [("assistant", "two", {})]


def test_an_output_without_its_call_is_refused() -> None:
    with pytest.raises(RefusedFieldError, match='"c1", which no item before it makes') as caught:
        messages([{"role": "user", "content": "Hi"}, OUTPUT, CALL])
    assert caught.value.param == "input.1"


def refusal(**fields: Any) -> dict[str, Any]:
    """The error object of a body that is not valid."""
    with pytest.raises(ValidationError) as caught:
        request(**fields)
    errors = [{**each, "loc": ("body", *each["loc"])} for each in caught.value.errors()]
    error: dict[str, Any] = _validation_body(RequestValidationError(errors).errors())["error"]
    return error


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"input": []}, "input", "at least 1"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input.0", "keeps no items"),
        ({"input": [{"type": "web_search_call", "id": "x"}]}, "input.0", "web_search_call are not supported"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input.0.role", "'user'"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, None, "input_image"),
        ({"input": [{"role": "user", "content": "x", "colour": "red"}]}, "input.0.colour", "not supported"),
        ({"input": [{**CALL, "namespace": "n"}]}, "input.0.namespace", "not supported"),
        ({"input": [{"type": "function_call", "name": "f", "arguments": ""}]}, "input.0.call_id", "missing"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format.type", "'json_schema'"),
        ({"text": {"verbosity": "low"}}, "text.verbosity", "'medium'"),
        ({"background": True}, "background", "False"),
        ({"truncation": "auto"}, "truncation", "'disabled'"),
        ({"service_tier": "flex"}, "service_tier", "'auto'"),
        ({"include": ["file_search_call.results"]}, "include.0", "message.output_text.logprobs"),
        ({"top_logprobs": 21}, "top_logprobs", "20"),
        ({"max_output_tokens": 0}, "max_output_tokens", "1"),
        ({"reasoning": {"summary": "detailed"}}, "reasoning.summary", "'auto'"),
        ({"reasoning": {"mode": "pro"}}, "reasoning.mode", "not supported"),
        ({"context_management": []}, "context_management", "not supported"),
        ({"moderation": {"model": "m"}}, "moderation", "not supported"),
        ({"metadata": {"k" * 65: "v"}}, None, "64"),
        ({"max_tokens": 3}, "max_tokens", "not supported"),
        ({"messages": []}, "messages", "not supported"),
        ({"n": 2}, "n", "not supported"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(fields: dict[str, Any], param: str | None, words: str) -> None:
    error = refusal(**fields)
    assert error["type"] == "invalid_request_error"
    assert words in error["message"]
    if param is not None:
        assert error["param"] == param


@pytest.mark.parametrize("name", ["previous_response_id", "conversation", "prompt"])
def test_what_would_have_to_be_kept_is_refused(name: str) -> None:
    with pytest.raises(RefusedFieldError, match=f"{name} is not supported") as caught:
        request(**{name: {"id": "x"}}).refuse_what_is_kept()
    assert caught.value.param == name
    assert "in" in caught.value.hint
    request(**{name: None}).refuse_what_is_kept()


def test_nulls_and_fields_that_ask_for_nothing_are_accepted() -> None:
    body = request(
        store=True,
        background=False,
        truncation="disabled",
        service_tier="auto",
        include=["reasoning.encrypted_content"],
        text={"format": None, "verbosity": "medium"},
        reasoning={"effort": "low", "summary": "auto"},
        tools=None,
        metadata=None,
        temperature=None,
    )
    assert body.n_logprobs is None
    assert body.echo()["store"] is False


def test_logprobs_are_asked_for_in_two_ways() -> None:
    assert request().n_logprobs is None
    assert request(top_logprobs=0).n_logprobs is None
    assert request(top_logprobs=3).n_logprobs == 3
    assert request(include=["message.output_text.logprobs"]).n_logprobs == 0
    assert request(include=["message.output_text.logprobs"], top_logprobs=2).n_logprobs == 2


def test_the_schema_of_the_text() -> None:
    assert request().json_schema_of_text() is None
    assert request(text={"format": {"type": "text"}}).json_schema_of_text() is None
    assert request(text={"format": {"type": "json_object"}}).json_schema_of_text() == {"type": "object"}
    form = {"type": "json_schema", "name": "answer", "schema": {"type": "array"}, "strict": True}
    body = request(text={"format": form})
    assert body.json_schema_of_text() == {"type": "array"}
    assert body.echo()["text"]["format"] == form
    with pytest.raises(RefusedFieldError, match="schema is missing"):
        request(text={"format": {"type": "json_schema", "name": "answer"}}).json_schema_of_text()


def test_what_a_response_repeats_of_its_request_has_openais_types() -> None:
    tool = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True, "description": None}
    body = request(
        tools=[tool], tool_choice={"type": "function", "name": "f"}, metadata={"a": "b"}, user="me", top_logprobs=2
    )
    head = {"id": "resp_1", "object": "response", "created_at": 1, "model": "tiny", "output": [], "status": "completed"}
    response = Response.model_validate({**head, **body.echo(), "temperature": 0.8, "top_p": 1.0})
    assert response.metadata == {"a": "b"}
    assert response.tools[0].name == "f"  # type: ignore[union-attr]
    json.dumps(body.echo())
