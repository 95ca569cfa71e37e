"""What a measurement says: the figures of each contender in each cell, and over many cells."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from localspec.bench.runner import Measurement, Run
from localspec.bench.schedule import PLAIN, Cell, Contender
from localspec.bench.statistics import (
    Spread,
    geometric_spread,
    ideal_of,
    median,
    median_spread,
    pooled,
    ratios,
    speculation_efficiency,
)
from localspec.bench.step_times import StepTimes
from localspec.engine.metrics import RequestMetrics


@dataclass(frozen=True, slots=True)
class Figures:
    """One contender, in one cell or over several.

    `speed` (tokens per second) and `speedup` spread over the repetitions of a cell, or over the cells. `metrics` are
    the sums of all replies, `times` of what came after each reply's first step; TTFT and ITL are medians. None: replies
    too short to have the number.
    """

    contender: Contender
    speed: Spread | None
    speedup: Spread | None
    ttft_s: float | None
    itl_p50_s: float | None
    itl_p95_s: float | None
    metrics: RequestMetrics
    times: StepTimes

    @property
    def ideal_tokens_per_step(self) -> float | None:
        """What the measured acceptance would yield if it were the same for every token, independently."""
        return ideal_of(self.metrics)

    @property
    def speculation_efficiency(self) -> float | None:
        """The part of the mean acceptance length that arrives as speedup. None where nothing was drafted."""
        length = self.metrics.mean_acceptance_length
        if self.speedup is None or length is None or not self.metrics.n_drafted:
            return None
        return speculation_efficiency(self.speedup.middle, length)


@dataclass(frozen=True, slots=True)
class Scope:
    """Which cells to look at: those of a temperature, of a context length, or (None) of any."""

    temperature: float | None = None
    n_context: int | None = None

    def __str__(self) -> str:
        return "all temperatures" if self.temperature is None else f"temperature {self.temperature:g}"

    def includes(self, cell: Cell) -> bool:
        """Whether a cell is looked at."""
        return self.temperature in {None, cell.temperature} and self.n_context in {None, cell.n_context}


class Results:
    """The figures of a measurement. A round that was not completed is left out: its runs lack their counterparts."""

    def __init__(self, measurement: Measurement) -> None:
        self.schedule = measurement.schedule
        runs = _complete_rounds(measurement)
        self._figures = {
            (cell, contender): _of_cell(contender, of_cell[contender], of_cell[PLAIN])
            for cell, of_cell in runs.items()
            for contender in self.schedule.contenders
        }
        self.cells = tuple(runs)
        self.n_rounds = sum(len(of_cell[PLAIN]) for of_cell in runs.values())

    @property
    def contenders(self) -> tuple[Contender, ...]:
        """As in the schedule."""
        return self.schedule.contenders

    @property
    def temperatures(self) -> tuple[float, ...]:
        """Those with a cell."""
        return tuple(dict.fromkeys(cell.temperature for cell in self.cells))

    @property
    def contexts(self) -> tuple[int, ...]:
        """The lengths that prompts were padded to."""
        return tuple(dict.fromkeys(cell.n_context for cell in self.cells if cell.n_context is not None))

    def scopes(self) -> tuple[Scope, ...]:
        """Each temperature by itself, then all together where there are several."""
        single = tuple(map(Scope, self.temperatures))
        return (*single, Scope()) if len(single) > 1 else single

    def fixed_lengths(self) -> dict[str, tuple[Contender, ...]]:
        """Contenders that differ in their fixed length only, two or more, by mode and in order of length."""
        sweeps: dict[str, list[Contender]] = defaultdict(list)
        for contender in self.contenders:
            if contender.fixed_length is not None:
                sweeps[contender.mode.value].append(contender)
        return {
            mode: tuple(sorted(sweep, key=lambda each: each.fixed_length or 0))
            for mode, sweep in sweeps.items()
            if len(sweep) > 1
        }

    def of_cell(self, contender: Contender, cell: Cell) -> Figures:
        """The figures in one cell."""
        return self._figures[cell, contender]

    def over(self, contender: Contender, scope: Scope) -> Figures:
        """The figures over the cells of a scope (at least one)."""
        return _over_cells(contender, [self._figures[cell, contender] for cell in self.cells if scope.includes(cell)])


def _complete_rounds(measurement: Measurement) -> dict[Cell, dict[Contender, list[Run]]]:
    """Of each cell that has a complete round: the runs of each contender, in the same order of repetitions."""
    rounds: dict[tuple[Cell, int], dict[Contender, Run]] = defaultdict(dict)
    for run in measurement.runs:
        rounds[run.cell, run.repetition][run.contender] = run
    cells: dict[Cell, dict[Contender, list[Run]]] = {}
    for cell in measurement.schedule.cells:
        of_cell: dict[Contender, list[Run]] = defaultdict(list)
        for repetition in range(measurement.schedule.repetitions):
            runs = rounds.get((cell, repetition), {})
            if len(runs) == len(measurement.schedule.contenders):
                for contender, run in runs.items():
                    of_cell[contender].append(run)
        if of_cell:
            cells[cell] = of_cell
    return cells


def _of_cell(contender: Contender, runs: Sequence[Run], plain: Sequence[Run]) -> Figures:
    metrics = [run.metrics for run in runs]
    return Figures(
        contender=contender,
        speed=median_spread(_known(each.tokens_per_second for each in metrics)),
        speedup=median_spread(ratios((run.metrics.tpot_s for run in plain), (each.tpot_s for each in metrics))),
        ttft_s=median(each.ttft_s for each in metrics),
        itl_p50_s=median(each.itl_p50_s for each in metrics),
        itl_p95_s=median(each.itl_p95_s for each in metrics),
        metrics=pooled(metrics),
        times=StepTimes.total(run.times for run in runs),
    )


def _over_cells(contender: Contender, cells: Sequence[Figures]) -> Figures:
    return Figures(
        contender=contender,
        speed=geometric_spread([each.speed.middle for each in cells if each.speed]),
        speedup=geometric_spread([each.speedup.middle for each in cells if each.speedup]),
        ttft_s=median(each.ttft_s for each in cells),
        itl_p50_s=median(each.itl_p50_s for each in cells),
        itl_p95_s=median(each.itl_p95_s for each in cells),
        metrics=pooled([each.metrics for each in cells]),
        times=StepTimes.total(each.times for each in cells),
    )


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
