"""Replies that go wrong: each way is an error that names the server and says what to do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from localspec.engine.events import Failed, Finished
from localspec.errors import (
    ContextFullError,
    EndpointAnswerError,
    EndpointError,
    EndpointRefusedError,
    EndpointUnreachableError,
)
from localspec.remote.connection import Patience
from tests.remote.conftest import Client, text_of
from tests.remote.server import Answer, FakeServer, chunk, event, json_answer, refusal

Clients = Callable[..., Client]


@pytest.mark.parametrize(
    ("answer", "status", "in_message", "in_hint"),
    [
        (refusal(400, "temperature is -1"), 400, "status 400 (Bad Request): temperature is -1.", "objects to"),
        (refusal(401, "no key"), 401, "no key", "LOCALSPEC_ENDPOINT_KEY"),
        (refusal(403, "not you"), 403, "not you", "LOCALSPEC_ENDPOINT_KEY"),
        (refusal(404, "The model `x` does not exist"), 404, "does not exist", "--model"),
        (refusal(404, "Not Found"), 404, "Not Found", "/v1"),
        (refusal(413, "too large"), 413, "too large", "new one"),
        (json_answer({"error": {"message": "slow"}}, 429, Retry_After="7"), 429, "slow", "Try again in 7 s."),
        (json_answer({"error": {"message": "slow"}}, 429, Retry_After="Wed, 21 Oct"), 429, "slow", "in a moment"),
        (refusal(500, "cuda"), 500, "cuda", "log"),
        (refusal(503, "busy"), 503, "busy", "in a moment"),
        (Answer([b"<html>Bad Gateway</html>"], 502, {"Content-Type": "text/html"}), 502, "(Bad Gateway).", "log"),
        (Answer([b"upstream is gone"], 502, {}), 502, "upstream is gone", "log"),
        (Answer([], 599, {}), 599, "status 599.", "log"),
        (json_answer({"error": "a text, as Ollama sends"}, 404), 404, "as Ollama sends", "/v1"),
        (json_answer({"detail": [{"loc": ["body", "n"], "msg": "bad"}]}, 422), 422, '"msg": "bad"', "objects"),
        (json_answer({"object": "error", "message": "old vLLM", "code": 400}, 400), 400, "old vLLM", "objects"),
        (json_answer({"message": "neither"}, 400), 400, "neither", "objects"),
    ],
)
def test_refusals(
    server: FakeServer, client: Client, answer: Answer, status: int, in_message: str, in_hint: str
) -> None:
    server.answers = [answer]
    error = client.error()
    assert isinstance(error, EndpointRefusedError)
    assert error.status == status
    assert error.message.startswith(f"{server.url} answers with status {status}")
    assert in_message in error.message
    assert in_hint in error.hint


def test_what_a_server_says_cannot_steer_a_terminal_nor_fill_it(server: FakeServer, client: Client) -> None:
    server.answers = [refusal(400, "\x1b]0;owned\x07 \u202e line\nline " + "x" * 5000)]
    error = client.error()
    assert error.message.isprintable()
    assert len(error.message) < 500


@pytest.mark.parametrize(
    "error",
    [
        {"message": "too long", "type": "exceed_context_size_error", "n_prompt_tokens": 900, "n_ctx": 512},
        {"message": "too long", "code": "context_length_exceeded"},
        {"message": "This model's maximum context length is 512 tokens. You requested 900."},
    ],
)
def test_a_chat_that_is_too_long_says_so(server: FakeServer, client: Client, error: dict[str, object]) -> None:
    server.answers = [json_answer({"error": error}, 400)]
    failed = client.error()
    assert isinstance(failed, ContextFullError)
    assert "new chat" in failed.hint
    assert failed.n_tokens == error.get("n_prompt_tokens", 0)


@pytest.mark.parametrize(
    "sent",
    [
        event({"error": {"message": "out of memory", "code": 500}}),
        event({"error": "out of memory"}),
        b"event: error\n" + event({"message": "out of memory"}),
        b"event: error\n" + event("out of memory"),
        b'error: {"code": 500, "message": "out of memory"}\n\n',
    ],
)
def test_an_error_in_the_middle_of_a_stream(server: FakeServer, client: Client, sent: bytes) -> None:
    server.answers = [Answer([event(chunk("some ")), event(chunk("text")), sent, event("[DONE]")])]
    events = client.ask()
    last = events[-1]
    assert isinstance(last, Failed)
    assert isinstance(last.error, EndpointRefusedError)
    assert last.error.message == f"{server.url} breaks off with an error: out of memory."
    assert text_of(events) == "some text"  # what was sent before stands


def test_a_filter_that_ends_a_reply(server: FakeServer, client: Client) -> None:
    server.answers = [Answer([event(chunk("some")), event(chunk(reason="content_filter")), event("[DONE]")])]
    assert "filter" in client.error().message


@pytest.mark.parametrize("pieces", [[], [event(chunk("some"))], [event(chunk("some")), b'data: {"choi']])
def test_a_server_that_closes_early(server: FakeServer, client: Client, pieces: list[bytes]) -> None:
    server.answers = [Answer(pieces)]
    error = client.error()
    assert isinstance(error, EndpointError)
    assert server.url in error.message
    assert error.hint


def test_a_connection_that_is_reset(server: FakeServer, client: Client) -> None:
    server.answers = [Answer([event(chunk("some"))], resets=True)]
    events = client.ask()
    last = events[-1]
    assert isinstance(last, Failed)
    assert isinstance(last.error, EndpointUnreachableError)
    assert "broken off" in last.error.message
    assert text_of(events) == "some"


def test_a_body_that_is_shorter_than_it_says(server: FakeServer, client: Client) -> None:
    headers = {"Content-Type": "text/event-stream", "Content-Length": "5000"}
    server.answers = [Answer([event(chunk("some"))], headers=headers)]
    assert isinstance(client.error(), EndpointUnreachableError)


def test_a_server_that_falls_silent(server: FakeServer, client_of: Clients) -> None:
    client = client_of(patience=Patience(silence_s=0.3))
    client.load()
    server.answers = [Answer([event(chunk("some"))], holds=True), Answer(holds=True, raw=True)]
    for _ in range(2):
        error = client.error()
        assert isinstance(error, EndpointUnreachableError)
        assert "0.3 s" in error.message


@pytest.mark.parametrize(
    "piece", [event("no json"), event("[1, 2]"), event({"choices": "text"}), b'{"a": 1}\n', b"data: \xff\xfe\n\n"]
)
def test_malformed_streams(server: FakeServer, client: Client, piece: bytes) -> None:
    server.answers = [Answer([event(chunk("some")), piece])]
    error = client.error()
    assert isinstance(error, EndpointAnswerError)
    assert server.url in error.message
    assert error.message.isprintable()


def test_megabytes_in_one_line_are_not_kept(server: FakeServer, client: Client) -> None:
    server.answers = [Answer([b"data: ", *[b"x" * 65_536] * 64])]
    error = client.error()
    assert isinstance(error, EndpointAnswerError)
    assert "1 MiB" in error.message


def test_a_stream_without_end_is_not_read_for_ever(
    server: FakeServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localspec.remote.connection._MAX_REPLY_BYTES", 1 << 20)
    server.answers = [Answer([event(chunk("word " * 1000))] * 400)]
    error = client.error()
    assert isinstance(error, EndpointAnswerError)
    assert "1 MiB" in error.message


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (json_answer({"choices": [{"message": {"content": "whole"}}]}), "application/json"),
        (Answer([b"<html></html>"], headers={"Content-Type": "text/html"}), "a web page"),
        (Answer([b"hello"], headers={"Content-Type": "text/plain; charset=utf-8"}), "text/plain"),
        (Answer([b"hello"], headers={}), "without a type"),
    ],
)
def test_what_is_no_stream_is_refused(server: FakeServer, client: Client, answer: Answer, said: str) -> None:
    server.answers = [answer]
    error = client.error()
    assert isinstance(error, EndpointAnswerError)
    assert said in error.message
    assert "stream" in error.message


def test_an_error_object_with_a_good_status(server: FakeServer, client: Client) -> None:
    server.answers = [json_answer({"error": {"message": "really not", "code": 429}})]
    error = client.error()
    assert isinstance(error, EndpointRefusedError)
    assert "really not" in error.message


def test_a_packed_stream_is_refused(server: FakeServer, client: Client) -> None:
    """A kilobyte of it may unpack to a gigabyte."""
    headers = {"Content-Type": "text/event-stream", "Content-Encoding": "gzip"}
    server.answers = [Answer([b"\x1f\x8b"], headers=headers)]
    assert "gzip" in client.error().message


def test_what_nobody_has_thought_of_ends_the_reply_and_not_the_engine(
    server: FakeServer, client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr("localspec.remote.reply.read_chunk", fail)
        error = client.error()
    assert isinstance(error, EndpointError)
    assert "ZeroDivisionError" in error.message
    assert "Unexpected" in caplog.text
    assert isinstance(client.ask()[-1], Finished)


def test_the_next_reply_works_after_every_failure(server: FakeServer, client: Client) -> None:
    for answer in [Answer([b"x"], raw=True), refusal(500, "x"), Answer([event("x")]), Answer(resets=True, raw=True)]:
        server.answers = [answer]
        assert client.error().hint
        assert isinstance(client.ask()[-1], Finished)
