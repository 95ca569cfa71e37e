"""GGUF files as they lie on the Hub: a header as large as real ones, and weights that nobody has to hold."""

from __future__ import annotations

import struct

from tests.hub.server import Padded
from tests.models.gguf_bytes import ARRAY, STRING, U16, U32, entry, gguf, strings, tensor, text

F16 = 1


def large_model(n_tokens: int = 128_256, n_merges: int = 280_147, n_bytes: int = 80 * 10**9) -> Padded:
    """A model with the vocabulary of Llama 3 by size, and weights up to `n_bytes`."""
    tokens: list[str | bytes] = [f"tok{number:05}" for number in range(n_tokens)]
    merges: list[str | bytes] = [f"{number:05} {number:04}" for number in range(n_merges)]
    types = struct.pack(f"<IQ{n_tokens}i", 5, n_tokens, *[1] * n_tokens)
    entries = [
        entry("general.architecture", STRING, text("llama")),
        entry("tokenizer.ggml.model", STRING, text("gpt2")),
        strings("tokenizer.ggml.tokens", tokens),
        entry("tokenizer.ggml.token_type", ARRAY, types),
        strings("tokenizer.ggml.merges", merges),
    ]
    n_rows = (n_bytes - (64 << 20)) // 2 // 8192
    head = gguf(entries, [tensor("token_embd.weight", (8192, n_rows), kind=F16)])
    return Padded(head, len(head) + n_rows * 8192 * 2)


def small_model(tokens: list[str | bytes], *, n_rows: int = 4) -> bytes:
    """A whole file with the vocabulary `tokens`."""
    entries = [
        entry("general.architecture", STRING, text("llama")),
        entry("tokenizer.ggml.model", STRING, text("gpt2")),
        strings("tokenizer.ggml.tokens", tokens),
    ]
    return gguf(entries, [tensor("token_embd.weight", (32, n_rows), kind=F16)], bytes(32 * n_rows * 2))


def split_model(n_parts: int) -> list[bytes]:
    """The parts of a model with one tensor in each."""
    parts = []
    for number in range(n_parts):
        entries = [
            entry("split.no", U16, struct.pack("<H", number)),
            entry("split.count", U16, struct.pack("<H", n_parts)),
            entry("split.tensors.count", 5, struct.pack("<i", n_parts)),
        ]
        if number == 0:
            entries.append(entry("general.architecture", STRING, text("llama")))
            entries.append(entry("llama.block_count", U32, struct.pack("<I", n_parts)))
        parts.append(gguf(entries, [tensor(f"blk.{number}.weight", (32, 4), kind=F16)], bytes(256)))
    return parts
