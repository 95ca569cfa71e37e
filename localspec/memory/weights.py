"""Where a model's weights lie: which tensors llama.cpp keeps beside the CPU, and which go with a layer.

Source: `load_tensors` and `create_tensor` (llama-model.cpp, llama-model-loader.cpp), and the table of tensors in
llama-arch.cpp that says whether each belongs to the input, a layer or the output.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from localspec.models.header import GgufHeader, TensorInfo

__all__ = ["Weights", "layer_of", "weights_of"]

# By the name without its ending. Everything else outside the layers ("blk.") belongs to the first layer.
_INPUT: Final = frozenset(["token_embd", "position_embd", "token_types", "per_layer_token_embd"])
_OUTPUT: Final = frozenset(
    [
        "output",
        "output_norm",
        "cls",
        "dense_2",
        "dense_3",
        "altup_proj",
        "altup_unembd_proj",
        "hc_head",
        "output_res_score",
    ]
)
_UNUSED: Final = ("masked_embd",)
# Types whose rows ggml rearranges for the CPU, by processor (ggml-cpu/repack.cpp): a tied output is a copy then.
_REARRANGED: Final = {
    "x86": frozenset(["q4_0", "q4_K", "iq4_nl", "mxfp4"]),
    "arm": frozenset(["q4_0", "q4_K", "q5_K", "q6_K", "iq4_nl", "mxfp4", "q8_0", "q1_0"]),
}
_MAX_DIGITS: Final = 6  # of a layer's number
_GPU_ALIGNMENT: Final = 128  # of CUDA's buffers; each tensor starts at such an address


@dataclass(frozen=True, slots=True)
class Weights:
    """Bytes of a model's weights by part, and of the largest matrix of each layer and of the output.

    `tied_bytes`: the embeddings, if they are the output too; the device of the output then has a copy, unless that is
    the CPU. `tied_on_cpu_bytes`: what a copy takes on the CPU, because it is rearranged there.
    """

    input_bytes: int
    layers_bytes: tuple[int, ...]
    output_bytes: int
    tied_bytes: int
    tied_on_cpu_bytes: int
    largest_in_layer_bytes: tuple[int, ...]
    largest_output_bytes: int

    @property
    def total_bytes(self) -> int:
        """All that is loaded, with every tensor once."""
        return self.input_bytes + sum(self.layers_bytes) + self.output_bytes


def weights_of(header: GgufHeader, n_layers: int) -> Weights:
    """Sort the tensors; layers from `n_layers` on (for multi-token prediction) are not loaded."""
    layers, largest = [0] * n_layers, [0] * n_layers
    of_input = of_output = largest_output = embeddings = embeddings_on_cpu = 0
    is_tied = True
    for tensor, layer in _placed(header, n_layers):
        size = _aligned(tensor)
        if layer is not None:
            layers[layer] += size
            largest[layer] = max(largest[layer], size)
            continue
        name = tensor.name.partition(".")[0]
        if name in _INPUT:
            of_input += size
            if tensor.name == "token_embd.weight":
                embeddings = size
                is_copied = tensor.type_name in _rearranged() and tensor.shape[-1:] and tensor.shape[-1] % 8 == 0
                embeddings_on_cpu = size if is_copied else 0
        else:
            of_output += size
            largest_output = max(largest_output, size)
            is_tied = is_tied and tensor.name != "output.weight"
    return Weights(
        input_bytes=of_input,
        layers_bytes=tuple(layers),
        output_bytes=of_output,
        tied_bytes=embeddings if is_tied else 0,
        tied_on_cpu_bytes=embeddings_on_cpu if is_tied else 0,
        largest_in_layer_bytes=tuple(largest),
        largest_output_bytes=max(largest_output, embeddings if is_tied else 0),
    )


def layer_of(name: str) -> tuple[int | None, str]:
    """The layer of a tensor and its name there: "blk.3.attn_q.weight" is (3, "attn_q.weight"); None outside layers."""
    first, _, rest = name.partition(".")
    number, _, name_there = rest.partition(".")
    if first == "blk" and number.isdecimal() and len(number) <= _MAX_DIGITS:
        return int(number), name_there
    return None, name


def _placed(header: GgufHeader, n_layers: int) -> Iterator[tuple[TensorInfo, int | None]]:
    """Every tensor that is loaded, with its layer; None: of the input or the output."""
    for tensor in header.tensors:
        first = tensor.name.partition(".")[0]
        layer, _ = layer_of(tensor.name)
        if layer is not None:
            if layer < n_layers:
                yield tensor, layer
        elif first in _INPUT or first in _OUTPUT or (first == "token_embd_norm" and header.architecture == "lfm2"):
            yield tensor, None
        elif not first.startswith(_UNUSED):
            yield tensor, 0


def _aligned(tensor: TensorInfo) -> int:
    """As on a GPU; on the CPU the padding is less than a thousandth."""
    return -(-tensor.n_bytes // _GPU_ALIGNMENT) * _GPU_ALIGNMENT


def _rearranged() -> frozenset[str]:
    machine = platform.machine().lower()
    return _REARRANGED["arm" if machine.startswith(("arm", "aarch64")) else "x86"]
