"""An engine that plays scripts: the endpoint's tests decide what it reports, and when.

    engine = ScriptedEngine()
    engine.replies.append(complete("Hello there"))     # played when the next request comes
    ...
    engine.play([...], request=0)                      # or by hand, for a request that came before

Listeners are called on a thread of the engine's own, as those of the real one are.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from localspec.engine.client import AnswerListener, LoadListener, RequestListener, SwapListener
from localspec.engine.events import (
    Cancelled,
    Failed,
    Finished,
    FinishReason,
    Loaded,
    LoadEvent,
    ModelFacts,
    Prefilling,
    Queued,
    RequestEvent,
    Step,
    StepDecoded,
    TextSpan,
    TokenChance,
    TokenLogprobs,
)
from localspec.engine.metrics import RequestMetrics
from localspec.engine.questions import (
    Answer,
    AnswerValue,
    AskUsage,
    Detokenize,
    EngineUsage,
    Question,
    Refusal,
    Render,
    Tokenize,
)
from localspec.engine.requests import GenerateRequest, Mode, ModelSpec, PairSpec
from localspec.errors import LocalspecError, UsageError
from localspec.speculative.drafter import DraftSource
from localspec.speculative.rejection import Origin

FACTS = ModelFacts(
    path=Path("/secret/folder/model.gguf"),
    n_ctx_train=8192,
    n_parameters=134_515_008,
    n_embd=576,
    weights_bytes=538_090_408,
    chat_template=None,
    bos="<|im_start|>",
    eos="<|im_end|>",
    fills_in=False,
    embeds=False,
)
LOADED = Loaded(
    target_name="SmolLM2-135M-Instruct F32",
    draft_name="SmolLM2-135M-Instruct Q4_1",
    n_ctx=2048,
    n_vocab=49152,
    n_threads=2,
    weights_bytes=612 << 20,
    gpu_offload=False,
    has_chat_template=True,
    about=FACTS,
)
PAIR = PairSpec("scripted", ModelSpec(Path("/secret/folder/model.gguf")), n_slots=4)


def metrics(**changes: Any) -> RequestMetrics:
    """The numbers of a reply of 10 tokens in 4 steps, of which 3 drafted 5 tokens and kept 2."""
    values = RequestMetrics(
        n_prompt_tokens=42,
        n_cached_tokens=30,
        n_tokens=10,
        n_steps=4,
        n_plain_steps=1,
        n_drafted=15,
        n_accepted=6,
        n_lookup_steps=0,
        n_lookup_drafted=0,
        n_lookup_accepted=0,
        acceptance_histogram=(0, 0, 3),
        rejection_histogram=(0, 0, 3),
        ttft_s=0.4,
        tpot_s=0.02,
        tokens_per_second=50.0,
        recent_tokens_per_second=52.0,
        itl_p50_s=0.08,
        itl_p95_s=0.1,
        prefill_s=0.3,
        draft_s=0.05,
        draft_pass_s=0.04,
        verify_s=0.1,
        judge_s=0.01,
        overhead_s=0.01,
        step_s=0.2,
        elapsed_s=0.6,
    )
    return replace(values, **changes)


def step(*pieces: str, logprobs: Sequence[TokenLogprobs] = (), **changes: Any) -> StepDecoded:
    """A step that released these texts, one token each: a draft that was kept but for the last."""
    origins = (*(Origin.DRAFT for _ in pieces[1:]), Origin.RESIDUAL)
    spans = tuple(TextSpan(text, origin) for text, origin in zip(pieces, origins, strict=True))
    n_accepted = len(pieces) - 1
    done = Step(tuple(range(len(pieces))), origins, 5, n_accepted, 0.05, DraftSource.MODEL)
    return StepDecoded("", spans, done, metrics(**changes), tuple(logprobs))


def begun() -> list[RequestEvent]:
    """A request has had its turn."""
    return [Queued("", 1, Mode.AUTO), Prefilling("", 30, 42, 30)]


def finished(*, text: str = "", reason: FinishReason = FinishReason.STOP, stop: str | None = None) -> Finished:
    """The end of a reply; `text` was held back until now."""
    spans = (TextSpan(text, Origin.TARGET),) if text else ()
    return Finished("", spans, reason, metrics(), stop)


def complete(*pieces: str, reason: FinishReason = FinishReason.STOP) -> list[RequestEvent]:
    """A reply from its turn to its end, one step for each text."""
    return [*begun(), *(step(piece) for piece in pieces), finished(reason=reason)]


def chance(text: str | bytes, logprob: float, token: int = 7) -> TokenChance:
    """A token and its log-probability."""
    return TokenChance(token, text.encode() if isinstance(text, str) else text, logprob)


@dataclass
class ScriptedEngine:
    """Reports what the test hands it.

    `replies` are played to the next requests, in order; a request without one waits for `play`. With `confirms_cancels`
    a cancelled request ends with `Cancelled`. `answers` answers questions; tokens are characters unless it does.
    """

    load_events: Sequence[LoadEvent] = (LOADED,)
    replies: deque[Iterable[RequestEvent]] = field(default_factory=deque)
    confirms_cancels: bool = True
    refuses_submit: LocalspecError | None = None
    answers: Callable[[Question], AnswerValue] | None = None
    process_id: int | None = 4711

    def __post_init__(self) -> None:
        self.requests: list[GenerateRequest] = []
        self.cancelled: list[str] = []
        self.questions: list[Question] = []
        self.pairs: list[PairSpec] = []
        self.n_closes = 0
        self._listeners: dict[str, RequestListener] = {}
        self._open: set[str] = set()
        self._load_listener: LoadListener | None = None
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="scripted-engine", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    # --- Engine --------------------------------------------------------------------------------------------------

    def load(self, pair: PairSpec, listener: LoadListener) -> None:
        self.pairs.append(pair)
        self._load_listener = listener
        for event in self.load_events:
            self.report_load(event)

    def swap_draft(self, draft: ModelSpec | None, listener: SwapListener) -> None:
        raise NotImplementedError

    def cancel_swap(self) -> None:
        raise NotImplementedError

    def submit(self, request: GenerateRequest, listener: RequestListener) -> None:
        if self.refuses_submit:
            raise self.refuses_submit
        self.requests.append(request)
        self._open.add(request.request_id)
        self._listeners[request.request_id] = listener
        if self.replies:
            self.play(self.replies.popleft())

    def cancel(self, request_id: str) -> None:
        self.cancelled.append(request_id)
        if self.confirms_cancels and request_id in self._open:
            self._report(Cancelled(request_id, (), metrics()))

    def ask(self, question: Question, listener: AnswerListener) -> None:
        self.questions.append(question)
        try:
            answer: Answer | Refusal = Answer((self.answers or _characters)(question))
        except LocalspecError as error:
            answer = Refusal(error)
        self._calls.put(lambda: listener(answer))

    def close(self) -> None:
        self.n_closes += 1
        self._calls.put(None)
        self._thread.join(10)

    # --- for tests -----------------------------------------------------------------------------------------------

    @property
    def n_open(self) -> int:
        """Requests that have not ended."""
        return len(self._open)

    @property
    def open_indices(self) -> list[int]:
        """Of these requests, in the order in which they came."""
        return [index for index, request in enumerate(self.requests) if request.request_id in self._open]

    def report_load(self, event: LoadEvent) -> None:
        """Report an event of the load."""
        listener = self._load_listener
        assert listener is not None
        self._calls.put(lambda: listener(event))

    def play(self, events: Iterable[RequestEvent], *, request: int = -1) -> None:
        """Report events of a request, by default the last that came."""
        request_id = self.requests[request].request_id
        for event in events:
            self._report(replace(event, request_id=request_id))

    def _report(self, event: RequestEvent) -> None:
        listener = self._listeners[event.request_id]
        if isinstance(event, Finished | Cancelled | Failed):
            self._open.discard(event.request_id)
        self._calls.put(lambda: listener(event))


def _characters(question: Question) -> AnswerValue:
    """Tokens are characters."""
    match question:
        case Tokenize():
            return tuple(map(ord, question.text))
        case Detokenize():
            return "".join(map(chr, question.tokens)).encode()
        case Render():
            return "".join(f"<{message.role}>{message.content}" for message in question.prompt.messages) + "<assistant>"
        case AskUsage():
            return EngineUsage((), 0, LOADED.n_ctx)
        case _:
            raise UsageError("The scripted engine makes no embeddings.")
