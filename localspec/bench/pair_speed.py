"""The short bench of a pair: mode auto against plain decoding, once on a prompt of each kind; and its stored result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AwareDatetime, Field

from localspec.bench.basis import Basis, change_since, present_basis
from localspec.bench.figures import Figures, Results, Scope
from localspec.bench.records import Record, read_record, record_file, write_record
from localspec.bench.runner import Run, measure, warm_up
from localspec.bench.schedule import PLAIN, Contender, Schedule, cells_of
from localspec.bench.streaming import StreamingEngine
from localspec.bench.workloads import Workload, read_workloads
from localspec.engine.requests import Mode, PairSpec, SamplingParams
from localspec.errors import EngineError

__all__ = ["FoundSpeed", "PairSpeed", "find_pair_speed", "measure_pair", "short_schedule", "store_pair_speed"]

TEMPERATURE: Final = 0.8
MAX_TOKENS: Final = 96

_AUTO: Final = Contender(Mode.AUTO)
_FOLDER: Final = "speeds"

_Positive = Annotated[float, Field(gt=0)]
_Share = Annotated[float, Field(ge=0, le=1)]


class PairSpeed(Record):
    """How fast a pair was, against its target alone.

    `speedup` is the geometric mean over the prompts, `low` and `high` the extremes. `draft_acceptance_rate` counts what
    the draft model proposed, not copies; None where it proposed nothing.
    """

    format: Literal[1] = 1
    basis: Basis
    measured_at: AwareDatetime
    temperature: float
    n_prompts: Annotated[int, Field(ge=1)]
    plain_tokens_per_s: _Positive
    speedup: _Positive
    low: _Positive
    high: _Positive
    draft_acceptance_rate: _Share | None


@dataclass(frozen=True, slots=True)
class FoundSpeed:
    """What is stored for a pair: a speed that holds, or why the one there does not, or neither."""

    speed: PairSpeed | None = None
    complaint: str = ""


def measure_pair(
    engine: StreamingEngine,
    spec: PairSpec,
    *,
    on_run: Callable[[Run], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> PairSpeed | None:
    """Measure the pair that the engine has loaded as `spec`; None when it was stopped.

    Raises:
        LocalspecError: a reply failed.
        EngineError: no reply was long enough for a speed.
    """
    schedule = short_schedule()
    warm_up(engine, schedule)
    measurement = measure(engine, schedule, on_run=on_run, should_stop=should_stop)
    if measurement.error is not None:
        raise measurement.error
    if measurement.interrupted:
        return None
    results = Results(measurement)
    plain, auto = (results.over(contender, Scope()) for contender in (PLAIN, _AUTO))
    if plain.speed is None or auto.speedup is None:
        raise EngineError(
            f"Every reply of {spec.target.path.name} was too short to measure its speed.",
            hint="A model that was made for chat answers at length.",
        )
    return PairSpeed(
        basis=present_basis(
            spec.target.path,
            spec.draft.path if spec.draft else None,
            gpu_layers=spec.target.n_gpu_layers,
            draft_gpu_layers=spec.draft.n_gpu_layers if spec.draft else -1,
        ),
        measured_at=datetime.now(UTC),
        temperature=TEMPERATURE,
        n_prompts=auto.speedup.n,
        plain_tokens_per_s=plain.speed.middle,
        speedup=auto.speedup.middle,
        low=auto.speedup.low,
        high=auto.speedup.high,
        draft_acceptance_rate=_acceptance_of_model(auto),
    )


def short_schedule() -> Schedule:
    """The first prompt of every kind, plain and auto."""
    first: dict[str, Workload] = {}
    for workload in read_workloads():
        first.setdefault(workload.kind, replace(workload, max_tokens=min(MAX_TOKENS, workload.max_tokens)))
    cells = cells_of(list(first.values()), (TEMPERATURE,))
    return Schedule((PLAIN, _AUTO), cells, SamplingParams(), None, repetitions=1, keeps_cache=True)


def store_pair_speed(speed: PairSpeed, target: Path, draft: Path | None) -> None:
    """Keep it for this pair. Raises DiskFullError as `write_record`."""
    write_record(speed, record_file(_FOLDER, target, draft))


def find_pair_speed(target: Path, draft: Path | None, *, gpu_layers: int, draft_gpu_layers: int) -> FoundSpeed:
    """What was measured for a pair, if it still holds. Never raises."""
    try:
        file = record_file(_FOLDER, target, draft)
        if not file.is_file():
            return FoundSpeed()
        speed = read_record(file, PairSpeed)
        change = change_since(speed.basis, target, draft, gpu_layers=gpu_layers, draft_gpu_layers=draft_gpu_layers)
    except (OSError, RuntimeError, ValueError) as error:
        return FoundSpeed(complaint=f"The stored speed of this pair cannot be read: {error}.")
    return FoundSpeed(complaint=f"The stored speed of this pair {change}.") if change else FoundSpeed(speed)


def _acceptance_of_model(figures: Figures) -> float | None:
    metrics = figures.metrics
    n_drafted = metrics.n_drafted - metrics.n_lookup_drafted
    return (metrics.n_accepted - metrics.n_lookup_accepted) / n_drafted if n_drafted else None
