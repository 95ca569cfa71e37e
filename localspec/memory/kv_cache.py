"""The cache of a context: keys and values of the layers that attend, and the states of those that recur.

Source: llama-kv-cache.cpp, llama-kv-cache-iswa.cpp, llama-memory-recurrent.cpp and `create_memory` in llama-model.cpp.
The sizes are exact: each cell holds, for each layer with a cache, heads x (key + value) elements in whole blocks.
"""

from __future__ import annotations

from typing import Final

from localspec.memory.context_shape import ContextShape
from localspec.models.hyperparameters import Hyperparameters, Layer
from localspec.models.tensor_types import TENSOR_TYPES

__all__ = ["CELL_PADDING", "KV_BLOCKS", "cells", "kv_layer_bytes", "kv_type_problem", "padded"]

CELL_PADDING: Final = 256
_KV_TYPES: Final = frozenset(["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"])
# Elements and bytes of a block of each cache type.
KV_BLOCKS: Final = {name: (length, n_bytes) for name, length, n_bytes in TENSOR_TYPES.values() if name in _KV_TYPES}
_STATE_VALUE_BYTES: Final = 4  # always f32


def padded(n_tokens: int) -> int:
    """Cells of a context of so many tokens."""
    return -(-n_tokens // CELL_PADDING) * CELL_PADDING


def cells(shape: Hyperparameters, layer: Layer, context: ContextShape) -> int:
    """Cells of a layer's cache: of the context or, in a sliding layer, of each sequence's window and one batch."""
    whole = padded(context.n_ctx)
    if not layer.is_sliding or context.whole_window_cache:
        return whole
    return padded(min(whole, shape.sliding_window * context.n_sequences + context.n_batch))


def kv_layer_bytes(shape: Hyperparameters, layer: Layer, context: ContextShape) -> int:
    """Bytes of one layer's keys and values, in one stream for all sequences, and of its recurrent states."""
    n_bytes = 0
    if layer.has_cache:
        length, block_bytes = KV_BLOCKS[context.kv_type]
        keys = layer.n_heads_kv * layer.key_length + shape.indexer_key_length
        values = 0 if shape.is_mla else layer.n_heads_kv * layer.value_length
        n_bytes = sum(-(-row // length) for row in (keys, values)) * block_bytes * cells(shape, layer, context)
    if layer.is_recurrent and shape.recurrent is not None:
        state = shape.recurrent
        n_rows = context.n_sequences * (1 + context.n_snapshots * state.can_roll_back)
        n_bytes += (state.n_conv + state.n_state) * n_rows * _STATE_VALUE_BYTES
    return n_bytes


def kv_type_problem(shape: Hyperparameters, kv_type: str) -> str:
    """Why llama.cpp refuses a cache type for this model, or ""."""
    length, _ = KV_BLOCKS[kv_type]
    for layer in shape.layers:
        for what, head in (("keys", layer.key_length), ("values", layer.value_length)):
            if head % length:
                return f"{kv_type} stores blocks of {length} numbers, and heads have {what} of {head}"
    return ""
