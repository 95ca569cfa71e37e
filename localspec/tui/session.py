"""One user, one engine: what was said, what runs now, and how the next reply will be asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto

from localspec.engine.client import Engine
from localspec.engine.events import (
    Cancelled,
    Failed,
    Finished,
    Loaded,
    LoadEvent,
    LoadFailed,
    Loading,
    Queued,
    SwapEvent,
    SwapFailed,
)
from localspec.engine.requests import ChatPrompt, GenerateRequest, Mode, PairSpec
from localspec.tui.bridge import Decoded, EngineEvent, LoadReport, Report, Swapped
from localspec.tui.conversation import Conversation, Exchange, Outcome, Reply
from localspec.tui.options import ChatOptions


class Readiness(Enum):
    """Whether the engine can take a request."""

    EMPTY = auto()  # no pair was chosen yet
    LOADING = auto()
    READY = auto()
    FAILED = auto()


class Session:
    """Keeps the state of the chat. Events change it through `take`; the screen draws what it finds here.

    A prompt that is sent while the models load waits and is submitted when they are ready. One reply runs at a time.
    """

    def __init__(
        self, engine: Engine, pair: PairSpec | None, options: ChatOptions, listener: Callable[[EngineEvent], None]
    ) -> None:
        self._engine = engine
        self._options = options
        self._listener = listener
        self._request_id: str | None = None
        self._n_loads = 0
        self._n_changes = 0  # loads, and exchanges of the draft model
        self.pair = pair  # what is loaded, or was to be loaded last
        self.conversation = Conversation(options.system)
        self.mode = options.mode  # of the next reply
        self.readiness = Readiness.LOADING if pair is not None else Readiness.EMPTY
        self.loaded: Loaded | None = None
        self.open: Exchange | None = None

    def load(self) -> None:
        """Load the pair, or load it again after a failure; nothing where none was chosen.

        Raises:
            LocalspecError: the engine refuses.
        """
        if self.pair is None:
            return
        self._n_loads += 1
        self._n_changes += 1
        number = self._n_loads

        def listen(event: LoadEvent) -> None:
            # The end of a load that another one has replaced is nobody's concern. The engine reports to this listener
            # again when it has to start anew.
            if number == self._n_loads:
                self._listener(event)

        self.readiness = Readiness.LOADING
        self.loaded = None
        self._engine.load(self.pair, listen)

    def use(self, pair: PairSpec) -> bool:
        """Load another pair, or exchange only the draft model where the target is the one that is loaded.

        No request may be running. Returns False where there is nothing to do.

        Raises:
            LocalspecError: the engine refuses.
        """
        if (
            self.loaded is None
            or self.pair is None
            or replace(pair, draft=None, name="") != replace(self.pair, draft=None, name="")
        ):
            self.pair = pair
            self.load()
            return True
        if pair.draft == self.pair.draft and self.readiness is Readiness.READY:
            return False
        self._n_changes += 1
        number = self._n_changes

        def listen(event: SwapEvent) -> None:
            if number == self._n_changes:
                self._listener(Swapped(event, pair) if isinstance(event, Loaded) else event)

        self.readiness = Readiness.LOADING
        self._engine.swap_draft(pair.draft, listen)
        return True

    def send(self, prompt: str) -> Exchange:
        """Ask for a reply; there must be none open, and a pair must have been chosen.

        Raises:
            LocalspecError: the request is refused; nothing has changed then.
        """
        if self.open is not None or self.readiness is Readiness.EMPTY:
            raise RuntimeError("A reply is open, or there is no pair.")
        exchange = Exchange(prompt, Reply(self.mode if self.takes_modes else None))
        if self.readiness is Readiness.READY:
            self._submit(exchange)
        elif self.readiness is Readiness.FAILED:
            self.load()
        self.conversation.exchanges.append(exchange)
        self.open = exchange
        return exchange

    def submit_waiting(self) -> None:
        """Submit the prompt that waits for the models, if there is one and they are ready.

        Raises:
            LocalspecError: the request is refused.
        """
        if self.readiness is Readiness.READY and self.open is not None and self._request_id is None:
            self._submit(self.open)

    def stop(self) -> Exchange | None:
        """Stop the open reply. One that the engine runs ends with its event; one that waits for the models ends here.

        Returns the exchange that ended here, if any.
        """
        exchange = self.open
        if exchange is None:
            return None
        if self._request_id is not None:
            self._engine.cancel(self._request_id)
            return None
        self._end(Outcome.STOPPED)
        return exchange

    def forget(self) -> None:
        """Start an empty chat. What still runs is stopped, and its events are ignored from here on."""
        if self._request_id is not None:
            self._engine.cancel(self._request_id)
        self._request_id = None
        self.open = None
        self.conversation = Conversation(self._options.system)

    def take_back(self) -> Exchange | None:
        """Remove the last exchange, so that its prompt can be sent again; None if there is none, or it is open."""
        if self.open is not None or not self.conversation.exchanges:
            return None
        return self.conversation.exchanges.pop()

    def take(self, report: Report) -> Exchange | None:
        """Note what the engine reports. Returns the exchange that it is about, if it is about an open one."""
        if isinstance(report, Loading | Loaded | LoadFailed | Swapped | SwapFailed):
            self._take_load(report)
            return None
        exchange = self.open
        if exchange is None or report.request_id != self._request_id:
            return None
        reply = exchange.reply
        match report:
            case Queued(mode=mode):
                reply.mode = mode if self.takes_modes else None
            case Decoded(spans=spans, metrics=metrics):
                reply.extend(spans)
                reply.metrics = metrics
            case Finished(spans=spans, reason=reason, metrics=metrics):
                reply.extend(spans)
                reply.metrics, reply.reason = metrics, reason
                self._end(Outcome.FINISHED)
            case Cancelled(spans=spans, metrics=metrics):
                reply.extend(spans)
                reply.metrics = metrics
                self._end(Outcome.STOPPED)
            case Failed():
                self._end(Outcome.FAILED)
        return exchange

    def withdraw(self) -> Exchange | None:
        """End the open exchange as failed if the engine has not been asked for it; returns it."""
        exchange = self.open
        if exchange is None or self._request_id is not None:
            return None
        self._end(Outcome.FAILED)
        return exchange

    @property
    def is_running(self) -> bool:
        """Whether the engine works on a request."""
        return self._request_id is not None

    @property
    def takes_modes(self) -> bool:
        """Whether a reply can be asked for in a mode; so it is taken to be until the models are known."""
        return self.loaded is None or self.loaded.takes_modes

    def _take_load(self, report: LoadReport) -> None:
        match report:
            case Loading():
                self.readiness = Readiness.LOADING
            case Loaded():
                self.readiness = Readiness.READY
                self.loaded = report
            case Swapped(loaded=loaded, pair=pair):
                self.readiness = Readiness.READY
                self.loaded, self.pair = loaded, pair
            case SwapFailed(loaded=loaded):
                self.readiness = Readiness.READY if loaded is not None else Readiness.FAILED
                self.loaded = loaded
                if loaded is not None and loaded.draft_name is None and self.pair is not None:
                    self.pair = replace(self.pair, draft=None)
            case LoadFailed():
                self.readiness = Readiness.FAILED
                self.loaded = None

    def _submit(self, exchange: Exchange) -> None:
        mode = exchange.reply.mode or self.mode
        request = GenerateRequest(
            prompt=ChatPrompt(self.conversation.messages(exchange.prompt)),
            sampling=self._options.sampling,
            mode=mode,
            num_speculative_tokens=self._options.num_speculative_tokens,
            fixed_length=self._options.fixed_length and mode is not Mode.AUTO,
            max_tokens=self._options.max_tokens,
        )
        self._engine.submit(request, self._listener)
        self._request_id = request.request_id

    def _end(self, outcome: Outcome) -> None:
        if self.open is not None:
            self.open.reply.outcome = outcome
        self.open = None
        self._request_id = None
