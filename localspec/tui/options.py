"""What the chat starts with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from localspec.engine.requests import DEFAULT_NUM_SPECULATIVE_TOKENS, Mode, SamplingParams


class MemoryFigures(Protocol):
    """Memory of the engine, in bytes; `gpu_bytes` is None where there is no card to ask."""

    @property
    def host_bytes(self) -> int: ...

    @property
    def gpu_bytes(self) -> int | None: ...


# Called from a thread, every few seconds; None while there is no engine process.
MemoryProbe = Callable[[], MemoryFigures | None]


def no_memory_figures() -> MemoryFigures | None:
    """The probe of a chat that shows no memory."""
    return None


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """Settings of a chat. `notice` is a line shown at the start; `max_tokens` None: no limit per reply."""

    sampling: SamplingParams = field(default_factory=SamplingParams)
    mode: Mode = Mode.DRAFT
    num_speculative_tokens: int = DEFAULT_NUM_SPECULATIVE_TOKENS
    system: str | None = None
    max_tokens: int | None = None
    memory_probe: MemoryProbe = no_memory_figures
    notice: str = ""
