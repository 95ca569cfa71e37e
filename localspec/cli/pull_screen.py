"""What `localspec pull` shows: a bar on a terminal, now and then a line elsewhere; and lists of quantizations."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from localspec.cli.console import say
from localspec.hub.download import DownloadProgress
from localspec.hub.remote_model import RemoteModel, RepoSummary
from localspec.printable import one_line
from localspec.quantities import file_size, span, weights

__all__ = ["DownloadScreen", "show_models", "show_repositories"]

_LINE_EVERY_S: Final = 30.0
_LINE_EVERY_SHARE: Final = 0.1
_MAX_NAME: Final = 40


class DownloadScreen:
    """Shows the progress of a download on stderr. `interrupted`: whether Ctrl-C ended it."""

    def __init__(self) -> None:
        self.interrupted = False
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[state]}", markup=False),
            console=Console(file=sys.stderr, highlight=False),
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._task = self._progress.add_task("", total=None, state="")
        self._line_s = 0.0
        self._line_share = 0.0
        self._begun_s = time.monotonic()
        self._n_first_bytes: int | None = None
        self._last: DownloadProgress | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
        last, first = self._last, self._n_first_bytes
        if kind is None and not self.interrupted and last is not None and first is not None:
            n_bytes = last.n_done_bytes - first
            if n_bytes:
                say(f"{file_size(n_bytes)} in {span(time.monotonic() - self._begun_s)}, checksums right.")
            else:
                say("Everything is there already.")

    def show(self, progress: DownloadProgress) -> None:
        """A listener of a download."""
        self._last = progress
        if self._n_first_bytes is None:
            self._n_first_bytes = progress.n_done_bytes
            if progress.n_done_bytes < progress.n_total_bytes:
                here = f", {file_size(progress.n_done_bytes)} of it are here" if progress.n_done_bytes else ""
                say(f"{file_size(progress.n_total_bytes)} to download{here}.")
        if self._progress.disable:
            self._line(progress)
        else:
            self._progress.update(
                self._task,
                total=progress.n_total_bytes,
                completed=progress.n_done_bytes,
                description=_short(progress.file),
                state=state(progress),
            )

    def _line(self, progress: DownloadProgress) -> None:
        now_s, share = time.monotonic() - self._begun_s, progress.n_done_bytes / max(1, progress.n_total_bytes)
        is_due = share - self._line_share >= _LINE_EVERY_SHARE or now_s - self._line_s >= _LINE_EVERY_S
        if is_due and progress.n_done_bytes < progress.n_total_bytes:
            self._line_s, self._line_share = now_s, share
            say(f"{share:4.0%}  {state(progress)}")


def show_models(repo: str, models: Sequence[RemoteModel]) -> None:
    """What a repository has, to stdout."""
    console = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 160)
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(Text("quantization"))
    table.add_column(Text("size"), justify="right")
    table.add_column(Text("file"), overflow="fold")
    for model in models:
        parts = f" and {len(model.files) - 1} more" if len(model.files) > 1 else ""
        name = Text(f"{one_line(model.files[0].name)}{parts}")
        table.add_row(Text(one_line(model.quantization) or "–"), Text(file_size(model.n_bytes)), name)
    console.print(Text(one_line(repo), style="bold"))
    console.print(table if models else Text("no model in GGUF format"))


def show_repositories(text: str, found: Sequence[RepoSummary]) -> None:
    """What a search brought, to stdout."""
    console = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 160)
    if not found:
        console.print(Text(f"The Hub has no GGUF repository named like {one_line(text)}."))
        return
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("repository", "weights", "context", "downloads", "changed", ""):
        table.add_column(Text(heading), justify="right" if heading in {"weights", "context", "downloads"} else "left")
    for each in found:
        size = "–" if each.n_parameters is None else weights(each.n_parameters)
        context = "–" if each.n_ctx_train is None else f"{each.n_ctx_train:,}"
        row = each.repo, size, context, f"{each.n_downloads:,}", each.last_modified
        table.add_row(*(Text(one_line(cell)) for cell in row), Text("licence to accept" if each.is_gated else ""))
    console.print(table)
    say("Quantizations and sizes: localspec pull --list REPOSITORY")


def state(progress: DownloadProgress) -> str:
    """How far, how fast and how long still, in one line."""
    left = "" if progress.seconds_left is None else f"{span(progress.seconds_left)} left"
    pace = f"{file_size(progress.bytes_per_second)}/s" if progress.bytes_per_second else "waiting"
    done = f"{file_size(progress.n_done_bytes)} of {file_size(progress.n_total_bytes)}"
    return "  ".join(filter(None, [done, pace, left]))


def _short(name: str) -> str:
    file = one_line(name.rpartition("/")[2])
    return file if len(file) <= _MAX_NAME else f"…{file[-(_MAX_NAME - 1) :]}"
