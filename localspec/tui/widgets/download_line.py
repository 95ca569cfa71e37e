"""Downloads in the chat: one line, there only while they go on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.content import Content
from textual.widget import Widget

from localspec.quantities import span
from localspec.tui.figures import file_size

if TYPE_CHECKING:
    from localspec.pairing.downloads import Download


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
