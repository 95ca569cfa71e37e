"""A client that speaks to an ASGI application without a socket, and can go away whenever a test wants it to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message


@dataclass
class Exchange:
    """A request, and the response as far as it has come. `leave` closes the connection."""

    task: asyncio.Task[None]
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    is_complete: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    def leave(self) -> None:
        self.gone.set()

    async def finish(self) -> Exchange:
        await asyncio.wait_for(asyncio.shield(self.task), 10)
        return self

    async def until(self, text: bytes) -> None:
        """Wait until the response holds `text`."""
        while text not in self.body:
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), 10)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = self.json["error"]
        return error

    @property
    def data(self) -> list[Any]:
        """The data of each server-sent event; "[DONE]" as it is."""
        lines = [line[6:] for line in self.body.decode().split("\n") if line.startswith("data: ")]
        return [line if line == "[DONE]" else json.loads(line) for line in lines]


class HttpClient:
    """Sends requests to `app`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def start(
        self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None, raw: bytes = b""
    ) -> Exchange:
        """Begin a request; `body` is sent as JSON, `raw` as it is."""
        content = raw if body is None else json.dumps(body).encode()
        path, _, query = path.partition("?")
        given = {"host": "127.0.0.1:8080", "content-type": "application/json", "content-length": str(len(content))}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(key.encode(), value.encode()) for key, value in (given | dict(headers or {})).items()],
            "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", 8080),
            "state": {},
        }
        is_sent = False

        async def receive() -> Message:
            nonlocal is_sent
            if not is_sent:
                is_sent = True
                return {"type": "http.request", "body": content, "more_body": False}
            await exchange.gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if exchange.gone.is_set():
                return
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                exchange.headers = {key.decode(): value.decode() for key, value in message["headers"]}
            else:
                exchange.body += message.get("body", b"")
                exchange.is_complete = not message.get("more_body", False)
            exchange.changed.set()

        async def run() -> None:
            await self._app(scope, receive, send)

        exchange = Exchange(asyncio.create_task(run()))
        return exchange

    async def post(self, path: str, body: Any = None, **more: Any) -> Exchange:
        return await self.start("POST", path, body, **more).finish()

    async def get(self, path: str, **more: Any) -> Exchange:
        return await self.start("GET", path, **more).finish()
