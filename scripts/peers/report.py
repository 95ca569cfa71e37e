"""What was measured, as Markdown that is readable in a terminal too, and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from localspec.bench.cell_text import NOTHING, bounds, middle, number, percent, with_extremes
from localspec.bench.conditions import Conditions
from localspec.bench.markdown import escaped, markdown_table
from localspec.bench.statistics import median, ratios
from scripts.peers.comparison import (
    Comparison,
    cells_of,
    compare,
    median_speed,
    strongest,
    strongest_in,
    strongest_per_cell,
)
from scripts.peers.contenders import OURS, THEIRS
from scripts.peers.turns import Run

BEST_PER_CELL: Final = f"strongest {THEIRS} mode per cell"


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a reader needs to repeat it: `settings` hold for everybody, `contenders` are names with their own flags."""

    conditions: Conditions
    settings: Mapping[str, str]
    contenders: Mapping[str, str]

    def lines(self) -> list[str]:
        """All of it as Markdown."""
        facts = [*self.conditions.lines(), *(f"{name}: {value}" for name, value in self.settings.items())]
        flags = [[name, flags or "none"] for name, flags in self.contenders.items()]
        return [*(f"- {escaped(fact)}" for fact in facts), "", markdown_table(["contender", "its own flags"], flags)]

    def as_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        return {**self.conditions.as_dict(), "settings": dict(self.settings), "contenders": dict(self.contenders)}


class Report:
    """The runs so far, seen from one contender: how `hero` compares with each of the others."""

    def __init__(self, runs: Sequence[Run], hero: str) -> None:
        self._runs = runs
        self._hero = hero
        self._cells = cells_of(runs)
        self._contenders = list(dict.fromkeys(run.contender for run in runs))
        self._comparisons = [compare(runs, hero, each) for each in self._contenders if each != hero]
        self._servers = [each for each in self._comparisons if each.theirs.startswith(THEIRS)]
        self._best_server = strongest(self._servers)
        self._best_per_cell = strongest_per_cell(self._servers, BEST_PER_CELL)

    # --- Markdown ------------------------------------------------------------------------------------------------

    def markdown(self, circumstances: Circumstances) -> str:
        """Everything, under a heading."""
        day = f"{circumstances.conditions.started:%Y-%m-%d}"
        return "\n".join([f"# {self._hero} beside {THEIRS}, {day}\n", *circumstances.lines(), "", self.tables()])

    def tables(self) -> str:
        """What came out, without the circumstances."""
        return "\n".join(
            [
                *self._verdict(),
                "",
                "A cell counts as the median of its ratios, each taken within one repetition. Means over cells are "
                "geometric. The bounds (99 % each) are those of the noise between repetitions.\n",
                self._overview(),
                "",
                "Median tokens per second at the client: tokens after the first message, by the time after it.\n",
                self._speeds(),
                "",
                "What each program says about its own speed, and what became of its drafts.\n",
                self._own_figures(),
            ]
        )

    def _verdict(self) -> list[str]:
        if self._best_server is None:
            return [f"{self._hero} and {THEIRS} have no cell in common yet."]
        mean, per_cell = self._best_server.over_cells(), self._best_per_cell.over_cells()
        slower = [
            f"- {escaped(cell[1])} at temperature {cell[0]:g}: {middle(each.of(cell), 2)} x {each.theirs}"
            for each in self._comparisons
            for cell in each.below(1.0)
        ]
        return [
            f"The strongest single mode is {self._best_server.theirs}: {self._hero} is {middle(mean, 2)} times as fast "
            f"in the mean of all cells ({len(self._best_server.ratios)}), and {middle(per_cell, 2)} times as fast as "
            "the strongest mode of each cell.\n",
            "Cells below 1.0:\n" if slower else "No cell is below 1.0.",
            *slower,
        ]

    def _overview(self) -> str:
        temperatures = list(dict.fromkeys(cell[0] for cell in self._cells))
        at = [f"temperature {each:g}" for each in temperatures]
        head = [f"{self._hero} /", *at, "all (worst to best cell)", "bounds", "cells below 1.0"]
        rows = [
            [
                each.theirs,
                *(middle(each.over_cells(temperature), 2) for temperature in temperatures),
                with_extremes(each.over_cells()),
                _bounds(each),
                f"{len(each.below(1.0))} of {len(each.ratios)}",
            ]
            for each in [*self._comparisons, self._best_per_cell]
        ]
        return markdown_table(head, rows)

    def _speeds(self) -> str:
        names = [each.replace(THEIRS, "server").removeprefix(f"{OURS} ") for each in self._contenders]
        head = ["temperature", "workload", *names, "strongest server", f"{self._hero} / it"]
        rows = []
        for cell in self._cells:
            rival = strongest_in(cell, self._servers)
            rows.append(
                [
                    f"{cell[0]:g}",
                    cell[1],
                    *(number(median_speed(self._runs, each, cell)) for each in self._contenders),
                    rival.theirs.removeprefix(f"{THEIRS} ") if rival else NOTHING,
                    with_extremes(rival.of(cell) if rival else None),
                ]
            )
        return markdown_table(head, rows)

    def _own_figures(self) -> str:
        rows = []
        for name in self._contenders:
            runs = [run for run in self._runs if run.contender == name]
            shares = ratios((run.own_tokens_per_second for run in runs), (run.tokens_per_second for run in runs))
            n_drafted = sum(run.n_drafted for run in runs)
            rows.append(
                [
                    name,
                    number(median(shares), 3),
                    number(n_drafted / len(runs)),
                    percent(sum(run.n_accepted for run in runs) / n_drafted if n_drafted else None),
                    number(sum(run.n_tokens for run in runs) / len(runs)),
                ]
            )
        return markdown_table(
            ["contender", "its own figure / client's", "drafted / reply", "accepted", "tokens / reply"], rows
        )

    # --- JSON ----------------------------------------------------------------------------------------------------

    def as_dict(self, circumstances: Circumstances) -> dict[str, Any]:
        """Circumstances, comparisons and every single run."""
        return {
            "circumstances": circumstances.as_dict(),
            "hero": self._hero,
            "strongest_server_mode": self._best_server.theirs if self._best_server else None,
            "comparisons": [_as_dict(each) for each in [*self._comparisons, self._best_per_cell]],
            "runs": [asdict(run) for run in self._runs],
        }


def _as_dict(comparison: Comparison) -> dict[str, Any]:
    mean, speedup = comparison.over_cells(), comparison.bounds()
    return {
        "against": comparison.theirs,
        "geometric_mean": mean.middle if mean else None,
        "bounds_99": [speedup.low, speedup.high] if speedup and speedup.has_bounds else None,
        "cells": [
            {"temperature": cell[0], "workload": cell[1], "ratios": list(each)}
            for cell, each in comparison.ratios.items()
        ],
        "below_1": [{"temperature": cell[0], "workload": cell[1]} for cell in comparison.below(1.0)],
    }


def _bounds(comparison: Comparison) -> str:
    """Nothing without repetitions: the bounds are 0 and infinity then."""
    speedup = comparison.bounds()
    return bounds(speedup.low, speedup.high) if speedup and speedup.has_bounds else NOTHING
