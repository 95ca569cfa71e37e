"""Server-sent events: keep-alives while nothing is sent, clients that leave noticed, errors as a last event.

    reply = service.generate(request, info)

    async def frames() -> AsyncIterator[bytes]:
        async for event in reply:
            yield sse({...})
        yield DONE

    return await stream(http_request, reply, frames(), settings.keep_alive_s)

And where nothing is streamed: `result = await unless_disconnected(http_request, reply, collect(reply))`. In both cases
the reply is closed, and what it has of the engine is freed, as soon as the client goes away.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar

from fastapi import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from localspec.errors import EngineError, LocalspecError
from localspec.server.errors import error_body

__all__ = ["CLIENT_GONE", "DONE", "Closable", "openai_error_frames", "sse", "stream", "unless_disconnected"]

logger = logging.getLogger(__name__)

CLIENT_GONE: Final = 499  # nobody reads it; it is what logs of other servers say
DONE: Final = b"data: [DONE]\n\n"
_KEEP_ALIVE: Final = b": keep-alive\n\n"

_Result = TypeVar("_Result")


def sse(data: Any, event: str | None = None) -> bytes:
    """One event with JSON data, and a name if it has one."""
    name = "" if event is None else f"event: {event}\n"
    return f"{name}data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


def openai_error_frames(error: LocalspecError) -> bytes:
    """How a stream of OpenAI's ends that cannot go on."""
    return sse(error_body(error)) + DONE


class Closable(Protocol):
    """What a response is made of: `Replies` or `Reply`."""

    async def started(self, within_s: float) -> None:
        """Wait until it has begun, or for so long."""

    async def aclose(self) -> None:
        """End it, if it has not ended."""


async def stream(
    request: Request,
    reply: Closable,
    frames: AsyncGenerator[bytes, None],
    keep_alive_s: float,
    *,
    error_frames: Callable[[LocalspecError], bytes] = openai_error_frames,
) -> Response:
    """A response of events. After `keep_alive_s` seconds of silence a comment is sent, from the first event on.

    A `LocalspecError` that `frames` raises is sent as `error_frames(error)`.

    Raises:
        LocalspecError: the reply failed before anything was sent, so that the error has a status of its own.
    """

    async def started() -> bool:
        await reply.started(keep_alive_s)
        return True

    if not await unless_disconnected(request, reply, started(), closes=False):
        return Response(status_code=CLIENT_GONE)
    return _EventStream(reply, frames, keep_alive_s, error_frames)


async def unless_disconnected(
    request: Request, reply: Closable, work: Awaitable[_Result], *, closes: bool = True
) -> _Result | None:
    """The result of `work`; None when the client went away before. Then `work` is cancelled and `reply` closed.

    With `closes` the reply is also closed at the end. To be called once the body has been read: what the client sends
    after it is only its leaving.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.create_task(_disconnected(request.receive))
    succeeded = False
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        result = await working if working.done() else None
        succeeded = working.done()
        return result
    finally:
        await _cancelled(working, leaving)
        if closes or not succeeded:
            await reply.aclose()


class _EventStream(Response):
    media_type = "text/event-stream"

    def __init__(
        self,
        reply: Closable,
        frames: AsyncGenerator[bytes, None],
        keep_alive_s: float,
        error_frames: Callable[[LocalspecError], bytes],
    ) -> None:
        self.status_code = 200
        self.background = None
        self._reply = reply
        self._frames = frames
        self._keep_alive_s = keep_alive_s
        self._error_frames = error_frames
        self._lock = asyncio.Lock()
        self._sent_at = 0.0
        # Proxies that gather a response before they pass it on would turn a stream into a wait.
        self.init_headers({"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's signature
        """Send the response, until it has ended or the client goes away."""
        writing = asyncio.create_task(self._write_all(send))
        leaving = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait({writing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if writing.done():
                with suppress(OSError):  # the client has gone
                    await writing
        finally:
            await _cancelled(writing, leaving)
            await self._frames.aclose()
            await self._reply.aclose()

    async def _write_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        self._sent_at = asyncio.get_running_loop().time()
        keeping = asyncio.create_task(self._keep_alive(send))
        try:
            async for frame in self._frames:
                await self._write(send, frame)
        except LocalspecError as error:
            logger.info("A stream ended early: %s", error)
            await self._write(send, self._error_frames(error))
        except OSError:
            raise
        except Exception:
            logger.exception("A stream failed.")
            await self._write(send, self._error_frames(EngineError("The endpoint failed.")))
        finally:
            await _cancelled(keeping)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write(self, send: Send, frame: bytes) -> None:
        async with self._lock:  # a comment never falls into an event
            await send({"type": "http.response.body", "body": frame, "more_body": True})
            self._sent_at = asyncio.get_running_loop().time()

    async def _keep_alive(self, send: Send) -> None:
        while True:
            silent_s = asyncio.get_running_loop().time() - self._sent_at
            if silent_s >= self._keep_alive_s:
                await self._write(send, _KEEP_ALIVE)
                silent_s = 0.0
            await asyncio.sleep(self._keep_alive_s - silent_s)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cancelled(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
