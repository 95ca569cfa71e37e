"""The limits over a real socket, through uvicorn: what is sent slowly, too large, twice or not as HTTP."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from localspec.server import listening
from localspec.server.settings import ServerSettings
from tests.server.raw_client import RawConnection, request, running

CHAT = json.dumps({"messages": [{"role": "user", "content": "Hello"}]}).encode()
CHUNKED = {"Content-Length": None, "Transfer-Encoding": "chunked"}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    settings = ServerSettings(max_body_bytes=100_000, max_header_bytes=8000, body_timeout_s=0.5, shutdown_s=1)
    with running(settings) as number:
        yield number


@pytest.fixture
def connection(port: int) -> Iterator[RawConnection]:
    with RawConnection(port) as opened:
        yield opened


def test_a_connection_serves_many_requests_with_refused_ones_among_them(connection: RawConnection) -> None:
    for _ in range(3):
        connection.send(request(body=CHAT))
        assert connection.answer().status == 200
        connection.send(request(body=CHAT, headers={"Content-Type": "text/plain"}))
        assert connection.answer().code == "invalid_content_type"
        connection.send(request(body=CHAT, headers={"Host": "evil.example"}))
        assert connection.answer().code == "host_not_allowed"


def test_what_is_announced_too_large_is_refused_before_it_comes(connection: RawConnection) -> None:
    connection.send(request(headers={"Content-Length": 10_000_000}))
    answer = connection.answer()
    assert (answer.status, answer.code) == (413, "body_too_large")


def test_who_waits_to_be_asked_for_a_large_body_is_not(connection: RawConnection) -> None:
    connection.send(request(headers={"Content-Length": 10_000_000, "Expect": "100-continue"}))
    assert connection.answer().status == 413


def test_chunks_are_counted_as_they_come_and_the_answer_arrives(connection: RawConnection) -> None:
    connection.send(request(headers=CHUNKED))
    chunk = b"2710\r\n" + b" " * 10_000 + b"\r\n"
    for _ in range(30):  # three times what is allowed, all of it sent before the answer is read
        connection.send(chunk)
    connection.send(b"0\r\n\r\n")
    assert connection.answer().status == 413
    connection.send(request(body=CHAT))
    assert connection.answer().status == 200


def test_chunks_within_the_limit_make_a_body(connection: RawConnection) -> None:
    connection.send(request(headers=CHUNKED))
    for byte in CHAT:
        connection.send(b"1\r\n" + bytes([byte]) + b"\r\n")
    connection.send(b"0\r\n\r\n")
    assert connection.answer().status == 200


def test_a_body_that_comes_too_slowly_is_given_up(connection: RawConnection) -> None:
    began = time.monotonic()
    connection.send(request(headers={"Content-Length": 1000}) + b'{"messages"')
    answer = connection.answer()
    assert (answer.status, answer.code) == (408, "body_timeout")
    assert 0.4 < time.monotonic() - began < 10
    assert connection.is_closed()


def test_headers_without_an_end_are_refused(connection: RawConnection) -> None:
    with suppress(ConnectionError):  # closed while more is sent
        connection.send(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        for _ in range(1000):
            connection.send(b"X-Filler: " + b"x" * 1000 + b"\r\n")
    with suppress(ConnectionError):
        assert connection.answer().status == 400
    assert connection.is_closed()


@pytest.mark.parametrize("beginning", [b"", b"GET / HTTP/1.1\r\n"])
def test_a_request_that_does_not_come_is_given_up(port: int, monkeypatch: pytest.MonkeyPatch, beginning: bytes) -> None:
    monkeypatch.setattr(listening, "_HEAD_TIMEOUT_S", 0.3)
    began = time.monotonic()
    with RawConnection(port) as connection:
        connection.send(beginning)
        assert connection.is_closed()
    assert 0.2 < time.monotonic() - began < 10


def test_a_reply_may_take_longer_than_a_request(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "_HEAD_TIMEOUT_S", 0.2)
    with RawConnection(port) as connection:
        for _ in range(2):
            connection.send(request(headers={"Content-Length": len(CHAT)}))
            time.sleep(0.3)
            connection.send(CHAT)
            assert connection.answer().status == 200


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),  # who tries TLS
        b"GET / HTTP/1.1\r\n\r\n",  # no Host
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : 127.0.0.1\r\n\r\n",
        b"G\x00T / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"nonsense\r\n\r\n",
    ],
)
def test_what_is_no_http_gets_one_answer_and_an_end(connection: RawConnection, data: bytes) -> None:
    connection.send(data)
    answer = connection.answer()
    assert 400 <= answer.status < 500 or answer.status == 501
    assert b"Traceback" not in answer.body
    assert connection.is_closed()


def test_a_request_in_http_1_0_needs_a_host_too(connection: RawConnection) -> None:
    connection.send(b"GET /v1/models HTTP/1.0\r\n\r\n")
    assert connection.answer().code == "host_not_allowed"


def test_an_upgrade_is_not_made(connection: RawConnection) -> None:
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Key": "x" * 22 + "==",
        "Content-Length": None,
    }
    connection.send(request("/v1/models", method="GET", headers=upgrade))
    assert connection.answer().status == 200


def test_requests_in_one_packet_are_answered_in_order(connection: RawConnection) -> None:
    connection.send(request(body=CHAT) + request("/nowhere", method="GET") + request(body=b"{}"))
    assert [connection.answer().status for _ in range(3)] == [200, 404, 400]


def test_the_answers_do_not_say_what_serves_them(connection: RawConnection) -> None:
    connection.send(request("/v1/models", method="GET"))
    assert "server" not in connection.answer().headers


def test_who_leaves_in_the_middle_hurts_nobody(port: int) -> None:
    for part in (b"PO", b"POST / HTTP/1.1\r\nHost", request(headers={"Content-Length": 50}) + b'{"m'):
        with socket.create_connection(("127.0.0.1", port)) as left:
            left.sendall(part)
    with RawConnection(port) as connection:
        connection.send(request(body=CHAT))
        assert connection.answer().status == 200
