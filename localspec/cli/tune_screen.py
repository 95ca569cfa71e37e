"""What `localspec tune` shows: progress with the time left on stderr, then the findings and the settings on stdout."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.table import Table
from rich.text import Text

from localspec.bench.cell_text import bounds, times, times_within
from localspec.bench.profile import Comparison, Profile
from localspec.bench.tune import Tuned, TuneOptions
from localspec.bench.tune_search import Trial, Verdict
from localspec.bench.tune_space import Point, difference
from localspec.cli.console import say
from localspec.engine.events import LoadEvent, Loading
from localspec.engine.requests import DEFAULT_NUM_SPECULATIVE_TOKENS, MAX_NUM_SPECULATIVE_TOKENS
from localspec.printable import printable

_WHERE_NONE: Final = {
    "num_speculative_tokens": f"{DEFAULT_NUM_SPECULATIVE_TOKENS}, copies {MAX_NUM_SPECULATIVE_TOKENS}",
    "threads": "one per core",
}


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
        parts.append(times_within(trial.speedup))
    return "  ".join([*parts, trial.verdict.value, *filter(None, [printable(trial.note)])])


def write_report(tuned: Tuned, profile: Profile, files: Sequence[Path]) -> None:
    """The findings and the settings, to stdout."""
    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False, soft_wrap=True)
    findings = profile.findings
    if findings.comparisons:
        console.print(_table(findings.comparisons))
    temperatures = ", ".join(f"{each:g}" for each in findings.temperatures)
    console.print(
        f"Each line against the best above it, ranges with 99 % confidence. {len(findings.workloads)} prompts, "
        f"replies of {findings.max_tokens} tokens, temperature {temperatures}, {findings.seconds:.0f} s."
    )
    if not tuned.outcome.is_complete:
        console.print("Not everything was tried.")
    if not tuned.outcome.is_confirmed:
        console.print("Nothing was decided, and nothing is stored.")
        return
    best, options = tuned.outcome.best, tuned.options
    console.print("\nBest settings:")
    if best.drafts_by_model:
        console.print(f"  {'draft':<24}{printable(str(best.draft))}")
    for name, value in best.settings.model_dump().items():
        shown = _WHERE_NONE[name] if value is None else str(value).lower()
        console.print(f"  {name:<24}{shown}{'  (set by you)' if name in options.given else ''}")
    console.print(f"Why: {printable(findings.reason)}.")
    if options.present.draft is not None and best.draft != options.present.draft:
        console.print("That is not the draft model that was named: name it from now on, to have these settings.")
    for file in files:
        console.print(f"Stored in {printable(str(file))}")
    if not files:
        console.print("Not stored.")


def _table(comparisons: Sequence[Comparison]) -> Table:
    table = Table("change", "times as fast", "range", "pairs", "result")
    for column in table.columns[1:4]:
        column.justify = "right"
    for each in comparisons:
        table.add_row(
            printable(each.change),
            times(each.ratio) if each.ratio else "",
            bounds(each.low, each.high) if each.low is not None and each.high is not None else "",
            str(each.n_pairs or ""),
            printable(f"{each.verdict}: {each.note}" if each.note else each.verdict),
        )
    return table
