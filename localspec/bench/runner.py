"""Running a schedule: one request after the other, and what each brought."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Final

from localspec.bench.schedule import Cell, Contender, Schedule
from localspec.bench.step_times import StepTimes
from localspec.bench.streaming import StreamingEngine, events_of
from localspec.engine.events import Cancelled, Finished, Queued, StepDecoded
from localspec.engine.metrics import RequestMetrics
from localspec.engine.requests import Mode
from localspec.errors import EngineError, LocalspecError

logger = logging.getLogger(__name__)

_WARM_UP_TOKENS: Final = 32


@dataclass(frozen=True, slots=True)
class Run:
    """One reply. `mode` is the one that ran: without a draft model, auto is lookup."""

    contender: Contender
    cell: Cell
    repetition: int
    seed: int
    mode: Mode
    mode_note: str  # why it is another than the one asked for, if it is
    finish_reason: str
    metrics: RequestMetrics
    times: StepTimes

    def as_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        workload = self.cell.workload
        return {
            "contender": str(self.contender),
            "mode": self.mode.value,
            "fixed_length": self.contender.fixed_length,
            "kind": workload.kind,
            "workload": workload.name,
            "n_context": self.cell.n_context,
            "temperature": self.cell.temperature,
            "repetition": self.repetition,
            "seed": self.seed,
            "max_tokens": workload.max_tokens,
            "finish_reason": self.finish_reason,
            "metrics": self.metrics.as_dict(),
            "n_steps_after_first": self.times.n_steps,
            "seconds_after_first_step": dict(self.times.parts()) | {"elapsed": self.times.elapsed_s},
        }


@dataclass
class Measurement:
    """The runs of a schedule so far, in the order in which they ran; `error` is what ended it, if something did."""

    schedule: Schedule
    runs: list[Run] = field(default_factory=list)
    interrupted: bool = False
    error: LocalspecError | None = None

    @property
    def is_complete(self) -> bool:
        """Whether everything that was planned was measured."""
        return len(self.runs) == self.schedule.n_runs


def warm_up(engine: StreamingEngine, schedule: Schedule) -> dict[Contender, str]:
    """Let every contender reply once, shortly, so that none pays for pages, caches and clocks that were cold.

    Returns those that cannot run on this pair as what they are, each with the reason.

    Raises:
        LocalspecError: a reply failed; the message names the contender.
    """
    cell = schedule.cells[0]
    short = replace(cell, workload=replace(cell.workload, max_tokens=min(cell.workload.max_tokens, _WARM_UP_TOKENS)))
    notes = {}
    for contender in schedule.contenders:
        run = _run(engine, schedule, contender, short, 0, lambda: False)
        if run is not None and run.mode_note:
            notes[contender] = run.mode_note
    return notes


def measure(
    engine: StreamingEngine,
    schedule: Schedule,
    *,
    on_run: Callable[[Run], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Measurement:
    """Run the schedule. It ends early when a run fails, or within a step when `should_stop` says so.

    What was measured until then stays; the reply that was cut off is not among the runs.
    """
    measurement = Measurement(schedule)
    try:
        for each in schedule.rounds():
            for contender in each.contenders:
                run = _run(engine, schedule, contender, each.cell, each.repetition, should_stop)
                if run is None:
                    measurement.interrupted = True
                    return measurement
                measurement.runs.append(run)
                speed = run.metrics.tokens_per_second or 0.0
                logger.info(
                    "run %d of %d: %s on %s: %.1f tokens/s",
                    len(measurement.runs),
                    schedule.n_runs,
                    contender,
                    each.cell,
                    speed,
                )
                on_run(run)
    except LocalspecError as error:
        measurement.error = error
    return measurement


def _run(
    engine: StreamingEngine,
    schedule: Schedule,
    contender: Contender,
    cell: Cell,
    repetition: int,
    should_stop: Callable[[], bool],
) -> Run | None:
    """One reply; None when it was stopped."""
    try:
        if not schedule.keeps_cache:
            for _ in engine.stream(schedule.forgetting_request()):
                pass
        return _reply(engine, schedule, contender, cell, repetition, should_stop)
    except LocalspecError as error:
        error.message = f"{contender} on {cell}, repetition {repetition + 1}: {error.message}"
        raise


def _reply(
    engine: StreamingEngine,
    schedule: Schedule,
    contender: Contender,
    cell: Cell,
    repetition: int,
    should_stop: Callable[[], bool],
) -> Run | None:
    queued: Queued | None = None
    first: RequestMetrics | None = None
    with closing(events_of(engine, schedule.request(contender, cell, repetition))) as events:
        for event in events:
            if should_stop() or isinstance(event, Cancelled):
                return None
            if isinstance(event, Queued):
                queued = event
            elif isinstance(event, StepDecoded) and first is None:
                first = event.metrics
            elif isinstance(event, Finished) and queued is not None:
                return Run(
                    contender=contender,
                    cell=cell,
                    repetition=repetition,
                    seed=queued.seed,
                    mode=queued.mode,
                    mode_note=queued.mode_note,
                    finish_reason=event.reason.value,
                    metrics=event.metrics,
                    times=StepTimes.between(first or event.metrics, event.metrics),
                )
    raise EngineError("The reply ended without a word.")
