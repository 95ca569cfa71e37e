"""The events of a response against OpenAI's own types and the accumulators of its client."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from localspec.server.response_events import Event, ResponseEvents, new_id

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
HEAD = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "tiny",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}
USAGE = {
    "input_tokens": 3,
    "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 2},
    "output_tokens": 2,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 5,
}
LOGPROB = {"token": "a", "bytes": [97], "logprob": -0.5, "top_logprobs": []}

# What a reply says: (kind, text). Arguments come only after a call.
SAYINGS = st.lists(
    st.one_of(
        st.tuples(st.just("text"), st.text(max_size=3)),
        st.tuples(st.just("reasoning"), st.text(max_size=3)),
        st.tuples(st.just("call"), st.lists(st.text(max_size=3), max_size=3)),
    ),
    max_size=8,
)


def say(events: ResponseEvents, kind: str, what: Any) -> list[Event]:
    if kind == "text":
        return events.text(what)
    if kind == "reasoning":
        return events.reasoning(what)
    told = events.call(new_id("call"), "f")
    for piece in what:
        told += events.arguments(piece)
    return told


def play(sayings: list[tuple[str, Any]], *, is_cut: bool = False) -> tuple[list[Event], dict[str, Any]]:
    events = ResponseEvents(HEAD)
    told = events.start()
    for kind, what in sayings:
        told += say(events, kind, what)
    told += events.end(usage=USAGE, more={"timings": {}}, is_cut=is_cut)
    return told, events.response


def expected_items(sayings: list[tuple[str, Any]]) -> list[tuple[str, str]]:
    items: list[tuple[str, str]] = []
    for kind, what in sayings:
        if kind == "call":
            items.append(("function_call", "".join(what)))
        elif what:
            of_item = "message" if kind == "text" else "reasoning"
            if items and items[-1][0] == of_item:
                items[-1] = (of_item, items[-1][1] + what)
            else:
                items.append((of_item, what))
    return items


def items_of(response: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (item["type"], item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"])
        for item in response["output"]
    ]


@given(SAYINGS, st.booleans())
def test_openais_client_gathers_what_was_said(sayings: list[tuple[str, Any]], is_cut: bool) -> None:
    told, response = play(sayings, is_cut=is_cut)
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    state: ResponseStreamState[None] = ResponseStreamState(input_tools=omit, text_format=omit)
    for event in told:
        parsed = EVENT.validate_python(event)
        assert parsed.type == event["type"]
        state.handle_event(parsed)
    Response.model_validate(response)
    items = expected_items(sayings)
    if not is_cut and not {"message", "function_call"} & {kind for kind, _ in items}:
        items.append(("message", ""))  # an empty reply is an empty text
    assert items_of(response) == items
    assert told[-1]["response"] == response
    assert told[-1]["type"] == ("response.incomplete" if is_cut else "response.completed")
    if not is_cut:
        final = state._completed_response
        assert final is not None
        assert final.output_text == "".join(text for kind, text in items if kind == "message")


@given(SAYINGS)
def test_each_item_opens_grows_and_ends_in_its_turn(sayings: list[tuple[str, Any]]) -> None:
    told, response = play(sayings)
    for index, item in enumerate(response["output"]):
        mine = [event for event in told if event.get("output_index") == index]
        kinds = [event["type"].removeprefix("response.") for event in mine]
        assert kinds[0] == "output_item.added"
        assert kinds[-1] == "output_item.done"
        assert mine[0]["item"]["id"] == mine[-1]["item"]["id"] == item["id"]
        assert mine[-1]["item"] == item
        deltas = "".join(event["delta"] for event in mine if event["type"].endswith(".delta"))
        (whole,) = [event.get("text", event.get("arguments")) for event in mine if _tells_all(event)]
        assert deltas == whole == items_of(response)[index][1]
        assert item["status"] == "completed"
    indexes = [event["output_index"] for event in told if "output_index" in event]
    assert all(later - earlier in (0, 1) for earlier, later in pairwise(indexes))
    assert len({item["id"] for item in response["output"]}) == len(response["output"])


def _tells_all(event: Event) -> bool:
    kind = event["type"]
    return kind.endswith(("_text.done", "arguments.done"))


def test_the_sequence_of_a_plain_text() -> None:
    told, _ = play([("text", "Hel"), ("text", "lo")])
    assert [event["type"] for event in told] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert told[0]["response"]["status"] == "in_progress"
    assert told[0]["response"]["output"] == []
    assert told[2]["item"]["content"] == []  # the part comes with the next event


def test_a_reply_that_was_cut_says_where() -> None:
    told, response = play([("reasoning", "hm"), ("text", "Hel")], is_cut=True)
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert [item["status"] for item in response["output"]] == ["completed", "incomplete"]
    assert told[0]["response"]["incomplete_details"] is None
    assert play([], is_cut=True)[1]["output"] == []


def test_logprobs_come_with_their_text_and_all_together_at_the_end() -> None:
    events = ResponseEvents(HEAD)
    events.start()
    delta = events.text("a", [LOGPROB])[-1]
    assert delta["logprobs"] == [LOGPROB]
    held_back = events.text("", [LOGPROB])  # of a token whose character is not complete
    assert [event["delta"] for event in held_back] == [""]
    told = events.end(usage=USAGE, more={}, is_cut=False)
    assert events.response["output"][0]["content"][0]["logprobs"] == [LOGPROB, LOGPROB]
    assert told[0]["logprobs"] == [LOGPROB, LOGPROB]


@pytest.mark.parametrize("sayings", [[], [("text", "Hel")], [("call", ['{"a'])]])
def test_a_failure_keeps_what_was_said(sayings: list[tuple[str, Any]]) -> None:
    events = ResponseEvents(HEAD)
    told = events.start()
    for kind, what in sayings:
        told += say(events, kind, what)
    told += events.fail(code="server_error", message="The engine failed.")
    for event in told:
        assert EVENT.validate_python(event).type == event["type"]
    assert [event["type"] for event in told[-2:]] == ["error", "response.failed"]
    assert told[-2]["message"] == "The engine failed."
    assert told[-1]["response"]["error"] == {"code": "server_error", "message": "The engine failed."}
    assert items_of(told[-1]["response"]) == expected_items(sayings)
    assert all(item["status"] == "incomplete" for item in told[-1]["response"]["output"])
