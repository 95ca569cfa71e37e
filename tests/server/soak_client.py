"""One client of a soak over a real socket: it asks, and reads to the end or goes away when and how it was told to."""

from __future__ import annotations

import asyncio
import json
import random
import re
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

__all__ = ["N_CTX", "Leave", "Plan", "Seen", "ask", "asking", "plan_of"]

N_CTX: Final = 4096
_TOO_LONG: Final = N_CTX + 100  # characters; each is a token of the tiny models


class Leave(Enum):
    """When a client goes away."""

    NEVER = "never"
    IN_THE_REQUEST = "before it has asked"
    AT_ONCE = "right after it has asked"
    LATER = "after some time, wherever its request is"
    IN_THE_REPLY = "after the first bytes of the reply"


@dataclass(frozen=True)
class Plan:
    """What one client does. `after_s`: how long it waits where it leaves later; `resets`: it ends with a TCP reset."""

    number: int
    path: str
    body: dict[str, Any]
    n_choices: int
    leave: Leave
    after_s: float
    n_bytes: int
    resets: bool

    @property
    def marker(self) -> str:
        """What its prompt begins with, so that its requests of the engine can be told from others."""
        return marker(self.number)

    @property
    def is_streamed(self) -> bool:
        """Whether it asks for a stream."""
        return bool(self.body.get("stream"))


@dataclass(frozen=True)
class Seen:
    """What a client saw: a whole response, or nothing where it `left`.

    `error`: the code of the error that the response is, or that its stream ends with.
    """

    left: bool
    status: int = 0
    headers: bytes = b""
    error: str | None = None


def _error_in(headers: bytes, body: bytes) -> str | None:
    is_streamed = b"\r\ncontent-type: text/event-stream" in headers
    for line in body.split(b"\n") if is_streamed else [body]:
        text = line.removeprefix(b"data: ").removeprefix(b"error: ")
        if b'"error":' in text:
            found = _error_of(json.loads(text))
            if found is not None:
                return found
    return None


def _error_of(value: Any) -> str | None:
    if not isinstance(value, dict):
        return None
    error = value.get("error") or (value.get("response") or {}).get("error")
    return str(error["code"]) if error else None


def marker(number: int) -> str:
    """See `Plan.marker`."""
    return f"<client {number}>"


def plan_of(number: int, chance: random.Random) -> Plan:
    """What client `number` does."""
    length = chance.choice([5, 30, 30, 200, 900])
    if chance.random() < 0.03:
        length = _TOO_LONG
    text = (marker(number) + "Once upon a time there was a server. " * (length // 30 + 1))[: max(length, 20)]
    n_tokens = chance.choice([0, 1, 8, 40, 150, 400])
    stream = chance.random() < 0.6
    n_choices = chance.choice([1, 1, 1, 2])
    openai: dict[str, Any] = {"max_tokens": max(1, n_tokens), "stream": stream, "seed": number, "ignore_eos": True}
    openai["temperature"] = chance.choice([0, 0.7, 1.5])
    path, body, n = chance.choice(
        [
            ("/v1/chat/completions", openai | {"messages": [_turn(text)], "n": n_choices}, n_choices),
            ("/v1/completions", openai | {"prompt": text, "n": n_choices}, n_choices),
            ("/v1/responses", {"input": text, "max_output_tokens": max(16, n_tokens), "stream": stream}, 1),
            ("/completion", {"prompt": text, "n_predict": n_tokens, "stream": stream, "ignore_eos": True}, 1),
        ]
    )
    leave = chance.choice([*[Leave.NEVER] * 6, Leave.AT_ONCE, Leave.LATER, Leave.LATER, *[Leave.IN_THE_REPLY] * 2])
    if chance.random() < 0.03:
        leave = Leave.IN_THE_REQUEST
    return Plan(number, path, body, n, leave, chance.uniform(0, 0.5), chance.randrange(1, 600), chance.random() < 0.5)


def _turn(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


@asynccontextmanager
async def asking(
    port: int, path: str, body: dict[str, Any], *, n_bytes: int | None = None, resets: bool = False
) -> AsyncIterator[asyncio.StreamReader]:
    """A connection with a request on it, closed at the end. `n_bytes`: only so much of the request, at most."""
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\n"
    raw = f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(raw if n_bytes is None else raw[: min(n_bytes, len(raw) - 1)])
        await writer.drain()
        yield reader
    finally:
        if resets:
            opened: socket.socket = writer.get_extra_info("socket")
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def ask(port: int, plan: Plan) -> Seen:
    """Do what the plan says."""
    n_bytes = plan.n_bytes if plan.leave is Leave.IN_THE_REQUEST else None
    resets = plan.resets and plan.leave is not Leave.NEVER
    async with asking(port, plan.path, plan.body, n_bytes=n_bytes, resets=resets) as reader:
        if plan.leave is Leave.NEVER:
            return _response(await reader.read(), plan)
        if plan.leave is Leave.LATER:
            await asyncio.sleep(plan.after_s)
        elif plan.leave is Leave.IN_THE_REPLY:
            await reader.read(200)
        return Seen(left=True)


def _response(raw: bytes, plan: Plan) -> Seen:
    """A response, which is whole.

    Raises:
        AssertionError: it is not.
    """
    head, _, body = raw.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 "), raw[:200]
    headers = head.lower()
    if b"transfer-encoding: chunked" in headers:
        body = _joined(body)
        _assert_ended(plan.path, body)
    else:
        (length,) = re.findall(rb"\r\ncontent-length: (\d+)", headers)
        assert len(body) == int(length)
    return Seen(left=False, status=int(head.split()[1]), headers=headers, error=_error_in(headers, body))


def _assert_ended(path: str, body: bytes) -> None:
    """A stream says itself that it has ended, and says it once, as its last event."""
    events = [event for event in body.split(b"\n\n") if event and not event.startswith(b":")]
    if path == "/completion":
        is_last = [b'"stop":true' in event or b'"error":' in event for event in events]
    elif path == "/v1/responses":
        is_last = [event.startswith(_LAST_OF_RESPONSE) for event in events]
    else:
        is_last = [event == b"data: [DONE]" for event in events]
    assert is_last == [False] * (len(events) - 1) + [True], f"{path} {body[-1000:]!r}"


_LAST_OF_RESPONSE: Final = (b"event: response.completed", b"event: response.incomplete", b"event: response.failed")


def _joined(rest: bytes) -> bytes:
    chunks = []
    while True:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        if not length:
            assert rest == b"\r\n"
            return b"".join(chunks)
        chunks.append(rest[:length])
        assert rest[length : length + 2] == b"\r\n"
        rest = rest[length + 2 :]
