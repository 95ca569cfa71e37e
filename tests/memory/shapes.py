"""Models that are all shape: real hyper-parameters, a full tensor table and, for the weights, a hole in the file.

Such a file loads as the real one would, takes as much memory, and costs some kilobytes of disk. Here are the writer and
the parts of layers; `shape_models` has the models.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.models import gguf_bytes as g

Tensor = tuple[str, tuple[int, ...]]
Value = bool | int | float | str | list[int] | list[bool]

# Elements and bytes of a block, and the number of the type.
TYPES = {"f32": (1, 4, 0), "f16": (1, 2, 1), "q4_0": (32, 18, 2), "q8_0": (32, 34, 8), "q4_K": (256, 144, 12)}


@dataclass(frozen=True)
class Shape:
    """One model: `values` are the metadata below the architecture's name, `tensors` come without the embeddings."""

    architecture: str
    n_vocab: int
    n_embd: int
    values: Mapping[str, Value]
    layers: list[list[Tensor]]
    others: list[Tensor] = field(default_factory=list)
    tied: bool = False

    def tensors(self) -> Iterator[Tensor]:
        yield "token_embd.weight", (self.n_embd, self.n_vocab)
        if not any(name.startswith(("output_norm", "token_embd_norm")) for name, _ in self.others):
            yield "output_norm.weight", (self.n_embd,)
        if not self.tied:
            yield "output.weight", (self.n_embd, self.n_vocab)
        yield from self.others
        for i, layer in enumerate(self.layers):
            yield from ((f"blk.{i}.{name}", shape) for name, shape in layer)


def write_shape(path: Path, shape: Shape, weights: str = "f16", *, tokens: bool | list[str] = False) -> Path:
    """Write the model, all matrices in the type `weights`. `tokens`: a vocabulary of the real size, or these."""
    entries = [g.entry("general.architecture", g.STRING, g.text(shape.architecture))]
    entries += [_entry(f"{shape.architecture}.{key}", value) for key, value in shape.values.items()]
    entries += (
        _vocabulary(shape.n_vocab, tokens if isinstance(tokens, list) else [])
        if tokens
        else [
            _entry("tokenizer.ggml.model", "no_vocab"),
            _entry(f"{shape.architecture}.vocab_size", shape.n_vocab),
        ]
    )
    rows, offset = [], 0
    for name, dimensions in shape.tensors():
        kind = weights if len(dimensions) > 1 and name.endswith("weight") and "conv" not in name else "f32"
        length, n_bytes, number = TYPES[kind]
        if dimensions[0] % length:
            length, n_bytes, number = TYPES["f16"]
        rows.append(g.tensor(name, dimensions, number, offset))
        size = n_bytes * (_product(dimensions) // length)
        end = offset + size
        offset = -(-end // 32) * 32
    head = g.gguf(entries, rows)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + end)
    return path


def _product(numbers: Iterable[int]) -> int:
    result = 1
    for number in numbers:
        result *= number
    return result


def _entry(key: str, value: Value) -> bytes:
    if isinstance(value, bool):
        return g.entry(key, g.BOOL, bytes([value]))
    if isinstance(value, int):
        return g.entry(key, g.U32, struct.pack("<I", value))
    if isinstance(value, float):
        return g.entry(key, g.F32, struct.pack("<f", value))
    if isinstance(value, str):
        return g.entry(key, g.STRING, g.text(value))
    if all(isinstance(each, bool) for each in value):
        return g.entry(key, g.ARRAY, struct.pack("<IQ", g.BOOL, len(value)) + bytes(value))
    return g.entry(key, g.ARRAY, struct.pack("<IQ", g.I32, len(value)) + array("i", value).tobytes())


def _vocabulary(n_vocab: int, texts: list[str]) -> list[bytes]:
    tokens: list[str | bytes] = [f"t{i}" for i in range(n_vocab)]
    tokens[:3] = ["<s>", "</s>", "Ċ"]
    tokens[: len(texts)] = texts
    return [
        _entry("tokenizer.ggml.model", "gpt2"),
        _entry("tokenizer.ggml.pre", "default"),
        g.strings("tokenizer.ggml.tokens", tokens),
        g.strings("tokenizer.ggml.merges", ["t 1"]),
        _entry("tokenizer.ggml.bos_token_id", 0),
        _entry("tokenizer.ggml.eos_token_id", 1),
        _entry("tokenizer.ggml.add_bos_token", False),
    ]


# --- parts of layers --------------------------------------------------------------------------------------------------


def attention(
    embd: int, heads: int, heads_kv: int, head: int, *, norms: bool = False, bias: bool = False
) -> list[Tensor]:
    """Separate projections; `norms` of each head's query and key."""
    sizes = {"q": heads * head, "k": heads_kv * head, "v": heads_kv * head}
    tensors: list[Tensor] = [(f"attn_{name}.weight", (embd, size)) for name, size in sizes.items()]
    tensors += [(f"attn_{name}.bias", (size,)) for name, size in sizes.items() if bias]
    tensors += [(f"attn_{name}_norm.weight", (head,)) for name in "qk" if norms]
    return [*tensors, ("attn_output.weight", (heads * head, embd))]


def feed_forward(embd: int, width: int, *, gated: bool = True, suffix: str = "") -> list[Tensor]:
    names = ["gate", "up"] if gated else ["up"]
    tensors: list[Tensor] = [(f"ffn_{name}{suffix}.weight", (embd, width)) for name in names]
    return [*tensors, (f"ffn_down{suffix}.weight", (width, embd))]


def experts(embd: int, width: int, count: int) -> list[Tensor]:
    tensors: list[Tensor] = [(f"ffn_{name}_exps.weight", (embd, width, count)) for name in ("gate", "up")]
    return [("ffn_gate_inp.weight", (embd, count)), *tensors, ("ffn_down_exps.weight", (width, embd, count))]


def norms(embd: int, *names: str) -> list[Tensor]:
    return [(f"{name}.weight", (embd,)) for name in names]


def mamba2(embd: int, inner: int, state: int, groups: int, heads: int, kernel: int) -> list[Tensor]:
    conv = inner + 2 * groups * state
    return [
        ("ssm_in.weight", (embd, inner + conv + heads)),
        ("ssm_conv1d.weight", (kernel, conv)),
        ("ssm_conv1d.bias", (conv,)),
        ("ssm_dt.bias", (heads,)),
        ("ssm_a", (1, heads)),
        ("ssm_d", (1, heads)),
        ("ssm_norm.weight", (inner // groups, groups)),
        ("ssm_out.weight", (inner, embd)),
    ]


def delta_net(embd: int, state: int, groups: int, heads: int, kernel: int) -> list[Tensor]:
    conv, value = 2 * state * groups + state * heads, state * heads
    return [
        ("attn_qkv.weight", (embd, conv)),
        ("attn_gate.weight", (embd, value)),
        ("ssm_conv1d.weight", (kernel, conv)),
        ("ssm_dt.bias", (heads,)),
        ("ssm_a", (heads,)),
        ("ssm_beta.weight", (embd, heads)),
        ("ssm_alpha.weight", (embd, heads)),
        ("ssm_norm.weight", (state,)),
        ("ssm_out.weight", (value, embd)),
    ]
