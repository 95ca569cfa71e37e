"""What `localspec pair --measure` shows on stderr: which draft of how many, how far it is, and the time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from localspec.bench.runner import Run
from localspec.cli.console import say
from localspec.engine.events import LoadEvent, Loading
from localspec.printable import one_line
from localspec.quantities import span

__all__ = ["MeasureProgress"]


class MeasureProgress:
    """On a terminal a line that lives; elsewhere a line for each draft. Each of `n_drafts` takes `n_runs` replies."""

    def __init__(self, n_drafts: int, n_runs: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._n_drafts = n_drafts
        self._n_runs = n_runs
        self._clock = clock
        self._begun_s = clock()
        self._n_measured = 0  # replies, of which the time left is reckoned
        self._number = 0
        self._n_done = 0  # of the present draft
        self._name = ""
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[state]}", markup=False),
            console=Console(file=sys.stderr, highlight=False),
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._task = self._progress.add_task("", total=n_drafts * n_runs, state="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    @property
    def seconds_left(self) -> float | None:
        """For all drafts, from the pace so far, loading included; None before the first reply."""
        if not self._n_measured:
            return None
        n_left = (self._n_drafts - self._number + 1) * self._n_runs - self._n_done
        return (self._clock() - self._begun_s) / self._n_measured * n_left

    def begin(self, number: int, name: str) -> None:
        """The draft with this number, from 1 on, is next; one that failed before it is through."""
        self._number, self._name, self._n_done = number, one_line(name), 0
        if self._progress.disable:
            say(", ".join(filter(None, [f"Measuring {self._name} ({number} of {self._n_drafts})", self._left()])))
        self._show("loading")

    def on_load(self, event: LoadEvent) -> None:
        """A load listener."""
        self._show(f"loading {event.fraction:.0%}" if isinstance(event, Loading) else "warming up")

    def on_run(self, _run: Run) -> None:
        """A listener of the bench."""
        self._n_measured += 1
        self._n_done += 1
        self._show(f"reply {self._n_done} of {self._n_runs}")

    def tell(self, text: str) -> None:
        """A line that stays."""
        if self._progress.disable:
            say(text)
        else:
            self._progress.console.print(text, markup=False)

    def _left(self) -> str:
        left = self.seconds_left
        return "" if left is None else f"about {span(left)} left"

    def _show(self, state: str) -> None:
        self._progress.update(
            self._task,
            completed=(self._number - 1) * self._n_runs + self._n_done,
            description=f"{self._name} ({self._number} of {self._n_drafts})",
            state=", ".join(filter(None, [state, self._left()])),
        )
