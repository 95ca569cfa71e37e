"""Speed, acceptance, context and memory: always on the screen."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widget import Widget

from localspec.engine.events import Loaded, Step
from localspec.engine.metrics import RequestMetrics
from localspec.engine.requests import Mode
from localspec.tui.options import MemoryFigures
from localspec.tui.readings import BAR_HEIGHT, Readings, bar_lines, column_lines


class Statistics(Widget):
    """Takes what the engine reports and shows it as a column or as a bar, by the room that the layout gives."""

    def __init__(self, mode: Mode, ceiling: int) -> None:
        super().__init__()
        self.readings = Readings(mode=mode, ceiling=ceiling, next_mode=mode)

    def show_loaded(self, loaded: Loaded) -> None:
        """The models are known."""
        self.readings.loaded = loaded
        self.refresh()

    def show_next_mode(self, mode: Mode) -> None:
        """The mode of the next reply."""
        self.readings.next_mode = mode
        if not self.readings.is_running:
            self.readings.mode = mode
        self.refresh()

    def show_memory(self, memory: MemoryFigures | None) -> None:
        """Memory in use now."""
        if memory != self.readings.memory:
            self.readings.memory = memory
            self.refresh()

    def begin(self, mode: Mode) -> None:
        """A reply begins."""
        self.readings.mode = mode
        self.readings.metrics = None
        self.readings.is_running = True
        self.refresh()

    def advance(self, metrics: RequestMetrics, steps: Sequence[Step]) -> None:
        """Some steps were decoded."""
        self.readings.metrics = metrics
        self.readings.steps.extend(steps)
        if metrics.recent_tokens_per_second is not None:
            self.readings.rates.append(metrics.recent_tokens_per_second)
        self.refresh()

    def end(self, metrics: RequestMetrics | None) -> None:
        """The reply ended; its totals stay."""
        self.readings.metrics = metrics
        self.readings.is_running = False
        self.readings.mode = self.readings.next_mode
        self.refresh()

    def clear(self) -> None:
        """A new chat: nothing has run."""
        self.end(None)
        self.readings.rates.clear()
        self.readings.steps.clear()

    def render(self) -> Content:
        """The lines."""
        width, height = self.content_size
        is_bar = height <= BAR_HEIGHT
        lines = bar_lines(self.readings, width) if is_bar else column_lines(self.readings, width, height)
        return Content("\n").join(lines)
