"""How much memory a model's KV cache takes, from the header of its file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from localspec.models.gguf import GgufHeader

# Bytes per element, blocks and their scales included (ggml's block layouts).
KV_TYPE_BYTES: Final = {
    "f32": 4.0,
    "f16": 2.0,
    "bf16": 2.0,
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "q4_1": 20 / 32,
    "q4_0": 18 / 32,
}
# Recurrent state, compressed caches (MLA) and layers that share one: what they take is not this simple.
_OTHER_CACHES: Final = ("ssm.", "attention.kv_lora_rank", "attention.shared_kv_layers", "full_attention_interval")


def least_kv_bytes(header: GgufHeader, n_ctx: int, kv_type: str) -> int:
    """A lower bound of the KV cache for `n_ctx` tokens: bytes = tokens * sum over layers of heads * (key + value).

    Sliding-window models count only their window and recurrent layers count nothing, so a refusal that is based on
    this number is always right.
    """
    architecture = header.architecture

    def number(key: str, default: int) -> int:
        value = header.metadata.get(f"{architecture}.{key}")
        return int(value) if isinstance(value, int) else default

    n_layers, n_embd = number("block_count", 0), number("embedding_length", 0)
    heads = _per_layer(header.metadata.get(f"{architecture}.attention.head_count"), n_layers)
    heads_kv = _per_layer(header.metadata.get(f"{architecture}.attention.head_count_kv"), n_layers) or heads
    if not heads or any(key.startswith(f"{architecture}.{part}") for key in header.metadata for part in _OTHER_CACHES):
        return 0
    head_length = n_embd // max(1, *heads)
    key_length = number("attention.key_length", head_length)
    value_length = number("attention.value_length", head_length)
    n_tokens = min(n_ctx, number("attention.sliding_window", n_ctx) or n_ctx)
    return int(n_tokens * sum(heads_kv) * (key_length + value_length) * KV_TYPE_BYTES[kv_type])


def _per_layer(value: object, n_layers: int) -> list[int]:
    if isinstance(value, int):
        return [value] * n_layers
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [int(each) for each in value]
    return []
