"""The numbers beside the chat, as text, and how they are set: a column where there is room, else three lines."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from textual.content import Content

from localspec.engine.events import Loaded, Step
from localspec.engine.metrics import RequestMetrics
from localspec.engine.requests import Mode
from localspec.memory.devices import MemoryUse
from localspec.printable import printable
from localspec.tui import figures
from localspec.tui.gauges import acceptance_strip, sparkline
from localspec.tui.typeset import BLANK

BAR_HEIGHT: Final = 3

_HISTORY: Final = 256  # steps and rates kept: more than a terminal has columns beside a chat

# Cells of the bar.
_GUTTER: Final = 3
_VALUE_WIDTH: Final = 7
_LABEL_WIDTH: Final = 16
_LEAST_GAUGE_WIDTH: Final = _LABEL_WIDTH + 1 + len("next lookup")
_PACE_WIDTH: Final = len("first token") + 1 + 7
_USE_WIDTH: Final = len("context") + 1 + len("9,999/9,999")

Row = tuple[str, str]


@dataclass(slots=True)
class Readings:
    """What the gauges stand at: of the reply that runs, or of the last one. `ceiling` is the most drafts of a step."""

    mode: Mode
    ceiling: int
    next_mode: Mode
    is_running: bool = False
    metrics: RequestMetrics | None = None
    loaded: Loaded | None = None
    memory: MemoryUse | None = None
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=_HISTORY))
    steps: deque[Step] = field(default_factory=lambda: deque(maxlen=_HISTORY))

    @property
    def rate(self) -> str:
        """Tokens per second: now, and after the reply its average."""
        metrics = self.metrics
        if metrics is None:
            return figures.NOTHING
        return figures.rate(metrics.recent_tokens_per_second if self.is_running else metrics.tokens_per_second)

    @property
    def accepted(self) -> str:
        """Share of the drafts that were kept."""
        return figures.percent(self.metrics.draft_acceptance_rate if self.metrics else None)

    @property
    def per_step(self) -> str:
        """Mean acceptance length."""
        return figures.length(self.metrics.mean_acceptance_length if self.metrics else None)

    @property
    def first_token(self) -> str:
        """TTFT."""
        return figures.seconds(self.metrics.ttft_s if self.metrics else None)

    @property
    def reply(self) -> str:
        """Tokens of the reply."""
        return figures.count(self.metrics.n_tokens) if self.metrics else figures.NOTHING

    @property
    def context(self) -> str:
        """Tokens in the context, and what it holds."""
        if self.loaded is None:
            return figures.NOTHING
        used = self.metrics.n_context_tokens if self.metrics else 0
        return f"{figures.count(used)}/{figures.count(self.loaded.n_ctx)}"

    @property
    def memory_rows(self) -> list[Row]:
        """Memory of the engine, and of its card if it has one."""
        if self.memory is None:
            return [("memory", figures.NOTHING)]
        rows = [("memory", figures.size(self.memory.host_bytes))]
        if self.memory.gpu_bytes is not None:
            rows.append(("GPU", figures.size(self.memory.gpu_bytes)))
        return rows


def column_lines(readings: Readings, width: int, height: int) -> list[Content]:
    """One number per line. Where `height` does not hold all, the names of the models go first, then the gaps."""
    next_mode = [("next reply", readings.next_mode.value)] if readings.next_mode is not readings.mode else []
    speed = [
        _row("tokens/s", readings.rate, width, style="bold"),
        Content.styled(sparkline(readings.rates, width), "$accent"),
        _row("first token", readings.first_token, width),
        _row("reply tokens", readings.reply, width),
    ]
    drafts = [
        _row("accepted", readings.accepted, width, style="bold"),
        acceptance_strip(readings.steps, width, readings.ceiling),
        _row("tokens per step", readings.per_step, width),
        *(_row(*row, width) for row in [("mode", readings.mode.value), *next_mode]),
    ]
    use = [_row(*row, width) for row in [("context", readings.context), *readings.memory_rows]]
    sections = [speed, drafts, use]
    if names := _names(readings.loaded, width):
        sections.insert(0, names)
    if names and _height(sections, gap=1) > height:
        sections.pop(0)
    gap = [BLANK] if _height(sections, gap=1) <= height else []
    lines: list[Content] = []
    for section in sections:
        lines += [*(gap if lines else ()), *section]
    return lines


def bar_lines(readings: Readings, width: int) -> list[Content]:
    """Gauges, and columns beside them. A narrow window shows fewer columns, never part of a number."""
    pace = [("first token", readings.first_token), ("per step", readings.per_step), ("reply", readings.reply)]
    use = [("context", readings.context), *readings.memory_rows]
    columns = [_column(pace, _PACE_WIDTH), _column(use, _USE_WIDTH)]
    while columns and _room(columns, width) < _LEAST_GAUGE_WIDTH:
        columns.pop(0)
    room = _room(columns, width)
    n_cells = max(0, room - _LABEL_WIDTH - 1)
    mode = _measure(readings.mode.value, "mode")
    if readings.next_mode is not readings.mode:
        mode += Content(f"next {readings.next_mode.value}")
    gauges = [
        _measure(readings.rate, "tokens/s") + Content.styled(sparkline(readings.rates, n_cells), "$accent"),
        _measure(readings.accepted, "accepted") + acceptance_strip(readings.steps, n_cells, readings.ceiling),
        mode.pad_right(max(0, room - mode.cell_length)),
    ]
    space = Content(" " * _GUTTER)
    return [space.join([gauge, *(column[index] for column in columns)]) for index, gauge in enumerate(gauges)]


def _names(loaded: Loaded | None, width: int) -> list[Content]:
    if loaded is None:
        return []
    names = [Content(printable(loaded.target_name)).stylize("bold")]
    if loaded.draft_name is not None:
        names.append(Content(f"+ {printable(loaded.draft_name)}").stylize("dim"))
    return [name.truncate(width, ellipsis=True) for name in names]


def _height(sections: Sequence[Sequence[Content]], *, gap: int) -> int:
    return sum(len(section) for section in sections) + gap * (len(sections) - 1)


def _row(label: str, value: str, width: int, *, style: str = "") -> Content:
    """The label on the left, the value on the right."""
    return Content.assemble((label, "dim"), " " * max(1, width - len(label) - len(value)), (value, style))


def _column(rows: Sequence[Row], width: int) -> list[Content]:
    """Rows of one width, as many as the bar has. The width does not follow the numbers: nothing moves as they grow."""
    lines = [_row(*row, width) for row in rows]
    return lines + [Content(" " * width)] * (BAR_HEIGHT - len(lines))


def _room(columns: Sequence[Sequence[Content]], width: int) -> int:
    return width - sum(column[0].cell_length + _GUTTER for column in columns)


def _measure(value: str, name: str) -> Content:
    """A value before its name, in a fixed width, so that the gauges behind start in one column."""
    return Content.assemble((value.rjust(_VALUE_WIDTH), "bold"), " ", (name.ljust(_LABEL_WIDTH - _VALUE_WIDTH), "dim"))
