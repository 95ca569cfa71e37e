"""Runs for the tests of what is made of them: replies whose steps and clock the test sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from localspec.bench.runner import Measurement, Run
from localspec.bench.schedule import PLAIN, Cell, Contender, Schedule
from localspec.bench.step_times import StepTimes
from localspec.bench.workloads import Workload
from localspec.engine.metrics import MetricsRecorder, RequestMetrics
from localspec.engine.requests import Mode, SamplingParams
from localspec.speculative.drafter import DraftSource

AUTO, DRAFT, LOOKUP = Contender(Mode.AUTO), Contender(Mode.DRAFT), Contender(Mode.LOOKUP)


@dataclass(frozen=True)
class StepOf:
    """One step that takes `seconds`: a fifth in draft passes and a twentieth in their sampling if it drafts."""

    seconds: float
    n_draft: int = 0
    n_accepted: int = 0


def snapshots(steps: Sequence[StepOf], ttft_s: float = 0.5) -> tuple[RequestMetrics, RequestMetrics]:
    """The metrics after the first step, and after the last."""
    now = [0.0]
    recorder = MetricsRecorder(lambda: now[0])
    recorder.prompt(40, 0)
    first = None
    for i, step in enumerate(steps):
        now[0] += step.seconds if i else ttft_s
        drafts = bool(step.n_draft)
        recorder.step(
            n_tokens=step.n_accepted + 1,
            n_draft=step.n_draft,
            n_accepted=step.n_accepted,
            source=DraftSource.MODEL if drafts else None,
            draft_s=0.25 * step.seconds * drafts,
            draft_pass_s=0.2 * step.seconds * drafts,
            verify_s=0.7 * step.seconds,
            judge_s=0.02 * step.seconds,
            step_s=step.seconds,
        )
        first = first or recorder.snapshot()
    assert first is not None
    return first, recorder.snapshot()


def run(contender: Contender, cell: Cell, repetition: int, steps: Sequence[StepOf], ttft_s: float = 0.5) -> Run:
    first, last = snapshots(steps, ttft_s)
    times = StepTimes.between(first, last)
    return Run(contender, cell, repetition, 1 + repetition, contender.mode, "", "length", last, times)


def plain_run(cell: Cell, repetition: int, seconds: float, contender: Contender = PLAIN, n_steps: int = 5) -> Run:
    """Steps of one token each."""
    return run(contender, cell, repetition, [StepOf(seconds)] * n_steps)


def schedule(contenders: Sequence[Contender], cells: Sequence[Cell], repetitions: int = 1) -> Schedule:
    return Schedule(tuple(contenders), tuple(cells), SamplingParams(), None, repetitions)


def cell(name: str = "one", temperature: float = 0.0, n_context: int | None = None) -> Cell:
    return Cell(Workload(f"The prompt {name}.", "chat", name), temperature, n_context)


def measured(schedule: Schedule, runs: Sequence[Run], *, interrupted: bool = False) -> Measurement:
    return Measurement(schedule, list(runs), interrupted)
