"""What a front end may ask of a loaded model beside replies: answered between two steps of those that run.

A question is a frozen value that crosses the process boundary, and so is its answer:

    Tokenize -> tuple[int, ...]      Detokenize -> bytes      Render -> str      Embed -> tuple[Embedding, ...]
    AskUsage -> EngineUsage
"""

from __future__ import annotations

from dataclasses import dataclass

from localspec.engine.requests import ChatPrompt, MixedPrompt, RawPrompt
from localspec.errors import LocalspecError


@dataclass(frozen=True, slots=True)
class Tokenize:
    """A text's tokens. `add_special`: with what the model wants around it; `parse_special`: special tokens count."""

    text: str
    add_special: bool = False
    parse_special: bool = True


@dataclass(frozen=True, slots=True)
class Detokenize:
    """The bytes that tokens stand for, special tokens written out."""

    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Render:
    """The text that the chat template makes of a chat."""

    prompt: ChatPrompt


@dataclass(frozen=True, slots=True)
class Embed:
    """An embedding of each text, by a model that was made for that."""

    prompts: tuple[RawPrompt | MixedPrompt, ...]


@dataclass(frozen=True, slots=True)
class Embedding:
    """A vector of length 1 and the number of tokens that it stands for."""

    values: tuple[float, ...]
    n_tokens: int


@dataclass(frozen=True, slots=True)
class AskUsage:
    """What the context is used for now."""


@dataclass(frozen=True, slots=True)
class SlotUsage:
    """One slot: the tokens of its cache, and the request that runs in it, if one does."""

    n_cells: int
    request_id: str | None


@dataclass(frozen=True, slots=True)
class EngineUsage:
    """The slots and the requests that wait for one; all slots share a cache of `n_ctx` tokens."""

    slots: tuple[SlotUsage, ...]
    n_waiting: int
    n_ctx: int


Question = Tokenize | Detokenize | Render | Embed | AskUsage
AnswerValue = tuple[int, ...] | bytes | str | tuple[Embedding, ...] | EngineUsage


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer; its type is that of the question."""

    value: AnswerValue


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no answer."""

    error: LocalspecError


AnswerEvent = Answer | Refusal
