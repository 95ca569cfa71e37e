"""Speed, acceptance, context and memory: always on the screen."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from typing import Final

from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from localspec.engine.events import Loaded, Step
from localspec.engine.metrics import RequestMetrics
from localspec.engine.requests import Mode
from localspec.memory.usage import MemoryUse
from localspec.tui.options import MemoryProbe
from localspec.tui.panel import BAR_HEIGHT, bar_lines, column_lines
from localspec.tui.readings import Readings

_log = logging.getLogger(__name__)

_MEMORY_INTERVAL_S: Final = 2.0


class Statistics(Widget):
    """Takes what the engine reports and shows it as a column or as a bar, by the room that the layout gives."""

    class MemoryRead(Message, bubble=False):
        """The answer of the memory probe."""

        def __init__(self, memory: MemoryUse | None) -> None:
            super().__init__()
            self.memory = memory

    def __init__(self, mode: Mode, ceiling: int | None, memory_probe: MemoryProbe, *, is_remote: bool = False) -> None:
        super().__init__()
        self.readings = Readings(ceiling=ceiling, next_mode=mode, is_remote=is_remote)
        self._memory_probe = memory_probe
        self._is_probing = False

    def on_mount(self) -> None:
        """Keep the memory figures up to date."""
        self.ask_for_memory()
        self.set_interval(_MEMORY_INTERVAL_S, self.ask_for_memory)

    def show_loaded(self, loaded: Loaded) -> None:
        """The models are known, and in memory."""
        self.readings.loaded = loaded
        self.refresh()
        self.ask_for_memory()

    def show_next_mode(self, mode: Mode) -> None:
        """The mode of the next reply."""
        self.readings.next_mode = mode
        self.refresh()

    def show_ceiling(self, num_speculative_tokens: int | None) -> None:
        """The most that is drafted at once; None: what suits the source."""
        self.readings.ceiling = num_speculative_tokens
        self.refresh()

    def begin(self, mode: Mode) -> None:
        """A reply in `mode` was asked for."""
        self.readings.begin(mode)
        self.refresh()

    def show_running_mode(self, mode: Mode) -> None:
        """The mode that the engine runs; it may be another than the one asked for."""
        self.readings.running_mode = mode
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
        self.refresh()

    def clear(self) -> None:
        """A new chat: nothing has run."""
        self.readings.reset()
        self.refresh()

    def ask_for_memory(self) -> None:
        """Ask the probe, in a thread: drivers and the system may take their time."""
        if not self._is_probing:
            self._is_probing = True
            self.run_worker(self._probe, thread=True)

    def render(self) -> Content:
        """The lines."""
        width, height = self.content_size
        is_bar = height <= BAR_HEIGHT
        lines = (bar_lines if is_bar else column_lines)(self.readings, width, height)
        return Content("\n").join(lines)

    def _probe(self) -> None:
        memory: MemoryUse | None
        try:
            memory = self._memory_probe()
        except Exception:
            _log.exception("The memory probe failed.")
            memory = None
        # Not call_from_thread: it waits for an answer that a closing program does not give.
        with contextlib.suppress(RuntimeError):
            self.post_message(self.MemoryRead(memory))

    def on_statistics_memory_read(self, message: MemoryRead) -> None:
        """The probe has answered."""
        self._is_probing = False
        if message.memory != self.readings.memory:
            self.readings.memory = message.memory
            self.refresh()
