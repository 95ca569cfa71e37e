"""The engine for asyncio: admits requests, hands out their events, and ends each of them in one of six ways.

A request is open from its admission until the engine has said that it ended, also when nobody reads its events any
more: what the engine still works on counts. At most `n_parallel + n_queue` are open.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final, Protocol, Self, TypeVar

from localspec.engine.client import Engine
from localspec.engine.events import (
    Cancelled,
    Failed,
    Finished,
    Loaded,
    LoadEvent,
    LoadFailed,
    Loading,
    RequestEvent,
    StepDecoded,
)
from localspec.engine.metrics import RequestMetrics
from localspec.engine.questions import Answer, AnswerEvent, AnswerValue, Question, Refusal
from localspec.engine.requests import GenerateRequest, Mode, PairSpec, SamplingParams
from localspec.errors import (
    BusyError,
    LocalspecError,
    RequestTimeoutError,
    ShuttingDownError,
    StillLoadingError,
    UsageError,
)
from localspec.server.replies import Replies, Reply

__all__ = ["EngineService", "Observer", "OpenRequest", "Outcome", "RequestInfo", "ServiceState"]

logger = logging.getLogger(__name__)

_Event = TypeVar("_Event")

_N_RECENT: Final = 32  # requests whose times say how long a place in the queue takes to become free
_DEFAULT_REQUEST_S: Final = 5.0  # until the first has ended
_MAX_RETRY_AFTER_S: Final = 120.0
_MOST_QUESTIONS: Final = 64  # open at once, whatever the queue of replies is
_END_WAIT_S: Final = 2.0  # for the engine to confirm what was cancelled at the end


class ServiceState(StrEnum):
    """What the endpoint can do now."""

    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"  # the models could not be loaded; the next request tries again
    STOPPING = "stopping"


class Outcome(StrEnum):
    """How a request ended; every request has exactly one."""

    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"  # the client went away
    TIMED_OUT = "timed_out"
    SHUT_DOWN = "shut_down"
    REFUSED = "refused"  # it was never admitted


_OUTCOMES: Final[dict[type[RequestEvent], Outcome]] = {
    Finished: Outcome.FINISHED,
    Failed: Outcome.FAILED,
    Cancelled: Outcome.CANCELLED,
}


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """What observers get to know of a request, whatever it is about. `endpoint`: the path of the route."""

    endpoint: str
    sampling: SamplingParams
    mode: Mode
    is_streamed: bool = False

    @classmethod
    def of(cls, endpoint: str, request: GenerateRequest, *, is_streamed: bool = False) -> Self:
        """Of a request to an endpoint."""
        return cls(endpoint, request.sampling, request.mode, is_streamed)


class Observer(Protocol):
    """Who wants to know of all requests. Called on the event loop, in order; must be quick."""

    def observe(self, info: RequestInfo, event: RequestEvent) -> None:
        """The engine reported an event of an admitted request."""

    def ended(self, info: RequestInfo, outcome: Outcome, elapsed_s: float) -> None:
        """A request ended, `elapsed_s` after it came; of an admitted one, after its last event. Refused ones, too."""


@dataclass(slots=True)
class OpenRequest:
    """A request that the engine works on, or that waits. `metrics`: of its last step; None before the first."""

    request: GenerateRequest
    info: RequestInfo
    replies: Replies
    submitted_at: float  # on time.monotonic
    last_event: RequestEvent | None = None
    metrics: RequestMetrics | None = None
    cut_short: Outcome | None = None  # why the endpoint itself ended it
    timer: asyncio.TimerHandle | None = None


class EngineService:
    """One engine, shared by all requests. Made and used on one event loop.

    `request_timeout_s`: the most that a request may take from its admission on; None: no limit.
    """

    def __init__(
        self, engine: Engine, *, n_parallel: int = 4, n_queue: int = 64, request_timeout_s: float | None = None
    ) -> None:
        self._engine = engine
        self.n_parallel = n_parallel
        self.n_queue = n_queue
        self.observers: list[Observer] = []
        self.loaded: Loaded | None = None  # of the last load that succeeded
        self.loaded_at = 0  # when that was, in seconds since 1970
        self.loading: Loading | None = None  # its progress, while there is one
        self.load_error: LocalspecError | None = None
        self.pair: PairSpec | None = None
        self._request_timeout_s = request_timeout_s
        self._open: dict[str, OpenRequest] = {}
        self._n_asked = 0
        self._recent_s: deque[float] = deque(maxlen=_N_RECENT)
        self._stopping = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._loop: asyncio.AbstractEventLoop | None = None

    # --- the pair ------------------------------------------------------------------------------------------------

    async def start(self, pair: PairSpec) -> Loaded:
        """Load a pair and return when it is ready.

        Raises:
            LocalspecError: why it is not.
        """
        loop = self._loop = asyncio.get_running_loop()
        self.pair = pair
        ready: asyncio.Future[Loaded] = loop.create_future()

        def on_event(event: LoadEvent) -> None:
            self._note_load(event)
            if ready.done():
                return
            if isinstance(event, Loaded):
                ready.set_result(event)
            elif isinstance(event, LoadFailed):
                ready.set_exception(event.error)

        self._engine.load(pair, partial(self._on_loop, on_event))
        return await ready

    def _note_load(self, event: LoadEvent) -> None:
        """Also of an engine that died and loads its pair again."""
        if isinstance(event, Loading):
            self.loading = event
            return
        self.loading = None
        if isinstance(event, Loaded):
            self.loaded, self.load_error, self.loaded_at = event, None, int(time.time())
        else:
            self.load_error = event.error
            # Who starts it is told by the error, and whoever ends it while it loads makes that fail.
            if self.loaded is not None and not self._stopping:
                logger.warning("The models could not be loaded: %s", event.error)

    @property
    def state(self) -> ServiceState:
        """What the endpoint can do now. A pair that is loaded again after the engine died counts as loading."""
        if self._stopping:
            return ServiceState.STOPPING
        if self.load_error is not None:
            return ServiceState.FAILED
        if self.loaded is None or self.loading is not None:
            return ServiceState.LOADING
        return ServiceState.READY

    def require_loaded(self) -> Loaded:
        """The pair that is served.

        Raises:
            StillLoadingError: none is loaded yet.
        """
        if self.loaded is None:
            what = f"{self.loading.what}, {self.loading.fraction:.0%}." if self.loading else "The models are loading."
            raise StillLoadingError(what, hint="Ask again when GET /health answers with 200.")
        return self.loaded

    @property
    def process_id(self) -> int | None:
        """The engine process, for memory figures."""
        return self._engine.process_id

    # --- requests ------------------------------------------------------------------------------------------------

    @property
    def capacity(self) -> int:
        """Requests that may be open at once: running and waiting."""
        return self.n_parallel + self.n_queue

    @property
    def open_requests(self) -> Sequence[OpenRequest]:
        """The requests that the engine has, the oldest first."""
        return tuple(self._open.values())

    def generate(self, request: GenerateRequest, info: RequestInfo) -> Reply:
        """Admit a request; its events, up to `Finished`. Close the reply, or leave its `async with`, to cancel it.

        Raises:
            BusyError: too many requests are open.
            StillLoadingError: the models are not loaded yet.
            ShuttingDownError: the endpoint is about to end.
            EngineError: the engine cannot be started.
        """
        return Reply(self.generate_all([request], info))

    def generate_all(self, requests: Sequence[GenerateRequest], info: RequestInfo) -> Replies:
        """Admit requests that belong together, all or none; see `generate`."""
        try:
            self._check_room(len(requests))
        except LocalspecError:
            for observer in self.observers:
                for _ in requests:
                    observer.ended(info, Outcome.REFUSED, 0.0)
            raise
        loop = asyncio.get_running_loop()
        replies = Replies(requests, self._cancel)
        for request in requests:
            opened = OpenRequest(request, info, replies, time.monotonic())
            self._open[request.request_id] = opened
            self._idle.clear()
            if self._request_timeout_s is not None:
                opened.timer = loop.call_later(self._request_timeout_s, self._time_out, request.request_id)
        for request in requests:
            try:
                self._engine.submit(request, partial(self._on_loop, self._on_event))
            except LocalspecError as error:
                self._on_event(Failed(request.request_id, error))
        return replies

    def _check_room(self, n_requests: int) -> None:
        if self._stopping:
            raise ShuttingDownError("The endpoint is shutting down.", hint="Ask again when it has been started anew.")
        self.require_loaded()
        if n_requests > self.capacity:
            raise UsageError(
                f"The request asks for {n_requests} replies; at most {self.capacity} can run and wait.",
                hint="Ask for fewer at once.",
            )
        if len(self._open) + n_requests > self.capacity:
            raise BusyError(
                f"{len(self._open)} requests run or wait, and {self.capacity} may.",
                retry_after_s=self.retry_after_s,
                hint="Try again later, or start the endpoint with a larger --parallel or --queue.",
            )

    @property
    def retry_after_s(self) -> float:
        """When a place should be free: `n_parallel` requests at once leave one every so many seconds."""
        mean_s = sum(self._recent_s) / len(self._recent_s) if self._recent_s else _DEFAULT_REQUEST_S
        return min(max(1.0, mean_s / self.n_parallel), _MAX_RETRY_AFTER_S)

    def _on_event(self, event: RequestEvent) -> None:
        opened = self._open.get(event.request_id)
        if opened is None:
            return
        opened.last_event = event
        if isinstance(event, StepDecoded | Finished | Cancelled):
            opened.metrics = event.metrics
        for observer in self.observers:
            observer.observe(opened.info, event)
        if isinstance(event, Finished | Cancelled | Failed):
            self._close(opened, event)
        opened.replies.push(event)

    def _close(self, opened: OpenRequest, event: Finished | Cancelled | Failed) -> None:
        del self._open[opened.request.request_id]
        if not self._open:
            self._idle.set()
        if opened.timer is not None:
            opened.timer.cancel()
        elapsed_s = time.monotonic() - opened.submitted_at
        if isinstance(event, Finished):
            self._recent_s.append(elapsed_s)
        outcome = opened.cut_short or _OUTCOMES[type(event)]
        for observer in self.observers:
            observer.ended(opened.info, outcome, elapsed_s)

    def _cancel(self, request_id: str) -> None:
        if request_id in self._open:
            self._engine.cancel(request_id)

    def _cut_short(self, opened: OpenRequest, outcome: Outcome, error: LocalspecError) -> None:
        opened.cut_short = outcome
        opened.replies.end(error)

    def _time_out(self, request_id: str) -> None:
        opened = self._open.get(request_id)
        if opened is not None:
            error = RequestTimeoutError(
                f"The request took longer than {self._request_timeout_s:g} s and was stopped.",
                hint="Ask for fewer tokens, or start the endpoint with a longer --timeout.",
            )
            self._cut_short(opened, Outcome.TIMED_OUT, error)

    # --- questions -----------------------------------------------------------------------------------------------

    async def ask(self, question: Question) -> AnswerValue:
        """The engine's answer to a question; its type is that of the question, see `localspec.engine.questions`.

        Raises:
            BusyError: too many questions are open.
            StillLoadingError: the models are not loaded yet.
            LocalspecError: why there is no answer.
        """
        self.require_loaded()
        if self._n_asked >= max(_MOST_QUESTIONS, self.capacity):
            raise BusyError(f"{self._n_asked} questions wait for an answer already.", retry_after_s=1.0)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[AnswerValue] = loop.create_future()

        def on_answer(event: AnswerEvent) -> None:
            self._n_asked -= 1
            if answer.done():
                return
            if isinstance(event, Answer):
                answer.set_result(event.value)
            else:
                answer.set_exception(event.error)

        self._n_asked += 1
        try:
            self._engine.ask(question, partial(self._on_loop, on_answer))
        except LocalspecError as error:
            on_answer(Refusal(error))
        return await answer

    # --- the end -------------------------------------------------------------------------------------------------

    async def stop(self, limit_s: float) -> None:
        """Refuse new requests, let those that run finish for up to `limit_s` seconds, then end the rest and the engine.

        May be called again, with a shorter limit, while it runs.
        """
        self._stopping = True
        await self._wait_until_idle(limit_s)
        error = ShuttingDownError("The endpoint is shutting down; the reply was not finished.")
        for opened in list(self._open.values()):
            self._cut_short(opened, Outcome.SHUT_DOWN, error)
        await self._wait_until_idle(_END_WAIT_S)
        await asyncio.to_thread(self._engine.close)

    async def _wait_until_idle(self, limit_s: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), limit_s)

    def _on_loop(self, function: Callable[[_Event], None], event: _Event) -> None:
        """Listeners are called on the engine's thread."""
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop has ended, and with it everybody who could listen
                loop.call_soon_threadsafe(function, event)
