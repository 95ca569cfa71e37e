"""The bytes of streams of a real engine: silence while a prompt is read, and how each kind of stream ends."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Final

import pytest

from tests.server.conftest import Served
from tests.server.soak_client import asking

pytestmark = pytest.mark.native

N_CTX: Final = 8192
LIMITS: Final = {
    "/v1/chat/completions": "max_tokens",
    "/v1/completions": "max_tokens",
    "/v1/responses": "max_output_tokens",
    "/completion": "n_predict",
}


def a_request(path: str, text: str = "Once", n_tokens: int | None = None) -> dict[str, Any]:
    """A streamed request; None: it has no end of its own."""
    body: dict[str, Any] = {"stream": True, "logit_bias": {"257": -100}}
    body |= {
        "/v1/chat/completions": {"messages": [{"role": "user", "content": text}]},
        "/v1/completions": {"prompt": text},
        "/v1/responses": {"input": text},
        "/completion": {"prompt": text},
    }[path]
    if n_tokens is not None:
        body[LIMITS[path]] = n_tokens
    elif path == "/v1/completions":
        body["max_tokens"] = N_CTX - 100  # 16 where nobody says
    return body


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.002)


def port_of(served: Served) -> int:
    return int(served.url.rpartition(":")[2])


def events_of(raw: bytes) -> list[bytes]:
    """The events and comments of a response in chunks, which came to its end."""
    head, _, rest = raw.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), raw[:300]
    body = b""
    while True:
        size, _, rest = rest.partition(b"\r\n")
        if not int(size, 16):
            assert rest == b"\r\n"
            assert body.endswith(b"\n\n")
            return body.split(b"\n\n")[:-1]
        body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]


def data_of(event: bytes) -> Any:
    return json.loads(event.rpartition(b"data: ")[2])


@pytest.fixture(scope="module")
def chatty(serve: Callable[..., Served]) -> Served:
    return serve(n_ctx=N_CTX, n_parallel=1, keep_alive_s=0.01)


@pytest.fixture(scope="module")
def hasty(serve: Callable[..., Served]) -> Served:
    return serve(n_ctx=N_CTX, n_parallel=1, request_timeout_s=0.3)


@pytest.mark.parametrize("path", LIMITS)
async def test_comments_are_sent_while_a_long_prompt_is_read(chatty: Served, path: str) -> None:
    text = "A prompt that is new to the cache. " * 220
    async with asking(port_of(chatty), path, a_request(path, text, 20)) as reader:
        events = events_of(await reader.read())
    has_text = re.compile(rb'output_text\.delta|"(content|text)":"[^"]')
    first = next(i for i, event in enumerate(events) if has_text.search(event))
    assert events[:first].count(b": keep-alive") >= 3, events[: first + 1]
    assert all(event == b": keep-alive" or event.startswith((b"data: ", b"event: ")) for event in events)


def assert_ended_by_the_shutdown(path: str, raw: bytes) -> None:
    """By an error of its own kind, which is the last that it says; or, unless it had begun, by a status."""
    if raw.startswith(b"HTTP/1.1 503 "):
        body = json.loads(raw.partition(b"\r\n\r\n")[2])
        assert body["error"]["code"] == "shutting_down"
        return
    events = [event for event in events_of(raw) if event != b": keep-alive"]
    if path == "/v1/responses":
        assert events[-1].startswith(b"event: response.failed\n")
        assert "shutting down" in data_of(events[-1])["response"]["error"]["message"]
        assert sum(event.startswith(b"event: response.failed") for event in events) == 1
        return
    if path != "/completion":
        assert events.pop() == b"data: [DONE]"
    assert data_of(events[-1])["error"]["code"] == "shutting_down"
    assert sum(b'"error"' in event for event in events) == 1
    assert b"data: [DONE]" not in events


async def test_a_shutdown_ends_what_runs_and_what_waits(serve: Callable[..., Served]) -> None:
    served = serve(n_ctx=N_CTX, n_parallel=2, keep_alive_s=0.02, shutdown_s=0.3)
    assert served.service is not None
    asked = [*LIMITS, *LIMITS]  # two run, six wait
    async with AsyncExitStack() as stack:
        readers = [await stack.enter_async_context(asking(port_of(served), path, a_request(path))) for path in asked]
        await until(lambda: len(served.service.open_requests) == len(asked))
        ending = threading.Thread(target=served.stop)
        ending.start()
        answers = await asyncio.gather(*(reader.read() for reader in readers))
    await asyncio.to_thread(ending.join, 30)
    assert not ending.is_alive()
    for path, raw in zip(asked, answers, strict=True):
        assert_ended_by_the_shutdown(path, raw)
    assert sum(raw.startswith(b"HTTP/1.1 200 ") for raw in answers) >= 2
    assert not served.service.open_requests
    assert served.engine.process_id is None


async def test_a_shutdown_lets_replies_finish_that_are_short(serve: Callable[..., Served]) -> None:
    served = serve(n_ctx=N_CTX, n_parallel=2, keep_alive_s=0.02, shutdown_s=60)
    assert served.service is not None
    async with AsyncExitStack() as stack:
        asked = [(path, a_request(path, n_tokens=200)) for path in LIMITS]
        readers = [await stack.enter_async_context(asking(port_of(served), *each)) for each in asked]
        await until(lambda: len(served.service.open_requests) == len(asked))
        ending = threading.Thread(target=served.stop)
        ending.start()
        answers = [events_of(await reader.read()) for reader in readers]
    await asyncio.to_thread(ending.join, 30)
    assert not ending.is_alive()
    chat, text, responses, native = answers
    for events in (chat, text):
        assert events[-1] == b"data: [DONE]"
        assert any(b'"finish_reason":"length"' in event for event in events)
    assert responses[-1].startswith(b"event: response.incomplete\n")
    assert data_of(native[-1])["stop_type"] == "limit"
    assert not any(b'"error":{' in event for events in answers for event in events)


@pytest.mark.parametrize("path", LIMITS)
async def test_the_time_limit_ends_a_stream_by_an_error_of_its_own_kind(hasty: Served, path: str) -> None:
    async with asking(port_of(hasty), path, a_request(path)) as reader:
        events = events_of(await reader.read())
    if path == "/v1/responses":
        assert events[-1].startswith(b"event: response.failed\n")
        assert "longer than 0.3 s" in data_of(events[-1])["response"]["error"]["message"]
    else:
        if path != "/completion":
            assert events.pop() == b"data: [DONE]"
        assert data_of(events[-1])["error"]["code"] == "request_timeout"
    assert hasty.service is not None
    await until(lambda: not hasty.service.open_requests)
