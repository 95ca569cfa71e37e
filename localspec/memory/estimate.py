"""How much memory a model takes on each device: weights, cache, and what a forward pass needs.

Layers are placed as llama.cpp does it (`load_tensors` in llama-model.cpp): with n layers on the GPU, the output and the
last n - 1 repeating layers; with several GPUs, split by their free memory. The input embeddings stay in system memory.
Weights and cache are exact for the architectures that are known; compute buffers are estimates.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from localspec.errors import ModelFileError
from localspec.memory.activations import Activations
from localspec.memory.context_shape import ContextShape
from localspec.memory.kv_cache import kv_layer_bytes
from localspec.memory.weights import weights_of
from localspec.models.header import GgufHeader
from localspec.models.hyperparameters import hyperparameters

__all__ = ["ContextShape", "DeviceBytes", "Footprint", "ModelMemory", "least_kv_bytes"]

_HOST: Final = -1
# With several GPUs, batches go through them like through a pipeline, and each input is there so many times
# (GGML_SCHED_MAX_COPIES).
_PIPELINE_COPIES: Final = 4


@dataclass(frozen=True, slots=True)
class DeviceBytes:
    """What one model takes on one device."""

    weights_bytes: int = 0
    kv_bytes: int = 0
    compute_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return self.weights_bytes + self.kv_bytes + self.compute_bytes


@dataclass(frozen=True, slots=True)
class ModelMemory:
    """What one model takes: in system memory, and on each GPU in the order given.

    `n_gpu_layers` of `n_layers` are on GPUs, the output counted as one. `is_exact` false: the architecture is not known
    well, so weights and cache are estimates too.
    """

    host: DeviceBytes
    gpus: tuple[DeviceBytes, ...]
    n_gpu_layers: int
    n_layers: int
    is_exact: bool

    @property
    def is_whole_on_gpu(self) -> bool:
        """Every layer and the output."""
        return bool(self.gpus) and self.n_gpu_layers == self.n_layers

    @property
    def total_bytes(self) -> int:
        """On all devices."""
        return self.host.total_bytes + sum(each.total_bytes for each in self.gpus)


def least_kv_bytes(header: GgufHeader, n_ctx: int, kv_type: str) -> int:
    """A lower bound of the cache for one sequence: what it takes exactly, or 0 where that is not certain.

    So a refusal that is based on it is always right.
    """
    try:
        footprint = Footprint(header)
    except ModelFileError:
        return 0  # llama.cpp has the last word on it
    if not footprint.shape.is_exact:
        return 0
    return sum(footprint.kv_bytes(ContextShape(n_ctx, kv_type, n_snapshots=0)))


class Footprint:
    """One model's parts, for many estimates.

    Raises:
        ModelFileError: the header lacks a number that is needed, or holds an impossible one.
    """

    def __init__(self, header: GgufHeader) -> None:
        self.header = header
        self.shape = hyperparameters(header)
        self.weights = weights_of(header, len(self.shape.layers))
        self._activations = Activations(header, self.shape)

    def kv_bytes(self, context: ContextShape) -> list[int]:
        """The cache of each layer, recurrent states included."""
        return [kv_layer_bytes(self.shape, layer, context) for layer in self.shape.layers]

    def memory(
        self, context: ContextShape, *, n_gpu_layers: int = -1, gpu_free_bytes: Sequence[int] = ()
    ) -> ModelMemory:
        """What it takes with one context; `n_gpu_layers` -1: all. `gpu_free_bytes` of each GPU decide the split."""
        n_layers = self.shape.n_layers_all + 1
        n_on_gpu = (n_layers if n_gpu_layers < 0 else min(n_gpu_layers, n_layers)) if gpu_free_bytes else 0
        places = _places(n_layers, n_on_gpu, gpu_free_bytes)
        kv = self.kv_bytes(context)
        devices = [_HOST, *range(len(gpu_free_bytes))]
        computed = self._compute_bytes(context, places, kv, n_gpus=len(gpu_free_bytes))
        used = [
            DeviceBytes(
                self._weights_bytes(device, places, has_gpu=bool(gpu_free_bytes)),
                sum(n_bytes for n_bytes, place in zip(kv, places, strict=False) if place == device),
                computed[device],
            )
            for device in devices
        ]
        return ModelMemory(used[0], tuple(used[1:]), n_on_gpu, n_layers, self.shape.is_exact)

    def _weights_bytes(self, device: int, places: Sequence[int], *, has_gpu: bool) -> int:
        weights = self.weights
        total = sum(n_bytes for n_bytes, place in zip(weights.layers_bytes, places, strict=False) if place == device)
        if device == _HOST:
            total += weights.input_bytes
        if device == places[-1]:
            total += weights.output_bytes
            if device != _HOST:
                total += weights.tied_bytes
            elif not has_gpu:  # beside a GPU, weights in system memory keep the order of the file
                total += weights.tied_on_cpu_bytes
        return total

    def _compute_bytes(
        self, context: ContextShape, places: Sequence[int], kv: Sequence[int], *, n_gpus: int
    ) -> dict[int, int]:
        parts = self._activations
        masks, row = parts.masks(context, on_gpu=n_gpus > 0), parts.rows(context)
        for_layers = parts.embeddings_of_layers(context)
        layers = range(len(self.shape.layers))
        if n_gpus == 0:
            most = max(parts.layer(i, context, on_gpu=False) for i in layers)
            return {_HOST: max(row + masks + for_layers + most, parts.logits(context))}
        is_pipeline = n_gpus > 1 and _HOST not in places
        copies = _PIPELINE_COPIES if is_pipeline else 1
        mixed = max((parts.mixer_beside_gpu(i, context) for i in layers if places[i] == _HOST), default=0)
        result = {_HOST: max(copies * (masks + row) + row + for_layers, masks + row + mixed)}
        for gpu in range(n_gpus):
            moments = [masks + for_layers + parts.layer(i, context, on_gpu=True) for i in layers if places[i] == gpu]
            if places[-1] == gpu:
                moments.append(parts.logits(context))
            if gpu == 0:
                moments += self._offloaded(context, places, kv, masks + for_layers)
            total = max(moments, default=0)
            if total and is_pipeline:
                total += (copies - 1) * (masks + row) + row + (copies * row if gpu else 0)
            result[gpu] = total
        return result

    def _offloaded(self, context: ContextShape, places: Sequence[int], kv: Sequence[int], inputs: int) -> list[int]:
        """Moments on the first GPU while it computes with a matrix or a layer's cache that lies in system memory."""
        parts, weights = self._activations, self.weights
        moments = []
        if parts.offloads_layers(context):
            for i, place in enumerate(places[: len(kv)]):
                if place == _HOST:
                    moments.append(parts.layer(i, context, on_gpu=True) + weights.largest_in_layer_bytes[i])
                    # Keys and values are copied, and the next layer's keys before these are done with.
                    moments.append(parts.attention(i, context, on_gpu=True) + kv[i] + kv[i] // 2)
        moments = [inputs + each for each in moments]
        if places[-1] == _HOST and parts.offloads_output(context):
            moments.append(parts.logits(context) + weights.largest_output_bytes)
        return moments


def _places(n_layers: int, n_on_gpu: int, gpu_free_bytes: Sequence[int]) -> list[int]:
    """The device of each repeating layer (those for multi-token prediction too) and, last, of the output."""
    if n_on_gpu == 0:
        return [_HOST] * n_layers
    shares = _shares(gpu_free_bytes)
    first = n_layers - n_on_gpu
    places = [_HOST] * first
    for i in range(n_on_gpu):
        position = _single(i / n_on_gpu)
        places.append(sum(share <= position for share in shares[:-1]))
    return places


def _shares(free_bytes: Sequence[int]) -> list[float]:
    """Cumulative shares of the GPUs, in single precision as in llama.cpp; equal ones if none has any memory."""
    sums: list[float] = []
    for n_bytes in free_bytes:
        sums.append(_single((sums[-1] if sums else 0.0) + _single(float(n_bytes))))
    total = sums[-1] or 1.0
    return [_single(each / total) for each in sums]


def _single(number: float) -> float:
    """Rounded to single precision."""
    return float(struct.unpack("<f", struct.pack("<f", number))[0])
