"""The measuring of `localspec tune`: two ways to run a pair, side by side on the same prompts, through the engine."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final, Protocol

from localspec.bench.paired import Pass, in_turn
from localspec.bench.streaming import StreamingEngine, events_of
from localspec.bench.tune_search import OutOfTimeError, UnusableError
from localspec.bench.tune_space import Point, pair_at
from localspec.bench.workloads import Workload
from localspec.engine.client import LoadListener
from localspec.engine.events import Finished, Loaded, Queued, StepDecoded
from localspec.engine.metrics import RequestMetrics
from localspec.engine.requests import GenerateRequest, Mode, PairSpec, SamplingParams
from localspec.errors import ContextFullError, LocalspecError, UsageError

_FIRST_SEED: Final = 1_000
_WARM_UP_TOKENS: Final = 32
# A reply that ends sooner has too few emissions for a speed.
_MIN_TOKENS: Final = 12
_REPLY_TOKENS: Final = (64, 48, 32)
_MIN_CASES: Final = 4
# Of the budget: a pass must leave room for a dozen comparisons of two, or at the very least for one.
_PASS_SHARE: Final = 1 / 24
_MAX_PASS_SHARE: Final = 1 / 4


class TunableEngine(StreamingEngine, Protocol):
    """Loads pairs too: `EngineClient` does."""

    def load_and_wait(self, pair: PairSpec, listener: LoadListener = ...) -> Loaded:
        """Load a pair, in place of the one before.

        Raises:
            LocalspecError: why that is not possible.
        """


@dataclass(frozen=True, slots=True)
class Case:
    """A prompt at a temperature."""

    workload: Workload
    temperature: float


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the pair is without speculation: seconds per token, and per character of a prompt."""

    token_s: float
    char_s: float


def cases_in_turn(workloads: Sequence[Workload], temperatures: Sequence[float]) -> list[Case]:
    """One case per workload, the temperatures in turn; first one of every kind, then the second of each ..."""
    seen: dict[str, int] = {}
    ranked = []
    for workload in workloads:
        rank = seen[workload.kind] = seen.get(workload.kind, -1) + 1
        ranked.append((rank, workload))
    ranked.sort(key=lambda each: each[0])
    return [Case(workload, temperatures[i % len(temperatures)]) for i, (_, workload) in enumerate(ranked)]


def fit_to_budget(cases: Sequence[Case], pace: Pace, budget_s: float) -> tuple[list[Case], int]:
    """How many of the cases, and how many tokens per reply, make a pass that leaves time for many of them.

    Raises:
        UsageError: not even the shortest pass leaves time for a decision.
    """
    wanted_s = budget_s * _PASS_SHARE
    n_cases = len(cases)
    n_tokens = next((n for n in _REPLY_TOKENS if _pass_s(cases, n, pace) <= wanted_s), _REPLY_TOKENS[-1])
    while n_cases > _MIN_CASES and _pass_s(cases[:n_cases], n_tokens, pace) > wanted_s:
        n_cases -= 1
    shortest = _pass_s(cases[:n_cases], n_tokens, pace)
    if shortest > budget_s * _MAX_PASS_SHARE:
        needed_m = math.ceil(shortest / _PASS_SHARE / 60)
        raise UsageError(
            f"Comparing two settings on {n_cases} prompts once takes about {shortest:.0f} s with this pair; "
            f"the budget of {budget_s:.0f} s is too small for a decision.",
            hint=f"Give it more time: --budget {needed_m}. Or fewer and shorter prompts, with --workload.",
        )
    return list(cases[:n_cases]), n_tokens


def _pass_s(cases: Sequence[Case], n_tokens: int, pace: Pace) -> float:
    """Both ways run every case; a prompt is read once for each, if something has to be loaded between them."""
    chars = sum(len(case.workload.prompt) for case in cases)
    return 2 * (chars * pace.char_s + len(cases) * n_tokens * pace.token_s)


class PairedMeasurement:
    """A `Measure` for the search. Loads what a point needs when it is not what is loaded. Set `cases` before use.

    Two points that load the same run case by case, in turning order. Between others lie seconds of loading: there each
    runs all cases in a block, and the order of the blocks turns from pass to pass.
    """

    def __init__(
        self,
        engine: TunableEngine,
        pair: PairSpec,
        draft_gpu_layers: int,
        sampling: SamplingParams,
        *,
        now: Callable[[], float],
        on_load: LoadListener = lambda _: None,
    ) -> None:
        self.cases: list[Case] = []
        self.max_tokens = _REPLY_TOKENS[0]
        self.deadline = math.inf
        self._engine = engine
        self._pair = pair
        self._draft_gpu_layers = draft_gpu_layers
        self._sampling = sampling
        self._now = now
        self._on_load = on_load
        self._loaded_pair: PairSpec | None = None

    def load(self, point: Point) -> Loaded:
        """Load what the point needs.

        Raises:
            LocalspecError: why that is not possible.
        """
        pair = pair_at(point, self._pair, self._draft_gpu_layers)
        self._loaded_pair = None  # whatever happens, the one before is gone
        loaded = self._engine.load_and_wait(pair, self._on_load)
        self._loaded_pair = pair
        return loaded

    def pace(self, point: Point, case: Case) -> Pace:
        """How fast a loaded point is, from one short reply; the first of all, so it warms up too.

        Raises:
            LocalspecError: the reply failed.
        """
        metrics = self._reply(point, case, 0, _WARM_UP_TOKENS)
        n_read = max(1, metrics.n_prompt_tokens - metrics.n_cached_tokens)
        prefill_s = metrics.prefill_s / n_read * metrics.n_prompt_tokens
        token_s = metrics.tpot_s or metrics.step_s / max(1, metrics.n_tokens)
        return Pace(token_s, prefill_s / len(case.workload.prompt))

    def __call__(self, incumbent: Point, challenger: Point, number: int) -> Pass:
        """One pass, as the search asks for it."""
        seconds: dict[tuple[Point, int], float | None] = {}
        for point, i in self._turns(incumbent, challenger, number):
            try:
                seconds[point, i] = self._seconds_per_token(point, self.cases[i], number)
            except LocalspecError as error:
                if point == challenger:
                    raise UnusableError(error.message) from error
                raise
        ratios: list[float | None] = []
        for i in range(len(self.cases)):
            one, other = seconds[incumbent, i], seconds[challenger, i]
            ratios.append(math.log(one / other) if one and other else None)
        return ratios

    def _turns(self, incumbent: Point, challenger: Point, number: int) -> Iterator[tuple[Point, int]]:
        both = (incumbent, challenger)
        one, other = (pair_at(point, self._pair, self._draft_gpu_layers) for point in both)
        indices = range(len(self.cases))
        if one == other:
            for i in indices:
                for point in in_turn(both, i + number):
                    yield point, i
        else:
            for point in in_turn(both, number):
                for i in indices:
                    yield point, i

    def _seconds_per_token(self, point: Point, case: Case, number: int) -> float | None:
        """Decode speed on one case; None when its reply is too short to tell, or its prompt longer than the context."""
        try:
            if pair_at(point, self._pair, self._draft_gpu_layers) != self._loaded_pair:
                self.load(point)
                self._reply(point, case, number, _WARM_UP_TOKENS)
            metrics = self._reply(point, case, number, min(self.max_tokens, case.workload.max_tokens))
        except ContextFullError:
            return None
        return metrics.tpot_s if metrics.n_tokens >= _MIN_TOKENS else None

    def _reply(self, point: Point, case: Case, number: int, max_tokens: int) -> RequestMetrics:
        request = GenerateRequest(
            case.workload.chat,
            sampling=replace(self._sampling, temperature=case.temperature, seed=_FIRST_SEED + number),
            mode=point.mode,
            num_speculative_tokens=point.num_speculative_tokens,
            fixed_length=point.fixed_length,
            max_tokens=max_tokens,
        )
        metrics: RequestMetrics | None = None
        with closing(events_of(self._engine, request)) as events:
            for event in events:
                if self._now() > self.deadline:
                    raise OutOfTimeError
                if isinstance(event, Queued) and event.mode is Mode.PLAIN and point.mode is not Mode.PLAIN:
                    raise UsageError(event.mode_note or "This pair cannot speculate.")
                if isinstance(event, StepDecoded | Finished):
                    metrics = event.metrics
        assert metrics is not None
        return metrics
