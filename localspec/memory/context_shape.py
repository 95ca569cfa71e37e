"""What a context is asked for: the numbers that decide its cache and its compute buffers."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ContextShape"]


@dataclass(frozen=True, slots=True)
class ContextShape:
    """How a context is made; the defaults are those of `localspec.llama.context.Context` for a target.

    `n_outputs`: rows of logits per pass, at most. `n_sequences` share one cache. `n_snapshots`: recurrent states kept
    for taking tokens back. `whole_window_cache`: layers with a sliding window keep the whole context too (llama.cpp's
    `swa_full`).
    """

    n_ctx: int
    kv_type: str = "f16"
    n_outputs: int = 33
    n_batch: int = 512
    n_sequences: int = 1
    n_snapshots: int = 8
    whole_window_cache: bool = False

    @property
    def n_tokens(self) -> int:
        """Tokens of a full pass."""
        return min(self.n_ctx, self.n_batch)
