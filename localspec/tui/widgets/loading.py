"""Progress of loading the models: one line, there only while they load."""

from __future__ import annotations

from typing import Final

from textual.content import Content
from textual.widget import Widget

from localspec.printable import printable
from localspec.tui.gauges import progress_bar

_BAR_WIDTH: Final = 24


class LoadingLine(Widget):
    """Names what is being loaded, and how much of it is."""

    def __init__(self) -> None:
        super().__init__()
        self._what = "Starting the engine"
        self._fraction: float | None = None

    def show(self, what: str, fraction: float) -> None:
        """`fraction` (0 to 1) of `what` is loaded."""
        self._what = printable(what)
        self._fraction = fraction
        self.display = True
        self.refresh()

    def hide(self) -> None:
        """Nothing is loading."""
        self.display = False

    def render(self) -> Content:
        """The line."""
        if self._fraction is None:
            return Content(f"{self._what} …")
        percent = f"{round(100 * min(1.0, max(0.0, self._fraction))):3} %"
        room = self.content_size.width - len(percent) - 2
        name = Content(self._what).truncate(max(0, room), ellipsis=True)
        bar_width = min(_BAR_WIDTH, room - name.cell_length - 2)
        bar = progress_bar(self._fraction, bar_width) if bar_width > 3 else Content("")
        return Content.assemble(name, "  ", bar, "  ", percent)
