"""One reply of a server, from the request to its end, as the events that every front end knows.

How it ends is told by whoever runs it: that may be told to stop before it has begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack, aclosing
from typing import Final

from localspec.engine.events import (
    Finished,
    FinishReason,
    Prefilling,
    Queued,
    RequestEvent,
    Step,
    StepDecoded,
    TextSpan,
)
from localspec.engine.metrics import RequestMetrics
from localspec.engine.requests import GenerateRequest
from localspec.errors import EndpointError, EndpointRefusedError, EndpointUnreachableError
from localspec.remote.chunks import Chunk, read_chunk
from localspec.remote.connection import Connection
from localspec.remote.endpoint import Endpoint
from localspec.remote.event_stream import StreamEvent
from localspec.remote.refusals import error_of, refusal
from localspec.remote.reply_metrics import ReplyMeter
from localspec.remote.request_body import RequestBody
from localspec.remote.server_facts import ServerFacts
from localspec.speculative.rejection import Origin

__all__ = ["RemoteReply"]

_PATH: Final = "/chat/completions"
_DONE: Final = "[DONE]"
# After the reply's last word: for the numbers, which some servers never send.
_FAREWELL_S: Final = 5.0
# Steps happen elsewhere, and nobody tells of them.
_UNKNOWN_STEP: Final = Step((), (), 0, 0, 0.0)


class RemoteReply:
    """Asks for a reply and reports how it goes. `emit` gets every event but the last; for `refused` see `RequestBody`.

    `Queued.seed` is 0 where the user has set none: the server draws one and does not tell.

    Raises:
        UsageError: the request asks for what no such server can do.
    """

    def __init__(
        self,
        request: GenerateRequest,
        facts: ServerFacts,
        sampling_names: Collection[str],
        refused: set[str],
        emit: Callable[[RequestEvent], None],
    ) -> None:
        self._request = request
        self._facts = facts
        self._emit = emit
        self._body = RequestBody(request, facts, sampling_names, refused)
        self._meter = ReplyMeter()
        self._finish_reason: str | None = None

    @property
    def metrics(self) -> RequestMetrics:
        """The numbers so far."""
        return self._meter.snapshot()

    async def run(self, connection: Connection) -> Finished:
        """Until the reply has ended. Cancelled, it closes the stream.

        Raises:
            LocalspecError: the reply failed; what was reported before stands.
        """
        request_id = self._request.request_id
        self._emit(Queued(request_id, self._request.sampling.seed or 0, self._request.mode))
        async with AsyncExitStack() as stack:
            events = await self._begin(connection, stack)
            await self._read(await stack.enter_async_context(aclosing(events)), connection)
        return Finished(request_id, (), self._reason(), self.metrics)

    async def _begin(self, connection: Connection, stack: AsyncExitStack) -> AsyncGenerator[StreamEvent]:
        while True:
            try:
                return await stack.enter_async_context(connection.events(_PATH, self._body.fields))
            except EndpointRefusedError as error:
                if not self._body.gives_in_to(error):
                    raise

    async def _read(self, events: AsyncIterator[StreamEvent], connection: Connection) -> None:
        url = connection.endpoint.url
        try:
            while True:
                async with asyncio.timeout(_FAREWELL_S if self._finish_reason is not None else None):
                    event = await anext(events, None)
                if event is None:
                    break
                if event.data.strip() == _DONE:
                    self._finish_reason = self._finish_reason or "stop"
                    return
                if event.name == "error":
                    raise refusal(connection.endpoint, error_of(event.data))
                if event.data.strip():
                    self._take(read_chunk(event.data, url), connection.endpoint)
        except (TimeoutError, EndpointError) as error:
            if self._finish_reason is None or isinstance(error, EndpointRefusedError):
                raise
        if self._finish_reason is None:
            raise EndpointUnreachableError(
                f"{url} has ended its answer before the reply was complete.",
                hint="Send the prompt again; if it happens again, look at the server's log.",
            )

    def _take(self, chunk: Chunk, endpoint: Endpoint) -> None:
        if chunk.error is not None:
            raise refusal(endpoint, chunk.error)
        request_id = self._request.request_id
        self._meter.take(chunk)
        self._finish_reason = chunk.finish_reason or self._finish_reason
        if (progress := chunk.progress) is not None:
            self._emit(Prefilling(request_id, progress.n_done, progress.n_total, progress.n_cached))
        spans = tuple(
            TextSpan(text, Origin.TARGET, is_reasoning=is_reasoning)
            for text, is_reasoning in ((chunk.reasoning, True), (chunk.text, False))
            if text
        )
        if spans:
            self._emit(StepDecoded(request_id, spans, _UNKNOWN_STEP, self.metrics))

    def _reason(self) -> FinishReason:
        """Servers say "length" for both limits: which of the two it was, the counts tell."""
        if self._finish_reason == "content_filter":
            raise EndpointRefusedError(
                "The server's filter has ended the reply.", status=None, hint="Ask in other words."
            )
        if self._finish_reason != "length":
            return FinishReason.STOP
        said, n_ctx = self._meter.reported, self._facts.n_ctx
        n_used = (said.n_prompt_tokens or 0) + (said.n_tokens or 0)
        is_full = n_ctx is not None and n_used >= n_ctx and said.n_tokens != self._request.max_tokens
        return FinishReason.CONTEXT_FULL if is_full else FinishReason.LENGTH
