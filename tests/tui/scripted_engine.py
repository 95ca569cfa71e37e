"""An engine that plays scripts: the screen's tests decide what it reports, and when."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from localspec.engine.client import LoadListener, RequestListener, SwapListener
from localspec.engine.events import (
    Cancelled,
    Finished,
    FinishReason,
    Loaded,
    LoadEvent,
    RequestEvent,
    Step,
    StepDecoded,
    SwapEvent,
    TextSpan,
)
from localspec.engine.metrics import RequestMetrics
from localspec.engine.requests import GenerateRequest, ModelSpec, PairSpec
from localspec.errors import LocalspecError
from localspec.memory.usage import MemoryUse
from localspec.speculative.drafter import DraftSource
from localspec.speculative.rejection import Origin

GIB = 2**30
MIB = 2**20

LOADED = Loaded(
    target_name="SmolLM2-135M-Instruct F32",
    draft_name="SmolLM2-135M-Instruct Q4_1",
    n_ctx=8192,
    n_vocab=49152,
    n_threads=8,
    weights_bytes=612 * MIB,
    gpu_offload=False,
    has_chat_template=True,
)


MEMORY = MemoryUse(host_bytes=812 * MIB, gpu_bytes=None)


def metrics(**changes: Any) -> RequestMetrics:
    """The numbers of a reply that goes well, or with changes."""
    values = RequestMetrics(
        n_prompt_tokens=42,
        n_cached_tokens=0,
        n_tokens=0,
        n_steps=0,
        n_plain_steps=0,
        n_drafted=0,
        n_accepted=0,
        n_lookup_steps=0,
        n_lookup_drafted=0,
        n_lookup_accepted=0,
        acceptance_histogram=(),
        rejection_histogram=(),
        ttft_s=0.42,
        tpot_s=0.02,
        tokens_per_second=50.0,
        recent_tokens_per_second=52.3,
        itl_p50_s=0.08,
        itl_p95_s=0.1,
        prefill_s=0.4,
        draft_s=1.0,
        draft_pass_s=0.9,
        verify_s=2.0,
        judge_s=0.05,
        overhead_s=0.1,
        step_s=3.1,
        elapsed_s=3.5,
    )
    return replace(values, **changes)


# How many of five drafts each step of a scripted reply accepts, over and over; -1 is a step without a draft.
_ACCEPTED = (5, 5, 3, 5, 4, 0, 5, 2, -1, 5, 5, 1)
# Who drafts, over and over.
_SOURCES = (DraftSource.MODEL, DraftSource.LOOKUP, DraftSource.MODEL, DraftSource.MODEL)
_RATES = (38.0, 44.0, 47.5, 51.0, 52.3, 52.0, 49.0, 50.5)


def words(text: str) -> list[str]:
    """The text in pieces of about a token."""
    pieces: list[str] = []
    for character in text:
        if pieces and (pieces[-1] == " " or (character.isalnum() and pieces[-1][-1].isalnum())):
            pieces[-1] += character
        else:
            pieces.append(character)
    return pieces


def reply_events(
    text: str, *, accepted: Sequence[int] = _ACCEPTED, sources: Sequence[DraftSource] = _SOURCES
) -> list[StepDecoded]:
    """The steps that release `text`, with metrics that add up. Their request id is filled in when they are played."""
    pending = deque(words(text))
    events: list[StepDecoded] = []
    totals: Counter[str] = Counter()
    while pending:
        index = len(events)
        n_accepted = accepted[index % len(accepted)]
        n_draft = 0 if n_accepted < 0 else 5
        n_accepted = max(0, n_accepted)
        source = sources[index % len(sources)] if n_draft else None
        last = Origin.TARGET if not n_draft else Origin.BONUS if n_accepted == n_draft else Origin.RESIDUAL
        kept = Origin.COPIED if source is DraftSource.LOOKUP else Origin.DRAFT
        origins = ([kept] * n_accepted + [last])[: len(pending)]
        spans = tuple(TextSpan(pending.popleft(), origin) for origin in origins)
        totals.update(n_tokens=len(spans), n_steps=1, n_drafted=n_draft, n_accepted=n_accepted)
        if source is None:
            totals["n_plain_steps"] += 1
        elif source is DraftSource.LOOKUP:
            totals.update(n_lookup_steps=1, n_lookup_drafted=n_draft, n_lookup_accepted=n_accepted)
        step = Step(tuple(range(len(spans))), tuple(origins), n_draft, n_accepted, 0.08, source)
        rate = _RATES[index % len(_RATES)]
        events.append(StepDecoded("", spans, step, metrics(**totals, recent_tokens_per_second=rate)))
    return events


def finished(events: Sequence[StepDecoded], reason: FinishReason = FinishReason.STOP) -> Finished:
    """The end of a reply, with the metrics of its last step."""
    return Finished("", (), reason, replace(events[-1].metrics, tokens_per_second=49.8))


def complete(text: str) -> list[RequestEvent]:
    """A reply from its first step to its end."""
    events = reply_events(text)
    return [*events, finished(events)]


Caller = Callable[[Callable[[], None]], None]


def call_directly(function: Callable[[], None]) -> None:
    function()


@dataclass
class ScriptedEngine:
    """Reports what the test hands it. `caller` decides on which thread listeners are called."""

    load_events: Sequence[LoadEvent] = (LOADED,)
    replies: deque[Sequence[RequestEvent]] = field(default_factory=deque)
    caller: Caller = call_directly
    refuses_load: LocalspecError | None = None
    refuses_submit: LocalspecError | None = None
    process_id: int | None = None

    def __post_init__(self) -> None:
        self.requests: list[GenerateRequest] = []
        self.cancelled: list[str] = []
        self.n_loads = 0
        self.pairs: list[PairSpec] = []  # that were loaded
        self.drafts: list[ModelSpec | None] = []  # that were asked for in place of another
        self.n_closes = 0
        self._load_listener: LoadListener | None = None
        self._swap_listener: SwapListener | None = None
        self._listeners: dict[str, RequestListener] = {}

    def load(self, pair: PairSpec, listener: LoadListener) -> None:
        if self.refuses_load:
            raise self.refuses_load
        self.n_loads += 1
        self.pairs.append(pair)
        self._load_listener = listener
        for event in self.load_events:
            self.report_load(event)

    def swap_draft(self, draft: ModelSpec | None, listener: SwapListener) -> None:
        """Does not answer by itself: a test decides how it ends."""
        self.drafts.append(draft)
        self._swap_listener = listener

    def cancel_swap(self) -> None:
        pass

    def submit(self, request: GenerateRequest, listener: RequestListener) -> None:
        if self.refuses_submit:
            raise self.refuses_submit
        self.requests.append(request)
        self._listeners[request.request_id] = listener
        if self.replies:
            self.play(self.replies.popleft())

    def cancel(self, request_id: str) -> None:
        """Does not answer by itself: a test decides what was decoded until the engine noticed."""
        self.cancelled.append(request_id)

    def close(self) -> None:
        self.n_closes += 1

    def report_load(self, event: LoadEvent) -> None:
        """Report an event of the load."""
        assert self._load_listener is not None
        self.caller(partial(self._load_listener, event))

    def report_swap(self, event: SwapEvent) -> None:
        """Report an event of the exchange of the draft model."""
        assert self._swap_listener is not None
        self.caller(partial(self._swap_listener, event))

    def play(self, events: Iterable[RequestEvent], *, request: int = -1) -> None:
        """Report events of a request, by default the last."""
        request_id = self.requests[request].request_id
        listener = self._listeners[request_id]
        for event in events:
            self.caller(partial(listener, replace(event, request_id=request_id)))

    def play_cancelled(self) -> None:
        """The last request stops, as `cancel` asked."""
        self.play([Cancelled("", (), metrics(n_tokens=3))])
