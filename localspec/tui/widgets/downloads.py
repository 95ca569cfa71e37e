"""Downloads: all of them as rows with keys, and in the chat one line while they go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget

from localspec.pairing.downloads import Download
from localspec.tui.pair_figures import download_line, file_size, span
from localspec.tui.pairs import DownloadQueue
from localspec.tui.widgets.row_list import Row, RowList


class DownloadRows(RowList):
    """There only while there are any. Delete stops one, and takes one away that has ended; Enter resumes one."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("delete,backspace", "stop", "Stop", key_display="del")]

    def __init__(self, queue: DownloadQueue) -> None:
        super().__init__()
        self._queue = queue

    def on_mount(self) -> None:
        """Show those of before."""
        self.look()

    def look(self) -> None:
        """Show how they stand."""
        rows = self._queue.rows
        had_focus = self.has_focus
        self.display = bool(rows)
        if had_focus and not rows:
            self.screen.focus_next()
        self.show([Row(row.reference, _setter(row)) for row in rows])

    def action_stop(self) -> None:
        """Stop it, or take it away."""
        row = self._highlighted
        if row is not None:
            (self._queue.stop if row.is_under_way else self._queue.forget)(row.reference)

    def action_select(self) -> None:
        """Resume it."""
        row = self._highlighted
        if row is not None and row.can_resume:
            self._queue.resume(row.reference)
        elif row is not None and row.is_under_way:
            self.notify("Delete stops it; what has arrived is kept.")

    @property
    def _highlighted(self) -> Download | None:
        return next((row for row in self._queue.rows if row.reference == self.highlighted_key), None)


class DownloadLine(Widget):
    """One line for all that go on, or nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._text = ""

    def on_mount(self) -> None:
        """Nothing goes on yet."""
        self.display = bool(self._text)

    def look(self, rows: Sequence[Download]) -> None:
        """Show how they stand."""
        self._text = _summary(rows)
        self.display = bool(self._text)
        self.refresh()

    def render(self) -> Content:
        """The line."""
        return Content(self._text).truncate(self.content_size.width, ellipsis=True)


def _setter(row: Download) -> Callable[[int], Content]:
    return lambda width: download_line(row, width)


def _summary(rows: Sequence[Download]) -> str:
    active = [row for row in rows if row.is_under_way]
    if not active:
        return ""
    n_done, n_total = sum(row.n_done_bytes for row in active), sum(row.n_total_bytes for row in active)
    rate = sum(row.bytes_per_second for row in active)
    what = "1 download" if len(active) == 1 else f"{len(active)} downloads"
    parts = [f"{what}: {100 * n_done / max(1, n_total):.0f} % of {file_size(n_total)}"]
    if rate:
        parts += [f"{file_size(rate)}/s", f"{span((n_total - n_done) / rate)} left"]
    return "  ".join([*parts, "F2 shows them"])
