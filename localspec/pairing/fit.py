"""Whether a target has room on a machine: always by the plan of its memory, so that no list says another thing.

Where a header is known, it is that of the model itself. Where only a size is, it is the header of a usual model of that
size, and the answer is a guess.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import StrEnum
from pathlib import PurePath
from typing import Final, TypeAlias

from localspec.errors import LocalspecError
from localspec.memory.choice import Choice
from localspec.memory.plan import best_choice
from localspec.models.bare_header import unpack
from localspec.models.header import GgufHeader, MetadataValue, TensorInfo
from localspec.models.library import LocalModel
from localspec.pairing.drafts import Conditions

__all__ = ["ConditionsFor", "Fit", "choice_of", "fit_here", "fit_of", "guessed_fit", "usual_header"]

ConditionsFor: TypeAlias = Callable[[int], Conditions]
"""What a target is judged for, by the context that it was trained with; 0: not known."""

_USUAL_BYTES_PER_WEIGHT: Final = 0.6  # of Q4_K_M
_MOST_LAYERS: Final = 128
_HEAD_LENGTH: Final = 128
_N_HEADS_KV: Final = 8
_N_VOCAB: Final = 128_256
_WIDENING: Final = 3  # of the feed-forward part


class Fit(StrEnum):
    """Whether a target has room on this machine."""

    FITS = "fits"
    PARTLY = "partly on the GPU"
    TOO_LARGE = "too large"
    UNKNOWN = "size unknown"


def fit_of(header: GgufHeader | None, conditions: Conditions) -> Fit:
    """That of a target alone. None, or a header that nothing can be planned with: unknown."""
    if header is None or not header.tensors:
        return Fit.UNKNOWN
    try:
        choice = choice_of(header, conditions)
    except LocalspecError:  # who chooses it is told
        return Fit.UNKNOWN
    if not choice.fits:
        return Fit.TOO_LARGE
    return Fit.FITS if choice.is_target_whole_on_gpu or not choice.machine.gpus else Fit.PARTLY


def choice_of(header: GgufHeader, conditions: Conditions) -> Choice:
    """How a target would be loaded alone. Raises as `memory.plan.plan`."""
    return best_choice(
        header,
        conditions.machine,
        n_ctx=conditions.n_ctx,
        kv_type=conditions.kv_type,
        n_gpu_layers=conditions.n_gpu_layers,
        margin=conditions.margin,
    )


def fit_here(model: LocalModel, conditions: Conditions) -> Fit:
    """Whether a model on this machine has room, by what is kept of its header."""
    if not model.summary.bare or model.path is None:
        return Fit.UNKNOWN
    return fit_of(unpack(model.summary.bare, model.path), conditions)


def guessed_fit(n_bytes: int | None, conditions: Conditions) -> Fit:
    """The same of a file of which only the size is known, or not even that."""
    return Fit.UNKNOWN if n_bytes is None else fit_of(usual_header(n_bytes), conditions)


def usual_header(n_bytes: int) -> GgufHeader:
    """Of a model like most of its size: dense, with grouped queries.

    Layers and widths are near those of Llama 3, Qwen 2.5 and Qwen 3 from 0.5 to 72 billion weights.
    """
    n_weights = max(1.0, n_bytes / _USUAL_BYTES_PER_WEIGHT)
    n_layers = max(4, min(_MOST_LAYERS, round(16 * (n_weights / 1e9) ** 0.38)))
    n_heads = max(_N_HEADS_KV, round(math.sqrt(n_weights / (12 * n_layers)) / _HEAD_LENGTH))
    width = n_heads * _HEAD_LENGTH
    metadata: dict[str, MetadataValue] = {
        "general.architecture": "llama",
        "llama.block_count": n_layers,
        "llama.embedding_length": width,
        "llama.attention.head_count": n_heads,
        "llama.attention.head_count_kv": _N_HEADS_KV,
        "llama.attention.key_length": _HEAD_LENGTH,
        "llama.attention.value_length": _HEAD_LENGTH,
        "llama.vocab_size": _N_VOCAB,
    }
    shapes = {"token_embd.weight": (width, _N_VOCAB), "output.weight": (width, _N_VOCAB)}
    for layer in range(n_layers):
        shapes |= {
            f"blk.{layer}.attn_q.weight": (width, width),
            f"blk.{layer}.attn_output.weight": (width, width),
            f"blk.{layer}.ffn_gate.weight": (width, _WIDENING * width),
            f"blk.{layer}.ffn_up.weight": (width, _WIDENING * width),
            f"blk.{layer}.ffn_down.weight": (_WIDENING * width, width),
        }
    share = n_bytes / sum(math.prod(shape) for shape in shapes.values())
    tensors = tuple(TensorInfo(name, shape, "f16", 0, int(math.prod(shape) * share)) for name, shape in shapes.items())
    return GgufHeader(PurePath("a usual model"), 3, metadata, tensors, 0, n_bytes)
