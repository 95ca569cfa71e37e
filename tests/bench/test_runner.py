"""Running a schedule on a tiny pair: everybody gets the same conditions, and what was measured survives any end."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from localspec.bench.padding import count_prompt_tokens, fill_context
from localspec.bench.runner import Run, measure, warm_up
from localspec.bench.schedule import PLAIN, Cell, Contender, Schedule, cells_of
from localspec.bench.workloads import Workload
from localspec.engine.events import Cancelled, Failed, Finished, RequestEvent
from localspec.engine.loader import LoadedPair, load_pair
from localspec.engine.requests import GenerateRequest, Mode, ModelSpec, PairSpec, SamplingParams
from localspec.engine.scheduler import Scheduler
from localspec.errors import ContextFullError, EngineError
from tests.bench.replies import AUTO, DRAFT, LOOKUP
from tests.native_fixtures import TinyModels

pytestmark = pytest.mark.native

WORKLOADS = [
    Workload("Tell me of lakes.", "chat", "lake", max_tokens=24),
    Workload("Rivers?", "chat", "river", None, 24),
]
ENDLESS = SamplingParams(logit_bias=((257, float("-inf")),))  # the tiny models' end of text


@dataclass
class StreamingScheduler:
    """The engine without a process around it, as a `StreamingEngine`."""

    pair: LoadedPair
    requests: list[GenerateRequest] = field(default_factory=list)
    left_early: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._events: deque[RequestEvent] = deque()
        self._scheduler = Scheduler(self.pair, self._events.append)

    def stream(self, request: GenerateRequest) -> Iterator[RequestEvent]:
        self.requests.append(request)
        self._scheduler.submit(request)
        ended = False
        try:
            while not ended:
                while not self._events:
                    self._scheduler.step()
                event = self._events.popleft()
                if event.request_id == request.request_id:
                    ended = isinstance(event, Finished | Cancelled | Failed)
                    if isinstance(event, Failed):
                        raise event.error
                    yield event
        finally:
            if not ended:
                self._scheduler.cancel(request.request_id)
                self.left_early.append(request.request_id)


def loaded(models: TinyModels, *, draft: bool) -> Iterator[LoadedPair]:
    spec = PairSpec("tiny", ModelSpec(models.target), ModelSpec(models.draft) if draft else None, 256, n_threads=1)
    pair = load_pair(spec, lambda _: True)
    yield pair
    pair.close()


@pytest.fixture(scope="module")
def pair(tiny_models: TinyModels) -> Iterator[LoadedPair]:
    yield from loaded(tiny_models, draft=True)


@pytest.fixture(scope="module")
def lone_target(tiny_models: TinyModels) -> Iterator[LoadedPair]:
    yield from loaded(tiny_models, draft=False)


@pytest.fixture
def engine(pair: LoadedPair) -> StreamingScheduler:
    return StreamingScheduler(pair)


def a_schedule(*contenders: Contender, temperatures: tuple[float, ...] = (0.0, 0.8), **fields: int) -> Schedule:
    return Schedule(contenders, cells_of(WORKLOADS, temperatures), ENDLESS, 8, **fields)  # type: ignore[arg-type]


def test_every_run_of_the_plan_is_measured(engine: StreamingScheduler):
    schedule = a_schedule(PLAIN, AUTO, DRAFT, LOOKUP, Contender(Mode.DRAFT, 3), repetitions=2)
    seen: list[Run] = []
    measurement = measure(engine, schedule, on_run=seen.append)
    assert measurement.is_complete
    assert measurement.runs == seen
    assert len(seen) == schedule.n_runs == 5 * 4 * 2
    assert {(each.contender, each.cell, each.repetition) for each in seen} == {
        (who, where, n) for who in schedule.contenders for where in schedule.cells for n in range(2)
    }
    for each in seen:
        assert each.mode is each.contender.mode
        assert each.metrics.n_tokens == 24
        assert each.finish_reason == "length"
        assert each.seed == 1 + each.repetition
        assert each.times.n_steps == each.metrics.n_steps - 1
        assert (each.metrics.n_drafted > 0) or each.contender.fixed_length is None


def test_a_fixed_length_is_that_length(engine: StreamingScheduler):
    for n in (0, 1, 5):
        run = measure(engine, a_schedule(Contender(Mode.DRAFT, n), temperatures=(0.0,), repetitions=1)).runs[0]
        n_room = 24 // (n + 1)  # steps that surely had room for the whole draft
        assert run.metrics.n_drafted <= n * run.metrics.n_steps
        assert run.metrics.n_drafted >= n * min(n_room, run.metrics.n_steps) - sum(range(n))
        assert (run.metrics.n_plain_steps == run.metrics.n_steps) == (n == 0)


def test_no_run_finds_its_prompt_in_the_cache(engine: StreamingScheduler):
    """Else who comes second would seem to have the shorter time to the first token."""
    measurement = measure(engine, a_schedule(PLAIN, DRAFT, LOOKUP, AUTO, repetitions=2))
    assert {run.metrics.n_cached_tokens for run in measurement.runs} == {0}


def test_prompts_may_stay_in_the_cache(engine: StreamingScheduler):
    runs = measure(engine, a_schedule(PLAIN, DRAFT, temperatures=(0.0,), repetitions=1, keeps_cache=True)).runs
    assert runs[1].cell == runs[0].cell
    assert runs[1].metrics.n_cached_tokens == runs[1].metrics.n_prompt_tokens - 1
    assert len(engine.requests) <= 1 + len(runs)


def test_a_seed_repeats_the_whole_measurement(engine: StreamingScheduler):
    """In modes whose drafts do not depend on what time things took."""
    schedule = a_schedule(PLAIN, Contender(Mode.DRAFT, 4), repetitions=1)
    counts = [
        [(run.metrics.n_steps, run.metrics.n_accepted) for run in measure(engine, schedule).runs] for _ in range(2)
    ]
    assert counts[0] == counts[1]


def test_stopping_ends_within_a_step_and_keeps_what_was_measured(engine: StreamingScheduler):
    schedule = a_schedule(PLAIN, DRAFT, repetitions=3)
    n_events = 0

    def should_stop() -> bool:
        nonlocal n_events
        n_events += 1
        return n_events > 60

    measurement = measure(engine, schedule, should_stop=should_stop)
    assert measurement.interrupted
    assert measurement.error is None
    assert 0 < len(measurement.runs) < schedule.n_runs
    assert n_events == 61
    assert engine.left_early == [engine.requests[-1].request_id]
    assert all(run.finish_reason == "length" for run in measurement.runs)


def test_a_failed_run_names_its_cell_and_ends_the_measurement(engine: StreamingScheduler):
    cells = (*cells_of(WORKLOADS[:1], (0.0,)), Cell(Workload("x" * 300, "rag", "long"), 0.8))
    measurement = measure(engine, Schedule((PLAIN, DRAFT), cells, ENDLESS, 8, 2))
    assert len(measurement.runs) == 2
    assert not measurement.is_complete
    assert not measurement.interrupted
    assert isinstance(measurement.error, ContextFullError)
    assert str(measurement.error).startswith("draft on rag/long, temperature 0.8, repetition 1: The prompt has ")
    assert measurement.error.hint


def test_the_warm_up_is_short_and_tells_who_cannot_run(engine: StreamingScheduler, lone_target: LoadedPair):
    schedule = Schedule((PLAIN, AUTO, DRAFT), cells_of([Workload("x", "k", "n", None, 150)], (0.0,)), ENDLESS, 8)
    assert warm_up(engine, schedule) == {}
    replies = [each for each in engine.requests if each.max_tokens != 1]
    assert [(each.mode, each.max_tokens) for each in replies] == [(who.mode, 32) for who in schedule.contenders]
    notes = warm_up(StreamingScheduler(lone_target), schedule)
    assert list(notes) == [DRAFT]
    assert "No draft model" in notes[DRAFT]


def test_without_a_draft_model_auto_is_lookup(lone_target: LoadedPair):
    schedule = Schedule((PLAIN, AUTO), cells_of(WORKLOADS, (0.0,)), ENDLESS, 8, 1)
    runs = measure(StreamingScheduler(lone_target), schedule).runs
    assert {(run.contender, run.mode) for run in runs} == {(PLAIN, Mode.PLAIN), (AUTO, Mode.LOOKUP)}


def test_an_engine_that_falls_silent_is_an_error():
    class Silent:
        def stream(self, request: GenerateRequest) -> Iterator[RequestEvent]:
            yield from ()

    measurement = measure(Silent(), a_schedule(PLAIN))
    assert isinstance(measurement.error, EngineError)
    assert "chat/lake" in str(measurement.error)
    with pytest.raises(EngineError, match="chat/lake"):
        count_prompt_tokens(Silent(), WORKLOADS[0])


def test_prompts_are_counted_without_being_read(engine: StreamingScheduler):
    n_tokens = count_prompt_tokens(engine, WORKLOADS[0])
    assert engine.left_early == [engine.requests[-1].request_id]
    run = measure(engine, a_schedule(PLAIN, temperatures=(0.0,), repetitions=1)).runs[0]
    assert run.metrics.n_prompt_tokens == n_tokens
    assert count_prompt_tokens(engine, Workload("x" * 1_000)) > 1_000  # more than the context holds


def test_a_context_is_filled(engine: StreamingScheduler):
    filled = fill_context(WORKLOADS[0], 250, lambda workload: count_prompt_tokens(engine, workload))
    schedule = Schedule((PLAIN, DRAFT), cells_of([filled], (0.0,), 250), ENDLESS, 8, 1)
    for run in measure(engine, schedule).runs:
        assert 240 <= run.metrics.n_context_tokens <= 250
        assert run.cell.prompt_name == "chat/lake @250"
