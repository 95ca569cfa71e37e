"""Bytes over a socket, as no proper client would send them, to an endpoint in a thread over a scripted engine."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from localspec.engine.events import RequestEvent
from localspec.server.app import create_app
from localspec.server.listening import Endpoint, bind, bound_port
from localspec.server.security import protected
from localspec.server.service import EngineService
from localspec.server.settings import ServerSettings
from tests.server.scripted_engine import PAIR, ScriptedEngine, complete


class _EndlessReplies(deque[Iterable[RequestEvent]]):
    """The same reply to whoever asks."""

    def __bool__(self) -> bool:
        return True

    def popleft(self) -> Iterable[RequestEvent]:
        return complete("Hello", " there")


@dataclass(frozen=True)
class Answer:
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """Of the error."""
        code: str = json.loads(self.body)["error"]["code"]
        return code


class RawConnection:
    """A connection to the endpoint."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._file = self._socket.makefile("rb")

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def answer(self) -> Answer:
        """The next response."""
        line = self._file.readline()
        assert line.startswith(b"HTTP/1.1 "), line
        headers: dict[str, str] = {}
        while (header := self._file.readline().rstrip(b"\r\n")) != b"":
            name, _, value = header.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(self._file.readline(), 16):
                body += self._file.read(size)
                self._file.readline()
            self._file.readline()
        elif "content-length" in headers:
            body = self._file.read(int(headers["content-length"]))
        else:
            body = self._file.read()
        return Answer(int(line.split()[1]), headers, body)

    def is_closed(self) -> bool:
        """Whether the other side has closed it; waits for that."""
        try:
            return self._file.read(1) == b""
        except ConnectionResetError:
            return True


def request(
    path: str = "/v1/chat/completions",
    body: bytes = b"",
    *,
    method: str = "POST",
    headers: dict[str, Any] | None = None,
) -> bytes:
    """The bytes of a request; a header of None is left out."""
    given = {"Host": "127.0.0.1", "Content-Type": "application/json", "Content-Length": len(body), **(headers or {})}
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items() if value is not None)
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + body


@contextmanager
def running(settings: ServerSettings) -> Iterator[int]:
    """The port of an endpoint whose engine gives everybody the same reply."""
    engine = ScriptedEngine(replies=_EndlessReplies())
    sockets = bind("127.0.0.1", 0)
    ready = threading.Event()
    endpoints: list[Endpoint] = []

    async def run() -> None:
        service = EngineService(engine, n_parallel=settings.n_parallel, n_queue=settings.n_queue)
        endpoints.append(
            Endpoint(protected(create_app(service, settings), settings), service, settings, logs_requests=False)
        )
        serving = asyncio.create_task(endpoints[0].serve(sockets=sockets))
        await service.start(PAIR)
        while not endpoints[0].started:
            await asyncio.sleep(0.01)
        ready.set()
        await serving

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield bound_port(sockets)
    finally:
        endpoints[0].should_exit = True
        thread.join(30)
        assert not thread.is_alive()
