"""From a header and where its layers lie to what a pass over one token reads, and how fast that is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from localspec.memory.choice import ModelChoice
from localspec.models.description import describe
from localspec.models.header import GgufHeader
from localspec.models.quantization import n_bits
from localspec.pairing.prediction import ModelTraffic

__all__ = ["Bandwidths", "measured_bandwidths", "traffic_of"]

# A forecast for a chat of some length, not for a full context.
_TYPICAL_CONTEXT: Final = 2048
_FLOAT_BITS: Final = 16
# For cards whose bandwidth nobody tells: that of the slowest with 8 GB that is still common (GDDR6 on 128 bits).
_UNKNOWN_GPU: Final = 220e9


@dataclass(frozen=True, slots=True)
class Bandwidths:
    """Bytes per second that memory can be read with: of the system, and of each GPU."""

    host: float
    gpus: tuple[float, ...] = ()


def measured_bandwidths(n_gpus: int) -> Bandwidths:
    """Those of this machine: measured for system memory (under a second), by the driver's word for cards."""
    from localspec.memory.bandwidth import gpu_bandwidths, measured_host_bandwidth

    known = [bandwidth or _UNKNOWN_GPU for bandwidth in gpu_bandwidths()]
    gpus = (*known, *[_UNKNOWN_GPU] * n_gpus)[:n_gpus]
    return Bandwidths(measured_host_bandwidth(), gpus)


def traffic_of(header: GgufHeader, choice: ModelChoice, n_ctx: int, bandwidths: Bandwidths) -> ModelTraffic:
    """What one token costs with the layers where `choice` has them, in a context of `n_ctx` tokens."""
    described = describe(header)
    # One row of the embeddings is looked up; where they are the output too, all of them are read.
    has_output = any(tensor.name == "output.weight" for tensor in header.tensors)
    of_experts = sum(tensor.n_bytes for tensor in header.tensors if "_exps." in tensor.name)
    unread = sum(tensor.n_bytes for tensor in header.tensors if has_output and tensor.name == "token_embd.weight")
    memory = choice.memory
    on_host = memory.host.weights_bytes - (unread if memory.is_whole_on_gpu else 0)
    parts = [(max(0, on_host), bandwidths.host)]
    parts += [(gpu.weights_bytes, bandwidth) for gpu, bandwidth in zip(memory.gpus, bandwidths.gpus, strict=False)]
    if memory.is_whole_on_gpu:  # what stays in system memory then is looked up, not read
        parts = parts[1:]
    total = sum(n_bytes for n_bytes, _ in parts)
    read_s = sum(n_bytes / bandwidth for n_bytes, bandwidth in parts)
    kv_bytes = memory.host.kv_bytes + sum(gpu.kv_bytes for gpu in memory.gpus)
    bits = n_bits(described.quantization)
    return ModelTraffic(
        n_parameters=described.n_active_parameters,
        dense_bytes=max(0, described.n_weight_bytes - unread - of_experts),
        expert_bytes=of_experts,
        n_experts=described.n_experts,
        n_experts_used=described.n_experts_used,
        kv_bytes=kv_bytes * min(n_ctx, _TYPICAL_CONTEXT) // max(1, n_ctx),
        bandwidth=total / read_s if read_s else bandwidths.host,
        on_gpu=memory.is_whole_on_gpu,
        is_quantized=bits is not None and bits < _FLOAT_BITS,
    )
