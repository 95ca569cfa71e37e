"""What may be sent: sizes, types, times and texts, by what reaches a mere echo behind the middleware."""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from localspec.server import request_body
from localspec.server.request_body import MAX_NESTING, RequestBodyMiddleware
from tests.server.http_client import Exchange, HttpClient


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    body = await Request(scope, receive).body()
    await Response(body, media_type="application/octet-stream")(scope, receive, send)


async def post(raw: bytes, *, max_bytes: int = 1000, **headers: str) -> Exchange:
    client = HttpClient(RequestBodyMiddleware(echo, max_bytes=max_bytes, timeout_s=5))
    return await client.post("/x", raw=raw, headers={name.replace("_", "-"): each for name, each in headers.items()})


def refused_as(exchange: Exchange) -> tuple[int | None, str]:
    assert set(exchange.error) == {"message", "type", "param", "code"}
    return exchange.status, exchange.error["code"]


@pytest.mark.parametrize("raw", [b"", b"{}", b'{"a": "\\ud83d\\ude00 \\\\ud83d"}', "{'ä'}".encode(), b"x" * 1000])
async def test_a_body_arrives_as_it_was_sent(raw: bytes) -> None:
    exchange = await post(raw)
    assert (exchange.status, bytes(exchange.body)) == (200, raw)


@pytest.mark.parametrize(
    ("raw", "headers", "refusal"),
    [
        (b"x" * 1001, {}, (413, "body_too_large")),
        (b"{}", {"content_length": "9" * 40}, (413, "body_too_large")),
        (b"x" * 1001, {"content_length": "5"}, (413, "body_too_large")),
        (b"{}", {"content_type": "text/plain"}, (415, "invalid_content_type")),
        (b"{}", {"content_type": "application/x-www-form-urlencoded"}, (415, "invalid_content_type")),
        (b"{}", {"content_type": ""}, (415, "invalid_content_type")),
        (b"{}", {"content_type": "application/json; charset=latin-1"}, (415, "invalid_content_type")),
        (b"{}", {"content_encoding": "gzip"}, (415, "invalid_content_encoding")),
        (b'{"a": "\0"}', {}, (400, "invalid_json")),
        ('{"a": 1}'.encode("utf-16"), {}, (400, "invalid_json")),
        (b'{"a": "\xff"}', {}, (400, "invalid_json")),
        (b'{"a": "\xed\xa0\x80"}', {}, (400, "invalid_json")),
        (b'{"a": "\\ud83d"}', {}, (400, "invalid_json")),
        (b'{"a": "\\uDE00\\ud83d"}', {}, (400, "invalid_json")),
        (b"[" * 500, {}, (400, "invalid_json")),
    ],
)
async def test_what_cannot_be_read_is_refused(raw: bytes, headers: dict[str, str], refusal: tuple[int, str]) -> None:
    assert refused_as(await post(raw, **headers)) == refusal


@pytest.mark.parametrize(
    "kind", ["application/json", "Application/JSON; charset=utf-8", 'application/json;charset="UTF-8"']
)
async def test_json_in_utf_8_is_taken(kind: str) -> None:
    assert (await post(b"{}", content_type=kind)).status == 200


def nested(depth: int) -> bytes:
    return b'{"a":' * (depth // 2) + b"[" * (depth - depth // 2) + b"]" * (depth - depth // 2) + b"}" * (depth // 2)


async def test_nesting_is_bounded() -> None:
    assert (await post(nested(MAX_NESTING))).status == 200
    assert refused_as(await post(nested(MAX_NESTING + 1))) == (400, "invalid_json")
    deep = await post(nested(200_000), max_bytes=1 << 20)
    assert refused_as(deep) == (400, "invalid_json")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda each: st.lists(each, max_size=4) | st.dictionaries(st.text(), each, max_size=4),
)


def depth_of(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    return 1 + max(map(depth_of, value), default=0) if isinstance(value, list) else 0


@given(values, st.booleans())
def test_the_depth_is_that_of_the_value(value: Any, is_escaped: bool) -> None:
    assert request_body._depth(json.dumps(value, ensure_ascii=is_escaped).encode("utf-8", "surrogatepass")) == depth_of(
        value
    )


@given(st.text(st.characters(categories=None)))  # halves of pairs included
def test_half_a_pair_is_found_wherever_it_is(text: str) -> None:
    is_whole = not re.search(
        "[\ud800-\udfff]", text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    )
    refusal = request_body._refusal_of_text(json.dumps(text).encode())
    assert (refusal is None) == is_whole


@pytest.mark.parametrize("raw", [b'"' + b'\\"' * (1 << 20), b'"' * (1 << 21), b"[]," * (1 << 20), b'"a' * (1 << 20)])
def test_hostile_text_takes_no_more_than_linear_time(raw: bytes) -> None:
    began = time.perf_counter()
    request_body._refusal_of_text(raw)
    assert time.perf_counter() - began < 5


async def test_a_body_that_does_not_come_ends_with_a_timeout() -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        await asyncio.sleep(60)
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"content-length", b"5"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": headers}
    await RequestBodyMiddleware(echo, max_bytes=10, timeout_s=0.05)(scope, receive, send)
    assert sent[0]["status"] == 408
    assert (b"connection", b"close") in sent[0]["headers"]


async def test_a_client_that_goes_while_it_sends_gets_no_answer() -> None:
    parts: list[Message] = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]

    async def receive() -> Message:
        return parts.pop(0)

    async def send(message: Message) -> None:
        raise AssertionError(message)

    headers = [(b"content-length", b"5"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": headers}
    await RequestBodyMiddleware(echo, max_bytes=10, timeout_s=5)(scope, receive, send)


async def test_after_the_body_the_client_is_still_heard() -> None:
    heard: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        heard.extend([await receive(), await receive()])

    parts: list[Message] = [
        {"type": "http.request", "body": b"{", "more_body": True},
        {"type": "http.request", "body": b"}"},
        {"type": "http.disconnect"},
    ]

    async def receive() -> Message:
        return parts.pop(0)

    async def send(message: Message) -> None:
        raise AssertionError(message)

    headers = [(b"transfer-encoding", b"chunked"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": headers}
    await RequestBodyMiddleware(app, max_bytes=10, timeout_s=5)(scope, receive, send)
    assert heard == [{"type": "http.request", "body": b"{}", "more_body": False}, {"type": "http.disconnect"}]
