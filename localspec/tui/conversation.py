"""What was said in a chat, and which part of it the next request carries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto

from localspec.engine.events import FinishReason, TextSpan
from localspec.engine.metrics import RequestMetrics
from localspec.engine.requests import Message, Mode


class Outcome(Enum):
    """How a reply stands."""

    OPEN = auto()
    FINISHED = auto()
    STOPPED = auto()
    FAILED = auto()


@dataclass(slots=True)
class Reply:
    """One reply as it grows. The spans hold the text as the model wrote it, and where each piece came from.

    `mode` is the one asked for until the engine says which one runs; None: whoever replies knows no modes.
    """

    mode: Mode | None
    spans: list[TextSpan] = field(default_factory=list)
    outcome: Outcome = Outcome.OPEN
    reason: FinishReason | None = None
    metrics: RequestMetrics | None = None

    @property
    def text(self) -> str:
        """The whole reply, without what the model thought before it: that is no part of later requests."""
        return "".join(span.text for span in self.spans if not span.is_reasoning)

    @property
    def is_empty(self) -> bool:
        """No text yet."""
        return not any(span.text for span in self.spans if not span.is_reasoning)

    @property
    def is_thinking(self) -> bool:
        """The model has not begun to reply, and shows what it thinks."""
        return bool(self.spans) and self.spans[-1].is_reasoning

    def extend(self, spans: Iterable[TextSpan]) -> None:
        """Add what a step released."""
        self.spans.extend(spans)


@dataclass(slots=True)
class Exchange:
    """A prompt and its reply."""

    prompt: str
    reply: Reply

    @property
    def is_history(self) -> bool:
        """Whether later requests carry it: complete replies do, stopped ones with what they have.

        A failed one does not, nor one that was stopped before its first word: their prompt went back to the user,
        who may send it again.
        """
        match self.reply.outcome:
            case Outcome.FINISHED:
                return True
            case Outcome.STOPPED:
                return not self.reply.is_empty
            case _:
                return False


class Conversation:
    """The exchanges of one chat, oldest first."""

    def __init__(self, system: str | None = None) -> None:
        self.system = system
        self.exchanges: list[Exchange] = []

    def messages(self, prompt: str) -> tuple[Message, ...]:
        """What the engine gets for `prompt`: the system prompt, the history, the prompt."""
        messages = [Message("system", self.system)] if self.system else []
        for exchange in self.exchanges:
            if exchange.is_history:
                messages.append(Message("user", exchange.prompt))
                messages.append(Message("assistant", exchange.reply.text))
        return (*messages, Message("user", prompt))
