"""Ratios of speeds. Each is taken within one repetition, where both contenders met the machine in the same mood."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from localspec.bench.paired import Speedup, speedup
from localspec.bench.statistics import Spread, geometric_spread, median, median_spread
from scripts.peers.turns import Run

# (temperature, workload): what one ratio is about.
Cell = tuple[float, str]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One contender's speed by another's, above 1 where the first is faster: per cell, one ratio per repetition."""

    ours: str
    theirs: str
    ratios: Mapping[Cell, tuple[float, ...]]

    def of(self, cell: Cell) -> Spread | None:
        """The median of a cell's ratios, which it counts as, and their extremes."""
        return median_spread(self.ratios.get(cell, ()))

    def over_cells(self, temperature: float | None = None) -> Spread | None:
        """The geometric mean of all cells (of one temperature), the worst and the best of them."""
        return geometric_spread(
            [statistics.median(ratios) for cell, ratios in self.ratios.items() if temperature in {None, cell[0]}]
        )

    def bounds(self) -> Speedup | None:
        """The geometric mean of the single ratios, with bounds that tell it from the noise between repetitions."""
        logs = [[math.log(ratio) for ratio in ratios] for ratios in self.ratios.values()]
        n_passes = max(map(len, logs), default=0)
        return speedup([[each[i] if i < len(each) else None for each in logs] for i in range(n_passes)])

    def below(self, bound: float) -> list[Cell]:
        """Cells that count as less than the bound, the worst first."""
        medians = {cell: statistics.median(ratios) for cell, ratios in self.ratios.items()}
        return sorted((cell for cell in medians if medians[cell] < bound), key=medians.__getitem__)


def cells_of(runs: Iterable[Run]) -> list[Cell]:
    """All cells, by temperature, each in the order in which they were measured."""
    found = dict.fromkeys((run.temperature, run.workload) for run in runs)
    return sorted(found, key=lambda cell: cell[0])


def compare(runs: Sequence[Run], ours: str, theirs: str) -> Comparison:
    """Cell by cell, over the repetitions in which both had a speed."""
    speeds = {
        (run.contender, run.temperature, run.workload, run.repetition): run.tokens_per_second
        for run in runs
        if run.tokens_per_second is not None
    }
    ratios: dict[Cell, tuple[float, ...]] = {}
    for (contender, temperature, workload, repetition), speed in speeds.items():
        other = speeds.get((theirs, temperature, workload, repetition))
        if contender == ours and other is not None:
            cell = temperature, workload
            ratios[cell] = (*ratios.get(cell, ()), speed / other)
    return Comparison(ours, theirs, ratios)


def strongest(comparisons: Sequence[Comparison]) -> Comparison | None:
    """Against whom the first contender gains least, over all cells; None when nothing was compared."""
    measured = [(mean.middle, each) for each in comparisons if (mean := each.over_cells()) is not None]
    return min(measured, key=lambda pair: pair[0])[1] if measured else None


def strongest_in(cell: Cell, comparisons: Sequence[Comparison]) -> Comparison | None:
    """Against whom the first contender gains least in this cell; None when nobody has it."""
    measured = [(ratio.middle, each) for each in comparisons if (ratio := each.of(cell)) is not None]
    return min(measured, key=lambda pair: pair[0])[1] if measured else None


def strongest_per_cell(comparisons: Sequence[Comparison], name: str) -> Comparison:
    """A rival named `name` that is, in each cell, whoever was strongest there: a bar that no single mode sets."""
    cells = dict.fromkeys(cell for each in comparisons for cell in each.ratios)
    rivals = {cell: strongest_in(cell, comparisons) for cell in cells}
    ours = comparisons[0].ours if comparisons else ""
    return Comparison(ours, name, {cell: rival.ratios[cell] for cell, rival in rivals.items() if rival is not None})


def median_speed(runs: Iterable[Run], contender: str, cell: Cell) -> float | None:
    """The contender's median speed in a cell, tokens per second; None when no reply had one."""
    return median(
        run.tokens_per_second for run in runs if run.contender == contender and (run.temperature, run.workload) == cell
    )
