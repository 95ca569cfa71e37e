"""Replies from a server as events: in order, with one end, and with what the server tells."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from localspec.engine.events import (
    Cancelled,
    Failed,
    Finished,
    FinishReason,
    Prefilling,
    Queued,
    RequestEvent,
    StepDecoded,
)
from localspec.engine.requests import Mode, SamplingParams
from localspec.errors import EngineError
from tests.remote.conftest import Client, text_of
from tests.remote.server import Answer, FakeServer, chunk, event, refusal, reply

Clients = Callable[..., Client]

TIMINGS = {
    "cache_n": 0,
    "prompt_n": 9,
    "predicted_n": 3,
    "predicted_per_second": 40.0,
    "draft_n": 4,
    "draft_n_accepted": 1,
}


def finished(events: list[RequestEvent]) -> Finished:
    assert isinstance(events[-1], Finished), events[-1]
    return events[-1]


def test_a_reply_from_its_first_event_to_its_last(server: FakeServer, client: Client) -> None:
    server.answers = [reply("Hello", " the", "re", usage={"prompt_tokens": 9, "completion_tokens": 4})]
    request = client.submit()
    events = client.rest()
    assert [type(each) for each in events] == [Queued, StepDecoded, StepDecoded, StepDecoded, Finished]
    assert {each.request_id for each in events} == {request.request_id}
    assert text_of(events) == "Hello there"
    last = finished(events)
    assert (last.reason, last.metrics.n_prompt_tokens, last.metrics.n_tokens) == (FinishReason.STOP, 9, 4)
    assert last.metrics.ttft_s is not None
    assert last.metrics.draft_acceptance_rate is None


def test_steps_are_not_made_up(client: Client) -> None:
    steps = [each.step for each in client.ask() if isinstance(each, StepDecoded)]
    assert steps
    assert not any(step.tokens or step.n_draft for step in steps)


def test_llama_servers_numbers(server: FakeServer, client_of: Clients) -> None:
    server.speaks_llama_cpp()
    progress = {"total": 9, "cache": 0, "processed": 4, "time_ms": 1}
    server.answers = [
        Answer(
            [
                event(chunk(prompt_progress=progress)),
                event(chunk("a", timings=TIMINGS | {"predicted_n": 1})),
                event(chunk("b", timings=TIMINGS)),
                event(chunk(reason="stop", timings=TIMINGS)),
                event("[DONE]"),
            ]
        )
    ]
    client = client_of()
    client.load()
    events = client.ask()
    assert [each.n_done for each in events if isinstance(each, Prefilling)] == [4]
    metrics = finished(events).metrics
    assert metrics.tokens_per_second == 40.0
    assert metrics.draft_acceptance_rate == 0.25
    body = server.chats[0].body
    assert body["timings_per_token"] is True
    assert body["return_progress"] is True


def test_vllms_numbers(server: FakeServer, client_of: Clients) -> None:
    server.models = [{"id": "m", "owned_by": "vllm"}]
    drafts = {"num_spec_steps": 4, "num_accepted_draft_tokens": 6, "num_draft_tokens": 12}
    usage = {"prompt_tokens": 9, "completion_tokens": 10}
    server.answers = [reply("a", "b", usage=usage, metrics={"speculative_decoding": drafts})]
    client = client_of()
    client.load()
    metrics = finished(client.ask()).metrics
    assert (metrics.draft_acceptance_rate, metrics.mean_acceptance_length) == (0.5, 2.5)
    assert server.chats[0].body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_thoughts_are_told_from_the_reply(server: FakeServer, client: Client, name: str) -> None:
    server.answers = [Answer([event(chunk(delta={name: "hm"})), *reply("yes").pieces])]
    events = client.ask()
    assert (text_of(events, reasoning=True), text_of(events)) == ("hm", "yes")


def test_only_what_the_user_has_set_is_sent(server: FakeServer, client_of: Clients) -> None:
    client = client_of(sampling_names={"temperature", "top_k", "seed", "logit_bias"})
    client.load()
    client.ask(
        sampling=SamplingParams(temperature=0.3, top_k=7, top_p=0.5, logit_bias=((5, -float("inf")), (6, 1.5))),
        stop=("END",),
        max_tokens=5,
    )
    body = server.chats[0].body
    assert body == {
        "model": "a-model",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.3,
        "top_k": 7,
        "logit_bias": {"5": -100.0, "6": 1.5},
        "max_tokens": 5,
        "stop": ["END"],
    }


def test_a_schema_goes_by_openais_name(server: FakeServer, client_of: Clients) -> None:
    client = client_of(sampling_names={"json_schema"})
    client.load()
    client.ask(sampling=SamplingParams(json_schema='{"type": "object"}'))
    form = server.chats[0].body["response_format"]
    assert form == {"type": "json_schema", "json_schema": {"name": "reply", "schema": {"type": "object"}}}
    assert isinstance(client.ask(sampling=SamplingParams(json_schema="{"))[-1], Failed)


def test_modes_are_for_localspec_only(server: FakeServer, client_of: Clients) -> None:
    client = client_of()
    client.load()
    client.ask(mode=Mode.PLAIN)
    assert "localspec" not in server.chats[-1].body
    server.speaks_localspec()
    client.load()
    client.ask(mode=Mode.LOOKUP, num_speculative_tokens=3)
    assert server.chats[-1].body["localspec"] == {"mode": "lookup", "num_speculative_tokens": 3}
    client.ask(mode=Mode.PLAIN)
    assert server.chats[-1].body["localspec"] == {"mode": "plain"}


@pytest.mark.parametrize("status", [400, 422])
def test_a_server_that_refuses_an_extra_by_name_is_asked_without_it(
    server: FakeServer, client: Client, status: int
) -> None:
    server.answers = [refusal(status, "Unknown parameter: 'stream_options'."), reply("yes")]
    assert text_of(client.ask()) == "yes"
    assert "stream_options" not in server.chats[1].body
    client.ask()
    assert len(server.chats) == 3  # it is not asked for it again
    assert "stream_options" not in server.chats[2].body


def test_a_limit_goes_by_the_name_that_the_server_knows(server: FakeServer, client: Client) -> None:
    said = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    server.answers = [refusal(400, said), reply("yes")]
    assert text_of(client.ask(max_tokens=9)) == "yes"
    assert server.chats[1].body["max_completion_tokens"] == 9
    assert "max_tokens" not in server.chats[1].body
    client.ask(max_tokens=7)
    assert server.chats[2].body["max_completion_tokens"] == 7


def test_a_server_that_refuses_for_ever_is_not_asked_for_ever(server: FakeServer, client: Client) -> None:
    server.answers = [refusal(400, "I dislike stream_options, max_completion_tokens and you")] * 9
    assert isinstance(client.ask(max_tokens=9)[-1], Failed)
    assert len(server.chats) == 3


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("stop", FinishReason.STOP),
        ("eos", FinishReason.STOP),
        ("tool_calls", FinishReason.STOP),
        ("length", FinishReason.LENGTH),
    ],
)
def test_why_a_reply_ended(server: FakeServer, client: Client, said: str, reason: FinishReason) -> None:
    server.answers = [Answer([event(chunk("x")), event(chunk(reason=said)), event("[DONE]")])]
    assert finished(client.ask()).reason is reason


def test_a_full_context_is_told_from_a_limit(server: FakeServer, client_of: Clients) -> None:
    server.speaks_llama_cpp()
    usage = {"prompt_tokens": 500, "completion_tokens": 12}
    full = Answer([event(chunk("x")), event(chunk(reason="length", usage=usage)), event("[DONE]")])
    client = client_of()
    client.load()
    server.answers = [full, full]
    assert finished(client.ask()).reason is FinishReason.CONTEXT_FULL
    assert finished(client.ask(max_tokens=12)).reason is FinishReason.LENGTH


@pytest.mark.parametrize(
    "pieces",
    [
        [event(chunk("x")), event("[DONE]")],  # no reason
        [event(chunk("x")), event(chunk(reason="stop"))],  # no [DONE]
        [event(chunk("x")), event(chunk(reason="stop")).rstrip()],  # not even an empty line
        [event(chunk("x")), event(chunk(reason="stop")), b"<garbage>\n\n"],
        [b": ping\n\n" * 3, event(chunk("x")), b"data:\n\n", event(chunk(reason="stop")), event("[DONE]")],
    ],
)
def test_ends_of_streams_as_servers_make_them(server: FakeServer, client: Client, pieces: list[bytes]) -> None:
    server.answers = [Answer(pieces)]
    events = client.ask()
    assert text_of(events) == "x"
    assert finished(events).reason is FinishReason.STOP


def test_a_connection_that_breaks_after_the_last_word_costs_nothing(server: FakeServer, client: Client) -> None:
    server.answers = [Answer([event(chunk("x")), event(chunk(reason="stop"))], resets=True)]
    assert finished(client.ask()).reason is FinishReason.STOP


def test_numbers_that_never_come_are_not_waited_for_long(
    server: FakeServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localspec.remote.reply._FAREWELL_S", 0.1)
    server.answers = [Answer([event(chunk("x")), event(chunk(reason="stop"))], holds=True)]
    assert finished(client.ask()).reason is FinishReason.STOP
    assert server.left.wait(5)


def test_cancelling_closes_the_stream_at_once(server: FakeServer, client: Client) -> None:
    server.answers = [Answer([event(chunk("word"))], holds=True)]
    request = client.submit()
    while not isinstance(client.next(), StepDecoded):
        pass
    started = time.monotonic()
    client.engine.cancel(request.request_id)
    (last,) = client.rest()
    assert isinstance(last, Cancelled)
    assert last.metrics.ttft_s is not None
    assert server.left.wait(5)
    assert time.monotonic() - started < 2


def test_cancelling_before_an_answer(server: FakeServer, client: Client) -> None:
    server.answers = [Answer(holds=True, raw=True)]
    request = client.submit()
    while not server.chats:
        time.sleep(0.01)
    client.engine.cancel(request.request_id)
    assert isinstance(client.rest()[-1], Cancelled)
    assert server.left.wait(5)


def test_cancelling_before_anything_was_sent(client: Client) -> None:
    """Both reach the engine's thread at once."""
    for _ in range(20):
        client.engine.cancel(client.submit().request_id)
        assert isinstance(client.rest()[-1], Cancelled | Finished)


def test_cancelling_what_is_over_or_unknown_does_nothing(client: Client) -> None:
    request = client.submit()
    client.rest()
    client.engine.cancel(request.request_id)
    client.engine.cancel("nobody")
    assert isinstance(client.ask()[-1], Finished)


def test_closing_ends_what_is_open(server: FakeServer, client: Client) -> None:
    server.answers = [Answer([event(chunk("word"))], holds=True)]
    client.submit()
    while not isinstance(client.next(), StepDecoded):
        pass
    client.engine.close()
    assert isinstance(client.rest()[-1], Cancelled)
    assert server.left.wait(5)
    client.engine.close()
    with pytest.raises(EngineError):
        client.submit()
    client.engine.cancel("nobody")


def test_closing_from_a_listener(server: FakeServer, client: Client) -> None:
    done = threading.Event()

    def listen(each: RequestEvent) -> None:
        if isinstance(each, Finished):
            client.engine.close()
            done.set()

    request = client.submit()
    client.rest()
    client.engine.submit(type(request)(request.prompt), listen)
    assert done.wait(10)


def test_a_listener_that_fails_harms_nobody_else(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    def fail(each: RequestEvent) -> None:
        raise ValueError("mine")

    request = client.submit()
    client.rest()
    client.engine.submit(type(request)(request.prompt), fail)
    assert isinstance(client.ask()[-1], Finished)
    assert "A listener failed" in caplog.text


def test_two_replies_at_once(server: FakeServer, client: Client) -> None:
    server.answers = [Answer([event(chunk("slow"))], holds=True), reply("fast")]
    slow = client.submit()
    while not isinstance(client.next(), StepDecoded):
        pass
    fast = client.submit()
    assert isinstance(client.rest()[-1], Finished)
    client.engine.cancel(slow.request_id)
    last = client.rest()[-1]
    assert isinstance(last, Cancelled)
    assert last.request_id == slow.request_id != fast.request_id


def test_text_beyond_ascii_goes_both_ways(server: FakeServer, client: Client) -> None:
    server.answers = [reply("Grüße 🙂", " 漢字")]
    assert text_of(client.ask("Ärger \ud83d 漢")) == "Grüße 🙂 漢字"
    assert server.chats[0].body["messages"][0]["content"] == "Ärger ? 漢"
