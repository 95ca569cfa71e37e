"""What the chat starts with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from localspec.engine.requests import Mode, SamplingParams
from localspec.memory.usage import MemoryUse
from localspec.tui.pairs import Pairs

# Called from a thread, every few seconds; None while there is no engine process.
MemoryProbe = Callable[[], MemoryUse | None]


@dataclass(slots=True)
class ChatOptions:
    """Settings of a chat. `notice` is a line shown at the start; `max_tokens` None: no limit per reply.

    `num_speculative_tokens` and `fixed_length` change with the pair, where another was tuned otherwise.
    `num_speculative_tokens` None: what suits the source of the drafts; see `GenerateRequest`.
    `fixed_length` is for the modes that have one source of drafts: auto chooses its lengths. `pairs` is called
    when other models are asked for; None: the pair that the chat starts with is the only one. `is_first_run`: nobody
    has chosen a pair yet. `server`: the address of the server whose models answer; "": they run here.
    """

    sampling: SamplingParams = field(default_factory=SamplingParams)
    mode: Mode = Mode.AUTO
    num_speculative_tokens: int | None = None
    fixed_length: bool = False
    system: str | None = None
    max_tokens: int | None = None
    memory_probe: MemoryProbe = lambda: None
    notice: str = ""
    pairs: Callable[[], Pairs] | None = None
    is_first_run: bool = False
    server: str = ""
