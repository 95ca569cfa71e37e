"""The engine as a front end sees it: submit, cancel, events. The models live in a process of their own.

llama.cpp ends its process on a failed assertion; here that ends replies, not the program. When the engine process
dies, every open request gets `Failed`, and the next one starts a new process and loads the same pair again.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol, Self

from localspec.engine.events import (
    Cancelled,
    Failed,
    Finished,
    Loaded,
    LoadEvent,
    LoadFailed,
    RequestEvent,
    SwapEvent,
    SwapFailed,
)
from localspec.engine.process import AnswerListener, EngineProcess, LoadListener, RequestListener, SwapListener
from localspec.engine.protocol import Ask, Cancel, CancelSwap, Load, SwapDraft
from localspec.engine.questions import AnswerEvent, AnswerValue, Question, Refusal
from localspec.engine.requests import GenerateRequest, ModelSpec, PairSpec
from localspec.errors import EngineError

__all__ = ["AnswerListener", "Engine", "EngineClient", "LoadListener", "RequestListener", "SwapListener"]


class Engine(Protocol):
    """What every front end talks to. Listeners are called from a thread of the engine's own, in order."""

    def load(self, pair: PairSpec, listener: LoadListener) -> None:
        """Start loading a pair, replacing the one before; returns at once."""

    def swap_draft(self, draft: ModelSpec | None, listener: SwapListener) -> None:
        """Exchange the draft model of the pair, or take it away (None); returns at once. The target stays loaded.

        It takes its turn: replies that were asked for before it end with the old draft model, those after it begin
        with the new one. The listener gets `Loading`, then `Loaded` or `SwapFailed`: a draft model that is refused
        leaves the old one in place. A later call cancels an earlier one that has not ended.
        """

    def cancel_swap(self) -> None:
        """Keep the draft model that is loaded, unless the exchange that was asked for last has ended."""

    def submit(self, request: GenerateRequest, listener: RequestListener) -> None:
        """Queue a request; returns at once. The listener gets exactly one terminal event."""

    def cancel(self, request_id: str) -> None:
        """Stop a request within one step. Unknown and ended requests are ignored."""

    def ask(self, question: Question, listener: AnswerListener) -> None:
        """Ask something of the loaded model; returns at once. The listener gets one `Answer` or `Refusal`."""

    def close(self) -> None:
        """End the engine; open requests get a terminal event first. May be called twice."""

    @property
    def process_id(self) -> int | None:
        """The process that holds the models, for memory figures; None while there is none."""


class EngineClient:
    """Runs the engine in a child process. Implements `Engine`; safe to call from any thread.

    Example:
        with EngineClient() as engine:
            engine.load_and_wait(pair)
            for event in engine.stream(GenerateRequest(RawPrompt("Once upon a time"), max_tokens=50)):
                if isinstance(event, StepDecoded):
                    print("".join(span.text for span in event.spans), end="")
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a listener may submit the next request
        self._process: EngineProcess | None = None
        self._pair: PairSpec | None = None  # what a new process loads
        self._pair_id = 0  # of the load that has set it
        self._load_listener: LoadListener | None = None
        self._load_id = 0
        self._last_load = 0  # of a pair
        self._has_failed = False  # that one
        self._ask_id = 0
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def process_id(self) -> int | None:
        """The engine process, or None while there is none."""
        process = self._process
        return process.pid if process is not None and process.is_alive else None

    def load(self, pair: PairSpec, listener: LoadListener) -> None:
        """Start loading a pair, replacing the one before; `listener` gets `Loading`, then `Loaded` or `LoadFailed`."""
        with self._lock:
            self._pair, self._load_listener = pair, listener
            self._start_load()
            self._pair_id = self._load_id

    def swap_draft(self, draft: ModelSpec | None, listener: SwapListener) -> None:
        """Exchange the draft model and keep the target; see `Engine`. An engine that has died loads the pair first.

        Raises:
            EngineError: no pair was loaded, or the engine is closed.
        """
        with self._lock:
            process, pair_id = self._ready_process(), self._pair_id

            def on_event(event: SwapEvent) -> None:
                if isinstance(event, Loaded):
                    self._note_draft(draft, pair_id)
                listener(event)

            self._load_id += 1
            process.swap_draft(SwapDraft(self._load_id, draft), on_event)

    def _note_draft(self, draft: ModelSpec | None, pair_id: int) -> None:
        """A new process loads the pair with this draft model, if it is still the same pair."""
        with self._lock:
            if self._pair is not None and self._pair_id == pair_id:
                self._pair = replace(self._pair, draft=draft)

    def cancel_swap(self) -> None:
        """Keep the draft model that is loaded, unless the exchange that was asked for last has ended."""
        process = self._process
        if process is not None:
            process.send(CancelSwap(self._load_id))

    def submit(self, request: GenerateRequest, listener: RequestListener) -> None:
        """Queue a request. When the engine process has died, a new one is started and loads the pair first.

        Where the pair could not be loaded, that is tried again: memory may be free by now, a disk be back.
        """
        with self._lock:
            if self._has_failed:
                self._start_load()
            self._ready_process().submit(request, listener)

    def cancel(self, request_id: str) -> None:
        """Stop a request within one step."""
        process = self._process
        if process is not None:
            process.send(Cancel(request_id))

    def ask(self, question: Question, listener: AnswerListener) -> None:
        """Ask something of the loaded model, of a new process if the one before has died."""
        with self._lock:
            self._ask_id += 1
            self._ready_process().ask(Ask(self._ask_id, question), listener)

    def close(self) -> None:
        """End the engine process; open requests get `Failed` first."""
        with self._lock:
            self._closed = True
            process, self._process = self._process, None
        if process is not None:
            process.close()

    def _ready_process(self) -> EngineProcess:
        """The engine process, started again if it has died."""
        if self._pair is None:
            raise EngineError("No model is loaded.", hint="Load a pair first.")
        if self._process is None or not self._process.is_alive:
            self._start_load()
        assert self._process is not None
        return self._process

    def _start_load(self) -> None:
        if self._closed:
            raise EngineError("The engine was closed.")
        assert self._pair is not None
        assert self._load_listener is not None
        if self._process is None or not self._process.is_alive:
            self._process = EngineProcess()
        self._load_id += 1
        self._has_failed = False
        load_id, listener = self._load_id, self._load_listener
        self._last_load = load_id

        def on_event(event: LoadEvent) -> None:
            if isinstance(event, LoadFailed) and self._last_load == load_id:
                self._has_failed = True
            listener(event)

        self._process.load(Load(load_id, self._pair), on_event)

    # --- for callers that wait -----------------------------------------------------------------------------------

    def load_and_wait(self, pair: PairSpec, listener: LoadListener = lambda _: None) -> Loaded:
        """Load a pair and return when it is ready.

        Raises:
            LocalspecError: why it is not.
        """
        events: queue.SimpleQueue[LoadEvent] = queue.SimpleQueue()
        self.load(pair, events.put)
        while True:
            event = events.get()
            listener(event)
            if isinstance(event, LoadFailed):
                raise event.error
            if isinstance(event, Loaded):
                return event

    def swap_draft_and_wait(self, draft: ModelSpec | None, listener: SwapListener = lambda _: None) -> Loaded:
        """Exchange the draft model and return when the new one is ready.

        Raises:
            LocalspecError: why it is not; the pair is as it was, see `SwapFailed`.
        """
        events: queue.SimpleQueue[SwapEvent] = queue.SimpleQueue()
        self.swap_draft(draft, events.put)
        while True:
            event = events.get()
            listener(event)
            if isinstance(event, SwapFailed):
                raise event.error
            if isinstance(event, Loaded):
                return event

    def ask_and_wait(self, question: Question) -> AnswerValue:
        """Ask something of the loaded model.

        Raises:
            LocalspecError: there is no answer.
        """
        answers: queue.SimpleQueue[AnswerEvent] = queue.SimpleQueue()
        self.ask(question, answers.put)
        answer = answers.get()
        if isinstance(answer, Refusal):
            raise answer.error
        return answer.value

    def stream(self, request: GenerateRequest) -> Iterator[RequestEvent]:
        """The events of a request, up to and including `Finished` or `Cancelled`. Leaving the loop early cancels it.

        Raises:
            LocalspecError: the request failed.
        """
        events: queue.SimpleQueue[RequestEvent] = queue.SimpleQueue()
        self.submit(request, events.put)
        ended = False
        try:
            while not ended:
                event = events.get()
                ended = isinstance(event, Finished | Cancelled | Failed)
                if isinstance(event, Failed):
                    raise event.error
                yield event
        finally:
            if not ended:
                self.cancel(request.request_id)
