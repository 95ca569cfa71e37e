"""Responses on the wire: keep-alives, errors in the middle, and clients that go away at any time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest

from localspec.engine.events import Failed
from localspec.errors import ContextFullError, EngineDiedError, UsageError
from localspec.server.app import create_app
from localspec.server.service import EngineService
from localspec.server.settings import ServerSettings
from tests.server.http_client import Exchange, HttpClient
from tests.server.scripted_engine import PAIR, ScriptedEngine, begun, complete, finished, step

CHAT = "/v1/chat/completions"
HELLO = {"messages": [{"role": "user", "content": "Hello"}]}
STREAM = {**HELLO, "stream": True}


async def until_idle(service: EngineService) -> None:
    async with asyncio.timeout(10):
        while service.open_requests:
            await asyncio.sleep(0.001)


async def until_submitted(engine: ScriptedEngine, n_requests: int = 1) -> None:
    async with asyncio.timeout(10):
        while len(engine.requests) < n_requests:
            await asyncio.sleep(0.001)


async def test_silence_is_filled_with_comments(client: HttpClient, engine: ScriptedEngine) -> None:
    exchange = client.start("POST", CHAT, STREAM)
    await exchange.until(b": keep-alive\n\n")
    assert exchange.status == 200  # also while the request waits for its turn
    engine.play([*begun(), step("Hi")])
    await exchange.until(b'"Hi"')
    n_before = exchange.body.count(b": keep-alive")
    async with asyncio.timeout(10):
        while exchange.body.count(b": keep-alive") < n_before + 2:
            await asyncio.sleep(0.01)
    engine.play([step(" you"), finished()])
    await exchange.finish()
    assert exchange.is_complete
    assert exchange.data[-1] == "[DONE]"
    assert b"data: {" in exchange.body
    for event in bytes(exchange.body).split(b"\n\n")[:-1]:  # no comment inside of an event
        assert event == b": keep-alive" or event.startswith(b"data: ")
        assert b"\n" not in event


async def test_a_busy_stream_has_no_comments(service: EngineService, engine: ScriptedEngine) -> None:
    app = create_app(service, ServerSettings(keep_alive_s=30))
    engine.replies.append(complete("a", "b"))
    exchange = await HttpClient(app).post(CHAT, STREAM)
    assert b": keep-alive" not in exchange.body


@pytest.mark.parametrize("body", [HELLO, STREAM])
async def test_what_fails_at_once_has_a_status_of_its_own(
    client: HttpClient, engine: ScriptedEngine, body: dict[str, object]
) -> None:
    engine.replies.append([begun()[0], Failed("", ContextFullError.for_prompt(9000, 2048))])
    exchange = await client.post(CHAT, body)
    assert exchange.status == 400
    assert exchange.error["code"] == "context_length_exceeded"
    assert "9000" in exchange.error["message"]


async def test_what_fails_later_ends_the_stream_with_an_error(client: HttpClient, engine: ScriptedEngine) -> None:
    exchange = client.start("POST", CHAT, STREAM)
    await until_submitted(engine)
    engine.play([*begun(), step("Hi")])
    await exchange.until(b'"Hi"')
    engine.play([Failed("", EngineDiedError("It died at /secret/place."))])
    await exchange.finish()
    assert exchange.status == 200
    *chunks, error, done = exchange.data
    assert chunks[-1]["choices"][0]["delta"] == {"content": "Hi"}
    assert error["error"]["code"] == "engine_died"
    assert done == "[DONE]"
    assert exchange.is_complete
    assert b"secret" not in exchange.body


async def test_a_failure_of_ours_ends_the_stream_with_an_error_too(
    client: HttpClient, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> AsyncGenerator[bytes, None]:
        raise ZeroDivisionError("at /secret/place")

    monkeypatch.setattr("localspec.server.chat_choice._told", fail)
    engine.replies.append(complete("Hi"))
    exchange = await client.post(CHAT, STREAM)
    assert exchange.data[-2]["error"]["type"] == "server_error"
    assert exchange.data[-1] == "[DONE]"
    assert b"secret" not in exchange.body
    assert engine.n_open == 0


class TestClientsThatLeave:
    """Each frees its sequence at once, wherever it was."""

    @pytest.mark.parametrize("body", [HELLO, STREAM, {**HELLO, "n": 2}, {**STREAM, "n": 2}])
    @pytest.mark.parametrize("stage", ["waiting", "reading the prompt", "replying"])
    async def test_the_request_is_cancelled(
        self, client: HttpClient, engine: ScriptedEngine, service: EngineService, body: dict[str, object], stage: str
    ) -> None:
        n_choices = body.get("n", 1)
        exchange = client.start("POST", CHAT, body)
        await until_submitted(engine, n_choices)
        if stage != "waiting":
            engine.play([*begun(), *([step("Hi")] if stage == "replying" else [])], request=0)
            await asyncio.sleep(0.02)
        assert engine.n_open == n_choices
        exchange.leave()
        await exchange.finish()
        await until_idle(service)
        assert sorted(engine.cancelled) == sorted(request.request_id for request in engine.requests)

    async def test_one_who_left_before_the_answer_began_holds_nothing(
        self, engine: ScriptedEngine, settings: ServerSettings
    ) -> None:
        patient = replace(settings, keep_alive_s=60.0)
        service = EngineService(engine)
        await service.start(PAIR)
        exchange = HttpClient(create_app(service, patient)).start("POST", CHAT, STREAM)
        exchange.leave()
        await exchange.finish()
        await until_idle(service)

    async def test_the_task_of_the_server_may_be_cancelled(
        self, client: HttpClient, engine: ScriptedEngine, service: EngineService
    ) -> None:
        exchanges = [client.start("POST", CHAT, body) for body in (HELLO, STREAM)]
        await until_submitted(engine, 2)
        await asyncio.sleep(0.1)
        for exchange in exchanges:
            exchange.task.cancel()
        await asyncio.wait([exchange.task for exchange in exchanges])
        await until_idle(service)


class TestLimits:
    async def test_too_many_requests(self, client: HttpClient, engine: ScriptedEngine) -> None:
        waiting = [client.start("POST", CHAT, HELLO) for _ in range(4)]
        await until_submitted(engine, 4)
        for body in (HELLO, STREAM):
            refused = await client.post(CHAT, body)
            assert refused.status == 429
            assert refused.headers["retry-after"] == "3"
            assert refused.error["type"] == "rate_limit_error"
            assert refused.error["code"] == "queue_full"
        for index in range(4):
            engine.play(complete("Hi"), request=index)
        for exchange in waiting:
            assert (await exchange.finish()).status == 200

    async def test_a_request_that_takes_too_long(self, engine: ScriptedEngine, settings: ServerSettings) -> None:
        service = EngineService(engine, request_timeout_s=0.1)
        await service.start(PAIR)
        client = HttpClient(create_app(service, settings))
        whole, streamed = client.start("POST", CHAT, HELLO), client.start("POST", CHAT, STREAM)
        await until_submitted(engine, 2)
        for index in range(2):
            engine.play([*begun(), step("Hi")], request=index)
        await whole.finish()
        assert whole.status == 504
        assert whole.error["code"] == "request_timeout"
        assert whole.headers["x-should-retry"] == "false"
        await streamed.finish()
        assert streamed.status == 200
        assert streamed.data[-2]["error"]["code"] == "request_timeout"
        assert streamed.data[-1] == "[DONE]"
        await until_idle(service)

    async def test_the_end_of_the_endpoint(
        self, client: HttpClient, engine: ScriptedEngine, service: EngineService
    ) -> None:
        whole, streamed = client.start("POST", CHAT, HELLO), client.start("POST", CHAT, STREAM)
        await until_submitted(engine, 2)
        await streamed.until(b": keep-alive")
        stopping = asyncio.create_task(service.stop(0.2))
        await asyncio.sleep(0)
        refused = await client.post(CHAT, HELLO)
        assert (refused.status, refused.error["code"]) == (503, "shutting_down")
        await asyncio.wait_for(stopping, 5)
        await asyncio.gather(whole.finish(), streamed.finish())
        assert (whole.status, whole.error["code"]) == (503, "shutting_down")
        assert streamed.data[-2]["error"]["code"] == "shutting_down"
        assert streamed.data[-1] == "[DONE]"
        assert streamed.is_complete

    async def test_before_the_pair_is_loaded(self, settings: ServerSettings, engine: ScriptedEngine) -> None:
        client = HttpClient(create_app(EngineService(engine), settings))
        for path, body in ((CHAT, HELLO), ("/v1/completions", {"prompt": "Hi"})):
            refused: Exchange = await client.post(path, body)
            assert (refused.status, refused.error["code"]) == (503, "loading")
            assert refused.headers["retry-after"] == "2"
        assert (await client.get("/v1/models")).status == 503


async def test_an_error_of_the_request_is_no_error_of_the_log(
    client: HttpClient, engine: ScriptedEngine, caplog: pytest.LogCaptureFixture
) -> None:
    engine.replies.append([begun()[0], Failed("", UsageError("The grammar is not valid.", hint="See the manual."))])
    exchange = await client.post(CHAT, HELLO)
    assert exchange.error["message"] == "The grammar is not valid. See the manual."
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
