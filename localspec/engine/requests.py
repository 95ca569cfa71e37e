"""What a front end asks of the engine: frozen values that cross the process boundary."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from localspec.errors import UsageError
from localspec.llama.sampling_params import SamplingParams
from localspec.speculative.drafter import DraftSource

__all__ = [
    "DEFAULT_NUM_SPECULATIVE_TOKENS",
    "DEFAULT_N_CTX",
    "MAX_LOGPROBS",
    "MAX_NUM_SPECULATIVE_TOKENS",
    "ChatPrompt",
    "ExtraFile",
    "GenerateRequest",
    "InfillPrompt",
    "KvType",
    "LineLimits",
    "Message",
    "MixedPrompt",
    "Mode",
    "ModelSpec",
    "PairSpec",
    "Prompt",
    "RawPrompt",
    "SamplingParams",
    "default_n_ctx",
]

DEFAULT_N_CTX: Final = 8192
# The most that a draft model drafts at once, when nobody says. Adaptive lengths stay below it where that pays better.
DEFAULT_NUM_SPECULATIVE_TOKENS: Final = 16
# The most that can be asked for. Copies go up to it by default: they cost nothing to draft.
MAX_NUM_SPECULATIVE_TOKENS: Final = 32
# Alternatives whose log-probability can be asked for, at each place of a reply.
MAX_LOGPROBS: Final = 100

_request_numbers = itertools.count(1)


def default_n_ctx(n_ctx_train: int | None) -> int:
    """The context where nobody says: that of the training, within reason; None or 0: unknown."""
    return min(n_ctx_train or DEFAULT_N_CTX, DEFAULT_N_CTX)


class Mode(StrEnum):
    """Where drafts come from. `AUTO`: the draft model or the text so far, whichever promises more at each step."""

    AUTO = "auto"
    DRAFT = "draft"
    LOOKUP = "lookup"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat. `role` is "system", "user", "assistant", or another that the chat template knows ("tool").

    `more` are further keys of the turn for the template, such as `tool_calls`, `tool_call_id`, `name` and
    `reasoning_content`, with JSON values.
    """

    role: str
    content: str
    more: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """Messages that the model's chat template turns into tokens, ready for the assistant's turn.

    `tools` are the functions that the reply may call, as the template reads them (OpenAI's form); `variables` are
    further variables of the template, such as `enable_thinking`. Both hold JSON values.
    """

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = field(default=(), hash=False)
    variables: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class RawPrompt:
    """Text that is tokenized as it is, without a template.

    Special tokens written in it are plain text, unless `parse_special`: for whoever writes a template by hand.
    """

    text: str
    parse_special: bool = False


@dataclass(frozen=True, slots=True)
class MixedPrompt:
    """Token ids and texts, one after the other. Special tokens in texts count; nothing is added before token ids."""

    parts: tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class ExtraFile:
    """Text from elsewhere in a project, for `InfillPrompt`."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class InfillPrompt:
    """What stands before and after the gap that the model is to fill, by its fill-in-the-middle tokens.

    `prompt` is text after the prefix that the reply begins with; `extra` is context from other files, the most
    important last. What does not fit is left out: of `extra` from the start, then of the prefix from its start and of
    the suffix from its end.
    """

    prefix: str
    suffix: str
    prompt: str = ""
    extra: tuple[ExtraFile, ...] = ()


Prompt = ChatPrompt | RawPrompt | MixedPrompt | InfillPrompt


@dataclass(frozen=True, slots=True)
class LineLimits:
    """When a completion in an editor has enough lines.

    `min_indent`: it ends before a line that is indented by fewer columns. `time_s`: it ends with the first line that is
    complete after so many seconds of the reply.
    """

    min_indent: int = 0
    time_s: float | None = None


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One reply to generate. `max_tokens` None means: until the model ends or the context is full; 0: read the prompt.

    `num_speculative_tokens` is the most that is drafted at once; None: what suits the source, see `ceiling`. With
    `fixed_length` every draft has that length, whatever it brings. `n_logprobs`: tell the log-probability of each
    token, and of so many of the likeliest in its place; None: none. `ignores_end`: the model cannot end the reply.
    `reuses_cache` False: the prompt is read anew. `shown_tokens`: texts of control tokens, such as "[TOOL_CALLS]", that
    belong to the reply's text where the model writes them; other control tokens have no text.

    Raises:
        UsageError: a number is out of range, or `auto` with a fixed length.
    """

    prompt: Prompt
    sampling: SamplingParams = field(default_factory=SamplingParams)
    mode: Mode = Mode.AUTO
    num_speculative_tokens: int | None = None
    fixed_length: bool = False
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    n_logprobs: int | None = None
    line_limits: LineLimits | None = None
    ignores_end: bool = False
    reuses_cache: bool = True
    shown_tokens: tuple[str, ...] = ()
    request_id: str = field(default_factory=lambda: f"r{next(_request_numbers)}")

    def __post_init__(self) -> None:
        if not 0 <= (self.num_speculative_tokens or 0) <= MAX_NUM_SPECULATIVE_TOKENS:
            raise UsageError(
                f"num_speculative_tokens is {self.num_speculative_tokens}; "
                f"it must be between 0 and {MAX_NUM_SPECULATIVE_TOKENS}.",
                hint="It is the most that is drafted at once; 0 turns speculation off.",
            )
        if self.fixed_length and self.mode is Mode.AUTO:
            raise UsageError(
                "Mode auto chooses the length of every draft; it cannot be fixed.",
                hint="Use mode draft or lookup with a fixed length.",
            )
        if self.max_tokens is not None and self.max_tokens < 0:
            raise UsageError(
                f"max_tokens is {self.max_tokens}; it must be at least 0.", hint="Leave it out for no limit."
            )
        if not 0 <= (self.n_logprobs or 0) <= MAX_LOGPROBS:
            raise UsageError(f"n_logprobs is {self.n_logprobs}; it must be between 0 and {MAX_LOGPROBS}.")
        if any(not text for text in self.stop):
            raise UsageError("A stop string is empty; it would end every reply at once.", hint="Give some text.")

    def ceiling(self, source: DraftSource) -> int:
        """The most tokens that a source drafts at once in this reply."""
        if self.num_speculative_tokens is not None:
            return self.num_speculative_tokens
        return MAX_NUM_SPECULATIVE_TOKENS if source is DraftSource.LOOKUP else DEFAULT_NUM_SPECULATIVE_TOKENS


class KvType(StrEnum):
    """Storage type of a KV cache. One type for K and V: mixed types leave the GPU in default builds."""

    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    Q8_0 = "q8_0"
    Q5_1 = "q5_1"
    Q5_0 = "q5_0"
    Q4_1 = "q4_1"
    Q4_0 = "q4_0"


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One model to load. `n_gpu_layers` -1 offloads all layers.

    With `unpacked_from`, a missing file at `path` is first written from that quantized file as F32.
    """

    path: Path
    n_gpu_layers: int = -1
    kv_type: KvType = KvType.F16
    unpacked_from: Path | None = None


@dataclass(frozen=True, slots=True)
class PairSpec:
    """Everything that the engine needs to load a target and, maybe, its draft model.

    `n_ctx` None: the target's training context, at most DEFAULT_N_CTX. `n_threads` None: one per physical core.
    Prompt lookup matches n-grams of `lookup_min_ngram` to `lookup_max_ngram` tokens. `n_slots` replies run at the same
    time, and share the context between them. `may_embed`: the target may also be a decoder made for embeddings.
    """

    name: str
    target: ModelSpec
    draft: ModelSpec | None = None
    n_ctx: int | None = None
    n_threads: int | None = None
    lookup_min_ngram: int = 2
    lookup_max_ngram: int = 4
    n_slots: int = 1
    may_embed: bool = False
