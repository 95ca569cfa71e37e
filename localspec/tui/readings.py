"""The numbers beside the chat, as text."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from localspec.engine.events import Loaded, Step
from localspec.engine.metrics import RequestMetrics
from localspec.engine.requests import Mode
from localspec.memory.usage import MemoryUse
from localspec.speculative.drafter import DraftSource
from localspec.tui import drafting, figures

_HISTORY: Final = 256  # steps and rates kept: more than a terminal has columns beside a chat

Row = tuple[str, str]


@dataclass(slots=True)
class Readings:
    """What the gauges stand at. All but context and memory is of one reply: the one that runs, or the last one.

    `is_remote`: the models are a server's, which tells less, and whose memory is not looked at. `ceiling`: the most
    that is drafted at once; None: what suits the source. `asked_mode` was asked for, `running_mode` is what the engine
    made of it; both are None until the first reply.
    """

    ceiling: int | None
    next_mode: Mode
    is_remote: bool = False
    asked_mode: Mode | None = None
    running_mode: Mode | None = None
    is_running: bool = False
    metrics: RequestMetrics | None = None
    loaded: Loaded | None = None
    memory: MemoryUse | None = None
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=_HISTORY))
    steps: deque[Step] = field(default_factory=lambda: deque(maxlen=_HISTORY))

    def begin(self, mode: Mode) -> None:
        """A reply in `mode` is asked for: no number of the one before stays."""
        self.reset()
        self.asked_mode = self.running_mode = mode
        self.is_running = True

    def reset(self) -> None:
        """Nothing has run."""
        self.asked_mode = self.running_mode = self.metrics = None
        self.is_running = False
        self.rates.clear()
        self.steps.clear()

    @property
    def subject(self) -> str:
        """Which reply the numbers are of."""
        if self.running_mode is None:
            return "next reply"
        return "this reply" if self.is_running else "last reply"

    @property
    def mode(self) -> str:
        """The mode of that reply."""
        return self._mode.value if self._has_modes else figures.NOTHING

    @property
    def other_mode(self) -> Mode | None:
        """The mode of the next reply, if it was changed."""
        return None if self.asked_mode in (None, self.next_mode) or not self._has_modes else self.next_mode

    @property
    def _mode(self) -> Mode:
        return self.running_mode or self.next_mode

    @property
    def _has_modes(self) -> bool:
        return not self.is_remote if self.loaded is None else self.loaded.takes_modes

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
    def draft_length(self) -> str:
        """Tokens drafted at once, of late."""
        return figures.length(drafting.recent_draft_length(self.steps))

    @property
    def rest_note(self) -> str:
        """Why next to nothing is drafted, if that is so."""
        return drafting.rest_note(self._mode, self.ceiling, self.steps)

    @property
    def contributions(self) -> list[drafting.Contribution]:
        """What came from each source of drafts; servers do not tell."""
        return [] if self.is_remote else drafting.contributions(self._mode, self.metrics)

    def drafts_now(self, source: DraftSource | None) -> bool:
        """Whether the newest step had its draft from `source`."""
        return self.is_running and bool(self.steps) and self.steps[-1].source is source

    @property
    def first_token(self) -> str:
        """TTFT."""
        return figures.seconds(self.metrics.ttft_s if self.metrics else None)

    @property
    def reply(self) -> str:
        """Tokens of the reply."""
        return figures.count(self.metrics.n_tokens) if self.metrics and self.metrics.n_tokens else figures.NOTHING

    @property
    def context(self) -> str:
        """Tokens in the context, and what it holds."""
        if self.loaded is None:
            return figures.NOTHING
        is_known = self.metrics is None or self.metrics.n_context_tokens
        used = figures.count(self.metrics.n_context_tokens if self.metrics else 0) if is_known else figures.NOTHING
        return f"{used}/{figures.count(self.loaded.n_ctx)}" if self.loaded.n_ctx else used

    @property
    def memory_rows(self) -> list[Row]:
        """Memory of the engine, and of its card if it has one."""
        if self.is_remote:
            return []
        if self.memory is None:
            return [("memory", figures.NOTHING)]
        rows = [("memory", figures.size(self.memory.host_bytes))]
        if self.memory.gpu_bytes is not None:
            rows.append(("GPU", figures.size(self.memory.gpu_bytes)))
        return rows
