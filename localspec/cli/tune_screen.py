"""What `localspec tune` shows: progress with the time left on stderr, then the evidence and the settings on stdout."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.table import Table
from rich.text import Text

from localspec.bench.profile import Measurement, Profile
from localspec.bench.tune import Tuned, TuneOptions
from localspec.bench.tune_search import Trial, Verdict
from localspec.bench.tune_space import Point, difference
from localspec.cli.console import say
from localspec.engine.events import LoadEvent, Loading
from localspec.printable import printable


class TuneProgress:
    """On a terminal a line that lives and the decided comparisons above it; elsewhere only these."""

    def __init__(self, options: TuneOptions) -> None:
        self._console = Console(file=sys.stderr, highlight=False)
        columns = [SpinnerColumn(), TextColumn("{task.description}", markup=False), _TimeLeft(options.budget_s)]
        self._progress = Progress(*columns, console=self._console, transient=True, disable=not sys.stderr.isatty())
        self._task = self._progress.add_task("Loading", start=False)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def on_load(self, event: LoadEvent) -> None:
        """A load listener."""
        text = f"{event.what} {event.fraction:.0%}" if isinstance(event, Loading) else "Measuring the pace"
        self._progress.update(self._task, description=text)

    def on_trial(self, trial: Trial[Point]) -> None:
        """A listener of the search."""
        self._progress.start_task(self._task)
        line = _line(trial)
        if trial.verdict is Verdict.OPEN:
            self._progress.update(self._task, description=line)
        elif self._progress.disable:
            say(line)
        else:
            self._progress.console.print(Text(line))


class _TimeLeft(ProgressColumn):
    def __init__(self, budget_s: float) -> None:
        super().__init__()
        self._budget_s = budget_s

    def render(self, task: Task) -> Text:
        """At most; the search may be through earlier."""
        left = max(0, round(self._budget_s - (task.elapsed or 0.0)))
        return Text(f"{left // 60}:{left % 60:02} left", style="dim")


def _line(trial: Trial[Point]) -> str:
    parts = [printable(difference(trial.incumbent, trial.challenger))]
    if trial.speedup is not None:
        parts.append(_times(trial.speedup.ratio))
        if trial.speedup.has_bounds:
            parts.append(_range(trial.speedup.low, trial.speedup.high))
    return "  ".join([*parts, trial.verdict.value, *filter(None, [printable(trial.note)])])


def write_report(tuned: Tuned, profile: Profile, files: Sequence[Path]) -> None:
    """The evidence and the settings, to stdout."""
    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False, soft_wrap=True)
    evidence = profile.evidence
    if evidence.measurements:
        console.print(_evidence(evidence.measurements))
    temperatures = ", ".join(f"{each:g}" for each in evidence.temperatures)
    console.print(
        f"Each line against the best above it, ranges with 99 % confidence. {len(evidence.workloads)} prompts, "
        f"replies of {evidence.max_tokens} tokens, temperature {temperatures}, {evidence.seconds:.0f} s."
    )
    if not tuned.outcome.is_complete:
        console.print("There was no time to try everything.")
    if not tuned.outcome.is_confirmed:
        console.print("Nothing was decided, and nothing is stored.")
        return
    best, options = tuned.outcome.best, tuned.options
    console.print("\nBest settings:")
    if best.drafts_by_model:
        console.print(f"  {'draft':<24}{printable(str(best.draft))}")
    for name, value in best.settings.model_dump().items():
        shown = "one per core" if value is None else str(value).lower()
        console.print(f"  {name:<24}{shown}{'  (set by you)' if name in options.given else ''}")
    console.print(f"Why: {printable(evidence.reason)}.")
    if options.present.draft is not None and best.draft != options.present.draft:
        console.print("That is not the draft model that was named: name it from now on, to have these settings.")
    for file in files:
        console.print(f"Stored in {printable(str(file))}")
    if not files:
        console.print("Not stored.")


def _evidence(measurements: Sequence[Measurement]) -> Table:
    table = Table("change", "times as fast", "range", "pairs", "result")
    for column in table.columns[1:4]:
        column.justify = "right"
    for each in measurements:
        table.add_row(
            printable(each.change),
            _times(each.ratio) if each.ratio else "",
            _range(each.low, each.high) if each.low is not None and each.high is not None else "",
            str(each.n_pairs or ""),
            printable(f"{each.verdict}: {each.note}" if each.note else each.verdict),
        )
    return table


def _times(ratio: float) -> str:
    return f"{ratio:.2f} x"


def _range(low: float, high: float) -> str:
    return f"{low:.2f} to {high:.2f}"
