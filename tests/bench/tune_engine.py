"""An engine for the tests of tuning: it takes the time that a function of the settings says, on a clock of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from localspec.engine.events import Finished, FinishReason, Loaded, Prefilling, Queued, RequestEvent, Step, StepDecoded
from localspec.engine.metrics import MetricsRecorder
from localspec.engine.requests import ChatPrompt, GenerateRequest, Mode, PairSpec
from localspec.errors import ContextFullError, DoesNotFitError, EngineError
from localspec.speculative.rejection import Origin

SecondsPerToken = Callable[[PairSpec, GenerateRequest], float]


@dataclass
class ScriptedEngine:
    """Replies with as many tokens as are asked for, one per step; `load_s` and `read_s` (per prompt) pass on the clock.

    `unloadable` and `unrunnable` say what is refused. `log` holds every load and every request that was begun.
    """

    token_s: SecondsPerToken
    load_s: float = 0.0
    read_s: float = 0.0
    gpu: bool = False
    n_ctx: int = 10_000
    n_tokens_at_most: int = 10_000
    unloadable: Callable[[PairSpec], bool] = lambda _: False
    unrunnable: Callable[[GenerateRequest], bool] = lambda _: False
    mode_of: Callable[[GenerateRequest], tuple[Mode, str]] = lambda request: (request.mode, "")
    time: float = 0.0
    pair: PairSpec | None = None
    log: list[PairSpec | GenerateRequest] = field(default_factory=list)
    n_cancelled: int = 0

    def now(self) -> float:
        return self.time

    @property
    def loads(self) -> list[PairSpec]:
        return [each for each in self.log if isinstance(each, PairSpec)]

    @property
    def requests(self) -> list[GenerateRequest]:
        return [each for each in self.log if isinstance(each, GenerateRequest)]

    def load_and_wait(self, pair: PairSpec, listener: object = None) -> Loaded:
        self.log.append(pair)
        self.time += self.load_s
        self.pair = None
        if self.unloadable(pair):
            raise DoesNotFitError("It does not fit.")
        self.pair = pair
        return Loaded(
            "target", "draft" if pair.draft else None, self.n_ctx, 1000, pair.n_threads or 2, 1, self.gpu, True
        )

    def stream(self, request: GenerateRequest) -> Iterator[RequestEvent]:
        ended = False
        try:
            yield from self._events(request)
            ended = True
        finally:
            self.n_cancelled += not ended

    def _events(self, request: GenerateRequest) -> Iterator[RequestEvent]:
        assert self.pair is not None, "nothing is loaded"
        assert isinstance(request.prompt, ChatPrompt)
        self.log.append(request)
        mode, note = self.mode_of(request)
        yield Queued(request.request_id, 1, mode, note)
        if self.unrunnable(request):
            raise EngineError("It fails.")
        n_prompt = len(request.prompt.messages[-1].content)
        if n_prompt >= self.n_ctx:
            raise ContextFullError.for_prompt(n_prompt, self.n_ctx)
        recorder = MetricsRecorder(self.now)
        recorder.prompt(n_prompt, 0)
        self.time += self.read_s
        recorder.prefilled(self.read_s)
        yield Prefilling(request.request_id, n_prompt, n_prompt, 0)
        seconds = self.token_s(self.pair, request)
        for token in range(min(request.max_tokens or 100, self.n_tokens_at_most)):
            self.time += seconds
            recorder.step(
                n_tokens=1,
                n_draft=0,
                n_accepted=0,
                source=None,
                draft_s=0.0,
                draft_pass_s=0.0,
                verify_s=seconds,
                judge_s=0.0,
                step_s=seconds,
            )
            step = Step((token,), (Origin.TARGET,), 0, 0, seconds)
            yield StepDecoded(request.request_id, (), step, recorder.snapshot())
        yield Finished(request.request_id, (), FinishReason.LENGTH, recorder.snapshot())
