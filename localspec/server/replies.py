"""The events of requests that were admitted, as an asynchronous iterator that frees its requests when it is left."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from localspec.engine.events import Cancelled, Failed, Finished, Queued, RequestEvent
from localspec.engine.requests import GenerateRequest
from localspec.errors import LocalspecError, ShuttingDownError

__all__ = ["Replies", "Reply"]


class Replies:
    """Events of one or more requests as they come: pairs of a request's index and an event, until all have ended.

    The last event of each index is `Finished`. An error of one ends all. Leaving the iteration early (`aclose`, or the
    end of `async with`) cancels what still runs. Lives on the event loop's thread.
    """

    def __init__(self, requests: Sequence[GenerateRequest], cancel: Callable[[str], None]) -> None:
        self._index = {request.request_id: index for index, request in enumerate(requests)}
        self._open = set(self._index)
        self._cancel = cancel
        self._events: deque[tuple[int, RequestEvent]] = deque()
        self._arrived = asyncio.Event()
        self._error: LocalspecError | None = None
        self._closed = False
        self._queued_at = [time.monotonic()] * len(requests)
        # Seconds that each request waited for its turn, as the engine's events tell; None until it had it.
        self.queue_s: list[float | None] = [None] * len(requests)

    # --- for the service -----------------------------------------------------------------------------------------

    def push(self, event: RequestEvent) -> None:
        """An event of one of the requests."""
        index = self._index[event.request_id]
        if isinstance(event, Queued):
            self._queued_at[index] = time.monotonic()
        elif self.queue_s[index] is None:
            self.queue_s[index] = time.monotonic() - self._queued_at[index]
        if isinstance(event, Finished | Cancelled | Failed):
            self._open.discard(event.request_id)
        if self._closed or self._error is not None:
            return
        if isinstance(event, Failed):
            self.end(event.error)
        elif isinstance(event, Cancelled):
            self.end(ShuttingDownError("The reply was stopped by the engine."))
        else:
            self._events.append((index, event))
            self._arrived.set()

    def end(self, error: LocalspecError) -> None:
        """End all requests with an error, once the events that are here have been read."""
        if self._error is None and not self._closed:
            self._error = error
            self._arrived.set()
            self._cancel_open()

    def _cancel_open(self) -> None:
        for request_id in list(self._open):
            self._cancel(request_id)

    # --- for who reads -------------------------------------------------------------------------------------------

    async def started(self, within_s: float) -> None:
        """Wait until a reply has had its turn, or for `within_s` seconds: an error until then has a status of its own.

        Raises:
            LocalspecError: a request failed at once.
        """
        try:
            async with asyncio.timeout(within_s):
                while self._error is None and all(waited is None for waited in self.queue_s):
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            pass
        finally:
            self._arrived.set()
        if self._error is not None:
            error = self._error
            await self.aclose()
            raise error

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[int, RequestEvent]:
        """The next event.

        Raises:
            LocalspecError: why the replies cannot go on.
        """
        while not self._events:
            if self._error is not None:
                raise self._error
            if self._closed or not self._open:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        return self._events.popleft()

    async def aclose(self) -> None:
        """Cancel what still runs; may be called twice."""
        if not self._closed:
            self._closed = True
            self._events.clear()
            self._arrived.set()
            self._cancel_open()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class Reply:
    """The events of one request, up to and including `Finished`. See `Replies`."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies

    @property
    def queue_s(self) -> float:
        """Seconds that the request waited for its turn."""
        return self._replies.queue_s[0] or 0.0

    async def started(self, within_s: float) -> None:
        """See `Replies.started`."""
        await self._replies.started(within_s)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RequestEvent:
        """The next event.

        Raises:
            LocalspecError: why the reply cannot go on.
        """
        return (await anext(self._replies))[1]

    async def aclose(self) -> None:
        """Cancel the request, if it still runs."""
        await self._replies.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
