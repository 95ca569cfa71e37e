"""Downloads as rows, each with its keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from textual.binding import Binding, BindingType
from textual.content import Content

from localspec.pairing.downloads import Download
from localspec.tui.pair_figures import download_line
from localspec.tui.pairs import DownloadQueue
from localspec.tui.widgets.row_list import Row, RowList

_MOST_SHOWN: Final = 4  # the others are scrolled to


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
        self.styles.height = min(_MOST_SHOWN, len(rows))
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


def _setter(row: Download) -> Callable[[int], Content]:
    return lambda width: download_line(row, width)
