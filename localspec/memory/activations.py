"""What a forward pass keeps beside weights and cache: llama.cpp's compute buffers.

ggml plans a pass over a full batch ahead and reuses the space of tensors that are no longer needed; what counts is the
moment when most is alive. The moments of a layer are attention, a recurrent mixer and the feed-forward part; after the
last layer come the logits. The sums follow the graphs in llama.cpp (src/models; `build_ffn`, `build_moe_ffn` and
`build_attn_mha` in llama-graph.cpp) and how ggml-alloc.c places tensors: the space of the queries, freed before the
feed-forward part, is too small for what comes, so it stays beside it. They agree with llama.cpp within a tenth,
for some models with experts within a fifth.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from localspec.memory.context_shape import ContextShape
from localspec.memory.kv_cache import cells
from localspec.memory.weights import layer_of
from localspec.models.header import GgufHeader
from localspec.models.hyperparameters import Hyperparameters, Layer

__all__ = ["Activations"]

_F32: Final = 4
_F16: Final = 2
# Lengths of heads (key, value) for which ggml's CUDA backend has flash attention (ggml-cuda/fattn.cu); 0: same as key.
_FLASH_ON_GPU: Final = {
    **dict.fromkeys([40, 64, 72, 80, 96, 112, 128, 256, 512], 0),
    192: 128,
    320: 256,
    576: 512,
}
_NEVER_FLASH: Final = frozenset(["grok"])
# Rows from which an operation with weights in system memory moves to the GPU, and its weights with it.
_LEAST_OFFLOADED_ROWS: Final = 32


class Activations:
    """The compute buffers of one model. All results are bytes."""

    def __init__(self, header: GgufHeader, shape: Hyperparameters) -> None:
        self._shape = shape
        lengths = {(each.key_length, each.value_length) for each in shape.layers if each.has_cache}
        can_flash = shape.architecture not in _NEVER_FLASH
        self._has_flash = {
            False: can_flash,
            True: can_flash and all(k in _FLASH_ON_GPU and v == (_FLASH_ON_GPU[k] or k) for k, v in lengths),
        }
        self._matrices: list[dict[str, tuple[int, ...]]] = [{} for _ in shape.layers]
        for tensor in header.tensors:
            i, name = layer_of(tensor.name)
            if i is not None and i < len(shape.layers):
                self._matrices[i][name.removesuffix(".weight")] = tensor.shape or (1,)

    def masks(self, context: ContextShape, *, on_gpu: bool) -> int:
        """Which tokens may see which: for the whole cache and, where layers slide, once more for theirs."""
        n_bytes = _F16 if self._has_flash[on_gpu] else _F32
        caching = (layer for layer in self._shape.layers if layer.has_cache)
        sizes = {layer.is_sliding: cells(self._shape, layer, context) for layer in caching}
        return sum(sizes.values()) * context.n_tokens * n_bytes

    def rows(self, context: ContextShape) -> int:
        """One hidden state per token."""
        return self._shape.n_embd * context.n_tokens * _F32

    def embeddings_of_layers(self, context: ContextShape) -> int:
        """The inputs that some models look up for each layer."""
        return self._shape.n_embd_per_layer * len(self._shape.layers) * context.n_tokens * _F32

    def layer(self, i: int, context: ContextShape, *, on_gpu: bool) -> int:
        """The most that is alive in layer `i`, its input included."""
        layer, matrices = self._shape.layers[i], self._matrices[i]
        token_bytes = context.n_tokens * _F32
        n_rows = 3 if self._shape.n_embd_per_layer else 2
        before = n_rows * self._shape.n_embd + self._lost_to_queries(layer, matrices)
        moments = [(before + values) * token_bytes for values in self._feed_forward(layer, matrices)]
        moments.append(self.attention(i, context, on_gpu=on_gpu))
        if layer.is_recurrent:
            moments.append(self._mixer(matrices, context))
        return max(*moments, 4 * self._shape.n_embd * token_bytes)

    def attention(self, i: int, context: ContextShape, *, on_gpu: bool) -> int:
        """The most that is alive while layer `i` attends; 0 where it does not."""
        layer, matrices = self._shape.layers[i], self._matrices[i]
        if "attn_output" not in matrices:
            return 0
        values = self._attention(layer, matrices) * context.n_tokens * _F32
        return values + self._of_cache(layer, context, on_gpu=on_gpu)

    def mixer_beside_gpu(self, i: int, context: ContextShape) -> int:
        """What the CPU needs to update a recurrent layer's state in system memory, while a GPU computes the rest."""
        matrices, state = self._matrices[i], self._shape.recurrent
        conv = matrices.get("ssm_conv1d", matrices.get("shortconv.conv", (0, 0)))[-1]
        if state is None:
            return 0
        if "ssm_in" in matrices:  # convolved input, twice as part of the state's input, and the result
            values = 3 * conv + matrices.get("ssm_out", (0,))[0] + self._shape.n_embd
        else:  # a copy of the convolution's input for each state that is kept
            values = conv * (1 + context.n_snapshots * state.can_roll_back)
        return values * context.n_tokens * _F32

    def logits(self, context: ContextShape) -> int:
        """The last moment: the final hidden states, and logits of the rows that were asked for."""
        return min(context.n_outputs, context.n_tokens) * self._shape.n_vocab * _F32 + self.rows(context)

    def offloads_output(self, context: ContextShape) -> bool:
        """Whether an output matrix in system memory is copied to the GPU for a full pass."""
        return min(context.n_outputs, context.n_tokens) >= _LEAST_OFFLOADED_ROWS

    def offloads_layers(self, context: ContextShape) -> bool:
        """The same for the matrices of layers."""
        return context.n_tokens >= _LEAST_OFFLOADED_ROWS

    def _lost_to_queries(self, layer: Layer, matrices: Mapping[str, tuple[int, ...]]) -> int:
        """Values per token of the space that was the queries'; one that is joined with another finds a use again."""
        if self._shape.is_mla:
            return layer.n_heads * self._shape.mla_key_length
        n = layer.n_heads * layer.key_length
        return n if matrices.get("attn_q", (0,))[-1] == n else 0

    def _attention(self, layer: Layer, matrices: Mapping[str, tuple[int, ...]]) -> int:
        """Values per token while a layer attends."""
        shape = self._shape
        if shape.is_mla:
            # Queries, the same in the latent space, both parts joined, and the result in that space.
            latent = layer.n_heads * shape.kv_rank
            joined = layer.n_heads * layer.key_length
            return shape.n_embd + layer.n_heads * shape.mla_key_length + 2 * latent + joined
        query = matrices["attn_q"][-1] if "attn_q" in matrices else layer.n_heads * layer.key_length
        keys_values = layer.n_heads_kv * (layer.key_length + layer.value_length)
        return 2 * shape.n_embd + query + keys_values + layer.n_heads * layer.value_length

    def _of_cache(self, layer: Layer, context: ContextShape, *, on_gpu: bool) -> int:
        """Bytes of attention that grow with the cache.

        Without flash attention, the scores; with it, a copy as F16 of an F32 cache and, on a GPU, of any other.
        """
        n_cells = cells(self._shape, layer, context)
        if not self._has_flash[on_gpu]:
            return layer.n_heads * n_cells * context.n_tokens * _F32
        if context.kv_type == "f16" or (context.kv_type != "f32" and not on_gpu):
            return 0
        values = 0 if self._shape.is_mla else layer.value_length
        return layer.n_heads_kv * (layer.key_length + values) * n_cells * _F16

    def _feed_forward(self, layer: Layer, matrices: Mapping[str, tuple[int, ...]]) -> list[int]:
        """Values per token at the activation: gate, up and their product, or one of them."""
        widths = []
        for suffix in ("", "_shexp"):
            up = matrices.get(f"ffn_up{suffix}")
            if up is not None:
                down = matrices.get(f"ffn_down{suffix}", up)
                is_gated = f"ffn_gate{suffix}" in matrices or up[-1] > down[0]
                widths.append(3 * down[0] if is_gated else up[-1])
        experts = matrices.get("ffn_down_exps")
        if experts is not None:
            width, result = experts[0] * layer.n_experts_used, self._shape.n_embd * layer.n_experts_used
            # The experts' results take the place of gate and up, if it is large enough.
            widths.append(3 * width + (result if result > 2 * width else 0))
        return widths

    def _mixer(self, matrices: Mapping[str, tuple[int, ...]], context: ContextShape) -> int:
        """Bytes while a recurrent layer mixes tokens."""
        n_embd, state = self._shape.n_embd, self._shape.recurrent
        conv = matrices.get("ssm_conv1d", (0, 0))[-1]
        inner = matrices.get("ssm_out", (0, 0))[0]
        fixed = 0
        if "ssm_beta" in matrices or "ssm_ba" in matrices:
            # Gated delta net: the gate, the convolved input, its keys and queries with norms, the result with states.
            values = n_embd + 2 * inner + conv + (conv - inner)
            if state is not None:
                fixed = (1 + context.n_snapshots * state.can_roll_back) * state.n_state * _F32
        elif "ssm_in" in matrices:
            values = 2 * n_embd + matrices["ssm_in"][-1] + 2 * conv + 2 * inner
        elif "shortconv.in_proj" in matrices:
            values = 4 * n_embd + matrices["shortconv.in_proj"][-1]
        else:
            values = 8 * n_embd
        return values * context.n_tokens * _F32 + fixed * context.n_sequences
