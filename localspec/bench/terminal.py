"""A measurement in the terminal: progress while it runs, tables when it is done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as RichTable
from rich.text import Text

from localspec.bench.figures import Results
from localspec.bench.runner import Run
from localspec.bench.tables import (
    Table,
    context_table,
    length_tables,
    position_table,
    prompt_table,
    speed_table,
    step_table,
    time_table,
)
from localspec.printable import one_line

_PIPE_WIDTH: Final = 160
# What fits 80 cells beside the names; the Markdown report has everything.
_MAX_POSITIONS: Final = 10
_MAX_CONTENDERS_SIDE_BY_SIDE: Final = 6
# Replies differ in length, so the rate of the last few says little about the rest.
_RATE_OVER_S: Final = 3600.0


class ProgressBar:
    """How many replies are done and how long the rest will take; silent where nobody watches."""

    def __init__(self, stream: TextIO) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            console=Console(file=stream),
            disable=not stream.isatty(),
            transient=True,
            speed_estimate_period=_RATE_OVER_S,
        )

        self._task = self._progress.add_task("warming up", total=None)

    @contextmanager
    def shown(self) -> Iterator[ProgressBar]:
        """Show the bar until the block ends."""
        with self._progress:
            yield self

    def begin(self, n_runs: int) -> None:
        """The warm-up is over; time counts from now."""
        self._progress.reset(self._task, total=n_runs, description="measuring")

    def done(self, run: Run) -> None:
        """One more reply."""
        speed = run.metrics.tokens_per_second
        text = f"{run.contender} {run.cell.prompt_name} {'' if speed is None else f'{speed:.0f} tok/s'}"
        self._progress.update(self._task, advance=1, description=one_line(text))


def show(results: Results, facts: Iterable[str], stream: TextIO, *, with_step_times: bool) -> None:
    """What was measured on, then the tables that answer how fast, and why.

    Columns narrow with the terminal; a pipe gets plain text.
    """
    console = Console(file=stream, highlight=False, width=None if stream.isatty() else _PIPE_WIDTH)
    for fact in facts:
        console.print(Text(one_line(fact)))
    console.print()
    if not results.cells:
        return
    for table in _tables(results, with_step_times=with_step_times):
        console.print(Text(table.title, style="bold"))
        console.print(_rich(table))
        for note in table.notes:
            console.print(Text(note))
        console.print()


def _tables(results: Results, *, with_step_times: bool) -> Iterator[Table]:
    whole = results.scopes()[-1]
    if len(results.contenders) <= _MAX_CONTENDERS_SIDE_BY_SIDE:
        for scope in results.scopes():
            if scope.temperature is not None:
                yield prompt_table(results, scope)
    for scope in results.scopes():
        yield speed_table(results, scope)
    yield time_table(results, whole)
    if positions := position_table(results, whole, _MAX_POSITIONS):
        yield positions
    for scope in results.scopes():
        yield from length_tables(results, scope)
    if contexts := context_table(results, whole):
        yield contexts
    if with_step_times:
        yield step_table(results, whole)


def _rich(table: Table) -> RichTable:
    drawn = RichTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for number, name in enumerate(table.header):
        drawn.add_column(Text(name), justify="right" if number else "left", overflow="fold")
    for row in table.rows:
        drawn.add_row(*(Text(one_line(cell)) for cell in row))
    return drawn
