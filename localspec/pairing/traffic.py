"""From a header and where its layers lie to what a pass over one token reads, and how fast that is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from localspec.memory.choice import ModelChoice
from localspec.memory.devices import Machine
from localspec.models.description import describe
from localspec.models.header import GgufHeader
from localspec.models.quantization import n_bits
from localspec.pairing.prediction import ModelTraffic

__all__ = ["Bandwidths", "measured_bandwidths", "traffic_of"]

# A forecast for a chat of some length, not for a full context.
_TYPICAL_CONTEXT: Final = 2048
_FLOAT_BITS: Final = 16
# For cards whose bandwidth nobody tells, by the GiB that they have at most: that of a GeForce RTX 4060, 3060, 4060 Ti
# and 3090 in bytes per second, by NVIDIA's pages.
_USUAL_BANDWIDTHS: Final = ((8, 272e9), (12, 360e9), (16, 288e9))
_LARGE_CARD: Final = 936e9


@dataclass(frozen=True, slots=True)
class Bandwidths:
    """Bytes per second that memory can be read with: of the system, and of each GPU."""

    host: float
    gpus: tuple[float, ...] = ()


def measured_bandwidths(machine: Machine, *, is_here: bool = True) -> Bandwidths:
    """Those of this machine: measured for system memory (under a second), by the driver's word for cards.

    Cards that are not `is_here` are taken for usual ones of their size; where memory is shared, they read it as fast.
    """
    from localspec.memory.bandwidth import gpu_bandwidths, measured_host_bandwidth

    host = measured_host_bandwidth()
    usual = [host if machine.unified else _usual_bandwidth(gpu.total_bytes) for gpu in machine.gpus]
    known = gpu_bandwidths() if is_here else ()
    gpus = [known[i] if i < len(known) else None for i in range(len(usual))]
    return Bandwidths(host, tuple(of_card or guess for of_card, guess in zip(gpus, usual, strict=True)))


def _usual_bandwidth(n_bytes: int) -> float:
    """Of a desktop card with so much memory."""
    return next((speed for most_gib, speed in _USUAL_BANDWIDTHS if n_bytes <= most_gib * 2**30), _LARGE_CARD)


def traffic_of(header: GgufHeader, choice: ModelChoice, n_ctx: int, bandwidths: Bandwidths) -> ModelTraffic:
    """What one token costs with the layers where `choice` has them, in a context of `n_ctx` tokens."""
    described = describe(header)
    # One row of the embeddings is looked up; where they are the output too, all of them are read, there.
    has_output = any(tensor.name == "output.weight" for tensor in header.tensors)
    embeddings = sum(tensor.n_bytes for tensor in header.tensors if tensor.name == "token_embd.weight")
    of_layers = sum(tensor.n_bytes for tensor in header.tensors if tensor.name == "per_layer_token_embd.weight")
    of_experts = sum(tensor.n_bytes for tensor in header.tensors if "_exps." in tensor.name)
    unread = of_layers + (embeddings if has_output else 0)
    memory = choice.memory
    looked_up = of_layers + embeddings if memory.n_gpu_layers else unread  # with layers on a card, so is the output
    parts = [(gpu.weights_bytes, bandwidth) for gpu, bandwidth in zip(memory.gpus, bandwidths.gpus, strict=False)]
    if not memory.is_whole_on_gpu:
        parts.append((max(0, memory.host.weights_bytes - looked_up), bandwidths.host))
    total = sum(n_bytes for n_bytes, _ in parts)
    read_s = sum(n_bytes / bandwidth for n_bytes, bandwidth in parts)
    kv_bytes = memory.host.kv_bytes + sum(gpu.kv_bytes for gpu in memory.gpus)
    bits = n_bits(described.quantization)
    return ModelTraffic(
        n_parameters=described.n_parameters,
        dense_bytes=max(0, described.n_weight_bytes - unread - of_experts),
        expert_bytes=of_experts,
        n_experts=described.n_experts,
        n_experts_used=described.n_experts_used,
        kv_bytes=kv_bytes * min(n_ctx, _TYPICAL_CONTEXT) // max(1, n_ctx),
        bandwidth=total / read_s if read_s else bandwidths.host,
        on_gpu=memory.is_whole_on_gpu,
        is_quantized=bits is not None and bits < _FLOAT_BITS,
    )
