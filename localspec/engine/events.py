"""What the engine tells a front end: frozen values that cross the process boundary, one per step at most.

Of one request:   Queued, Prefilling*, StepDecoded*, then exactly one of Finished | Cancelled | Failed.
Of a load:        Loading*, then exactly one of Loaded | LoadFailed.
Of a new draft:   Loading*, then exactly one of Loaded | SwapFailed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from localspec.engine.metrics import RequestMetrics
from localspec.engine.requests import Mode
from localspec.errors import LocalspecError
from localspec.speculative.drafter import DraftSource
from localspec.speculative.rejection import Origin


class FinishReason(StrEnum):
    """Why a reply ended."""

    STOP = "stop"  # the model ended its turn, or a stop string appeared
    LENGTH = "length"  # max_tokens
    CONTEXT_FULL = "context_full"


@dataclass(frozen=True, slots=True)
class TextSpan:
    """A piece of the reply and where its last token came from.

    `is_reasoning`: it is what a model thinks before it replies, where a server keeps the two apart.
    """

    text: str
    origin: Origin
    is_reasoning: bool = False


@dataclass(frozen=True, slots=True)
class TokenChance:
    """A token, its bytes, and the natural logarithm of its probability by the target, before all transforms."""

    token: int
    piece: bytes
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """A token of the reply, and the likeliest tokens in its place, the likeliest first."""

    chosen: TokenChance
    likeliest: tuple[TokenChance, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """What one step did: `n_draft` tokens were proposed, `n_accepted` kept, `tokens` committed (one more, or a cut).

    `source` is who drafted; None in a plain step. `tokens` is empty where text came from a server that does not tell
    its steps, and the rest says nothing then.
    """

    tokens: tuple[int, ...]
    origins: tuple[Origin, ...]
    n_draft: int
    n_accepted: int
    step_s: float
    source: DraftSource | None = None


@dataclass(frozen=True, slots=True)
class Queued:
    """The request was accepted. `seed` and `mode` are those that run; a note says why a mode that was not asked for."""

    request_id: str
    seed: int
    mode: Mode
    mode_note: str = ""


@dataclass(frozen=True, slots=True)
class Prefilling:
    """`n_done` of `n_total` prompt tokens are in the target's cache; `n_cached` of them were there before.

    `n_for_draft` tokens of it are still to be read by the draft model.
    """

    request_id: str
    n_done: int
    n_total: int
    n_cached: int
    n_for_draft: int = 0


@dataclass(frozen=True, slots=True)
class StepDecoded:
    """One step: the text that it released (possibly none), what it did, and the request's metrics so far.

    `logprobs`: of its tokens, without one that ended the reply, if the request asks for them.
    """

    request_id: str
    spans: tuple[TextSpan, ...]
    step: Step
    metrics: RequestMetrics
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """The reply is complete. `spans` is text that was held back until now.

    `stop`: the stop string that ended it, if one did.
    """

    request_id: str
    spans: tuple[TextSpan, ...]
    reason: FinishReason
    metrics: RequestMetrics
    stop: str | None = None


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The front end asked to stop. `spans` is text that was held back until now."""

    request_id: str
    spans: tuple[TextSpan, ...]
    metrics: RequestMetrics


@dataclass(frozen=True, slots=True)
class Failed:
    """The reply ended with an error; what was sent before it stands."""

    request_id: str
    error: LocalspecError


@dataclass(frozen=True, slots=True)
class Loading:
    """`fraction` (0 to 1) of `what` is done: a phrase such as "Loading the target"."""

    what: str
    fraction: float


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a target says of itself. `bos` and `eos`: the texts of these tokens; "" where there is none."""

    path: Path
    n_ctx_train: int
    n_parameters: int
    n_embd: int
    weights_bytes: int
    chat_template: str | None
    bos: str
    eos: str
    fills_in: bool  # has fill-in-the-middle tokens
    embeds: bool  # was made for embeddings


@dataclass(frozen=True, slots=True)
class Loaded:
    """A pair is ready. Sizes in bytes; `*_name` as the model calls itself, or the file's name.

    Of a server's models `n_ctx` and the sizes are 0 where it does not tell them. `takes_modes` False: it drafts as it
    was started, and in no mode that a request could name.
    """

    target_name: str
    draft_name: str | None
    n_ctx: int
    n_vocab: int
    n_threads: int
    weights_bytes: int
    gpu_offload: bool
    has_chat_template: bool
    speculation_note: str = ""  # why speculation is off for this pair, when it is
    about: ModelFacts | None = None
    takes_modes: bool = True


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """Loading ended with an error, or was cancelled."""

    error: LocalspecError


@dataclass(frozen=True, slots=True)
class SwapFailed:
    """The draft model was not exchanged: it was refused, or the exchange was cancelled.

    `loaded` is what is ready now: the pair as it was, or the target alone where the old draft model could not be put
    back. None: nothing is loaded; the next request starts the engine with the pair as it was.
    """

    error: LocalspecError
    loaded: Loaded | None = None


RequestEvent = Queued | Prefilling | StepDecoded | Finished | Cancelled | Failed
TerminalEvent = Finished | Cancelled | Failed
LoadEvent = Loading | Loaded | LoadFailed
SwapEvent = Loading | Loaded | SwapFailed
