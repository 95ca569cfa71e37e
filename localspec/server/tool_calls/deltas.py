"""What a reply turns into while it is written: content, reasoning and tool calls, piece by piece."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ContentDelta:
    """More of the answer itself."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of what the model thinks before it answers."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    """The `index`-th call of the reply, from 0. `call_id` is new and unique."""

    index: int
    call_id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolArguments:
    """More of the arguments of a call that has started: all of them together are the text of a JSON object.

    A reply that is cut short (`max_tokens`, a stop string) may leave them unfinished.
    """

    index: int
    text: str


Delta = ContentDelta | ReasoningDelta | ToolCallStart | ToolArguments
