"""The numbers of one request. Formulas: docs/metrics.md.

Times are in seconds on the engine's own clock. "Emission" is one step's release of tokens: a step that commits five
tokens is one emission, so ITL (the gap between emissions) and TPOT (time per token) differ under speculation.
"""

from __future__ import annotations

from dataclasses import dataclass



@dataclass(frozen=True, slots=True)
class RequestMetrics:
    """A snapshot. Rates are None until there is something to divide by."""

    n_prompt_tokens: int
    n_cached_tokens: int
    n_tokens: int
    n_steps: int
    n_drafted: int
    n_accepted: int
    acceptance_histogram: tuple[int, ...]  # [j]: steps with a draft that accepted exactly j; plain steps apart
    n_plain_steps: int
    ttft_s: float | None
    tpot_s: float | None
    tokens_per_second: float | None
    recent_tokens_per_second: float | None  # over the last two seconds: what a screen shows as "now"
    itl_p50_s: float | None
    itl_p95_s: float | None
    prefill_s: float
    draft_s: float
    verify_s: float
    overhead_s: float
    step_s: float
    elapsed_s: float

    @property
    def draft_acceptance_rate(self) -> float | None:
        """Accepted / drafted."""
        return self.n_accepted / self.n_drafted if self.n_drafted else None

    @property
    def mean_acceptance_length(self) -> float | None:
        """1 + accepted / steps: tokens per step, the extra token included."""
        return 1 + self.n_accepted / self.n_steps if self.n_steps else None

    @property
    def n_context_tokens(self) -> int:
        """Tokens of the context in use: prompt and reply."""
        return self.n_prompt_tokens + self.n_tokens

    @property
    def overhead_share(self) -> float | None:
        """Share of the step time spent outside llama.cpp."""
        return self.overhead_s / self.step_s if self.step_s else None
