"""How fast a pair may be, from sizes and memory bandwidth alone: a forecast to rank by until something is measured.

At batch size 1 a pass waits for memory: it lasts as long as its weights and its KV cache take to be read. Of a model
with experts, a token reads the experts that it is routed to; several tokens in one pass are routed to several, and
together they read up to all of them. A draft of n tokens of which each is accepted with probability a brings
(1 - a^(n+1)) / (1 - a) tokens per step (Leviathan et al., "Fast Inference from Transformers via Speculative Decoding",
2023, equation 1) for one pass over n + 1 tokens and n passes of the draft model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

__all__ = ["ModelTraffic", "Prediction", "assumed_acceptance", "predict"]

MAX_DRAFT_LENGTH: Final = 16

# What one pass costs beside its reading: starting kernels, sampling, one round trip.
_PASS_OVERHEAD_S: Final = 0.0005
# How much longer a pass gets with each further token, as a share of the pass over one. A GPU has arithmetic to spare at
# such widths; on a CPU, floating-point weights on two AVX-512 cores took 43 ms for nine tokens and 18 ms for one, and
# quantized ones, which are unpacked first, are bound by arithmetic from the second token on.
_WIDTH_COST_GPU: Final = 0.02
_WIDTH_COST_CPU_FLOAT: Final = 0.17
_WIDTH_COST_CPU_QUANTIZED: Final = 0.6


@dataclass(frozen=True, slots=True)
class ModelTraffic:
    """What a pass over one token reads, in bytes, and from where.

    `expert_bytes` are all experts' weights, of which a token reads `n_experts_used` of `n_experts`; `dense_bytes` what
    every pass reads. `bandwidth` in bytes per second, of the device that holds most of it.
    """

    n_parameters: int
    dense_bytes: int
    expert_bytes: int
    n_experts: int
    n_experts_used: int
    kv_bytes: int
    bandwidth: float
    on_gpu: bool
    is_quantized: bool

    def pass_s(self, n_tokens: int) -> float:
        """Seconds of one pass over `n_tokens` new tokens."""
        read_s = (self.dense_bytes + self.kv_bytes + self.expert_bytes * self._share_of_experts(n_tokens)) / (
            self.bandwidth
        )
        if self.on_gpu:
            width_cost = _WIDTH_COST_GPU
        else:
            width_cost = _WIDTH_COST_CPU_QUANTIZED if self.is_quantized else _WIDTH_COST_CPU_FLOAT
        return _PASS_OVERHEAD_S + read_s * (1 + width_cost * (n_tokens - 1))

    def _share_of_experts(self, n_tokens: int) -> float:
        """The share of experts that at least one of the tokens is routed to, if they are routed independently."""
        if not self.n_experts:
            return 0.0
        return 1 - (1 - min(1.0, self.n_experts_used / self.n_experts)) ** n_tokens


@dataclass(frozen=True, slots=True)
class Prediction:
    """`speedup` is against `plain_tokens_per_s`, with drafts of `n_draft` tokens of which `acceptance` are accepted.

    `n_draft` 0: drafting is not expected to pay, and the speedup is 1. `bandwidth`: of the target, in bytes per second.
    """

    plain_tokens_per_s: float
    speedup: float
    n_draft: int
    acceptance: float
    bandwidth: float


def assumed_acceptance(target_parameters: int, draft_parameters: int) -> float:
    """The acceptance rate to expect of an unmeasured draft of the target's own family.

    A line through two public reports on pairs of this kind, in the logarithm of the ratio of sizes: 72 % for Llama 3.1
    8B with 3.2 1B (llama.cpp discussion 5877), 61 % for Mistral Small 24B with its 0.5B draft (the draft's model card).
    Text and training move it by more than size does, so it only ranks; bounded to 0.3 and 0.9.
    """
    if target_parameters <= 0 or draft_parameters <= 0:
        return 0.3
    ratio = draft_parameters / target_parameters
    return min(0.9, max(0.3, 0.72 + 0.044 * math.log2(8 * ratio)))


def predict(target: ModelTraffic, draft: ModelTraffic | None, acceptance: float | None = None) -> Prediction:
    """The speed without a draft, and with the best fixed length up to `MAX_DRAFT_LENGTH`.

    `acceptance` None: `assumed_acceptance`.
    """
    plain_s = target.pass_s(1)
    if draft is None:
        return Prediction(1 / plain_s, 1.0, 0, 0.0, target.bandwidth)
    if acceptance is None:
        acceptance = assumed_acceptance(target.n_parameters, draft.n_parameters)
    best = Prediction(1 / plain_s, 1.0, 0, acceptance, target.bandwidth)
    for n_draft in range(1, MAX_DRAFT_LENGTH + 1):
        step_s = target.pass_s(n_draft + 1) + n_draft * draft.pass_s(1)
        speedup = _tokens_per_step(acceptance, n_draft) * plain_s / step_s
        if speedup > best.speedup:
            best = Prediction(1 / plain_s, speedup, n_draft, acceptance, target.bandwidth)
    return best


def _tokens_per_step(acceptance: float, n_draft: int) -> float:
    if acceptance >= 1:
        return n_draft + 1
    return float((1 - acceptance ** (n_draft + 1)) / (1 - acceptance))
