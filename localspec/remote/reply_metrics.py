"""The numbers of a reply that somebody else's engine writes: what it reports, and what can be measured from here.

What nobody knows stays 0 or None, which a screen shows as a dash. Times include the network.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

from localspec.engine.metrics import RequestMetrics
from localspec.remote.chunks import Chunk, Reported

__all__ = ["MEASURED", "ReplyMeter"]

_RECENT_WINDOW_S: Final = 2.0
# The tokens of a step arrive together, and say nothing of speed.
_SHORTEST_WINDOW_S: Final = 0.25
_SHORTEST_REPLY_S: Final = 0.001

# The names that `snapshot` can fill in.
MEASURED: Final = (
    "n_prompt_tokens",
    "n_cached_tokens",
    "n_tokens",
    "n_steps",
    "n_drafted",
    "n_accepted",
    "draft_acceptance_rate",
    "mean_acceptance_length",
    "ttft_s",
    "tpot_s",
    "tokens_per_second",
    "elapsed_s",
)


class ReplyMeter:
    """Counts one reply. `now` is the clock, in seconds."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._asked_at = now()
        self._first_at: float | None = None
        self._last_at = 0.0
        self._n_first = 1  # tokens of the first chunk
        self._reported = Reported()
        self._n_begun = 0  # steps, when the newest draft was reported
        self._recent: deque[tuple[float, int]] = deque()  # in the last two seconds: when so many tokens were there
        self._n_before = 0  # tokens before those

    @property
    def reported(self) -> Reported:
        """All that the server has said so far."""
        return self._reported

    def take(self, chunk: Chunk) -> None:
        """A chunk has arrived."""
        before, self._reported = self._reported, self._reported.updated(chunk.reported)
        if not (chunk.text or chunk.reasoning):
            return
        if self._reported.n_drafted != before.n_drafted and before.n_tokens is not None:
            # Servers report a draft with the first of its tokens; those before it are of steps that are complete.
            self._n_begun = before.n_tokens - (before.n_accepted or 0) + 1
        self._last_at = self._now()
        n_tokens = chunk.reported.n_tokens
        if self._first_at is None:
            self._first_at = self._last_at
            self._n_first = self._n_before = n_tokens or 1
        if n_tokens:
            self._recent.append((self._last_at, n_tokens))
            while self._recent[0][0] < self._last_at - _RECENT_WINDOW_S:
                self._n_before = self._recent.popleft()[1]

    def snapshot(self) -> RequestMetrics:
        """The numbers so far. Formulas: docs/metrics.md."""
        said = self._reported
        n_tokens, n_accepted = said.n_tokens or 0, said.n_accepted or 0
        # A step commits what was accepted and one more token: so many steps there were.
        n_steps = max(self._n_begun, n_tokens - n_accepted) if said.n_drafted is not None else 0
        tpot = 1 / said.tokens_per_second if said.tokens_per_second else self._measured_tpot_s(n_tokens)
        return RequestMetrics(
            n_prompt_tokens=said.n_prompt_tokens or 0,
            n_cached_tokens=said.n_cached_tokens or 0,
            n_tokens=n_tokens,
            n_steps=n_steps,
            n_plain_steps=max(0, n_steps - said.n_draft_steps) if said.n_draft_steps is not None else 0,
            n_drafted=said.n_drafted or 0,
            n_accepted=n_accepted,
            n_lookup_steps=0,
            n_lookup_drafted=0,
            n_lookup_accepted=0,
            acceptance_histogram=(),
            rejection_histogram=(),
            ttft_s=None if self._first_at is None else self._first_at - self._asked_at,
            tpot_s=tpot,
            tokens_per_second=1 / tpot if tpot else None,
            recent_tokens_per_second=self._recent_rate(),
            itl_p50_s=None,
            itl_p95_s=None,
            prefill_s=0.0,
            draft_s=0.0,
            draft_pass_s=0.0,
            verify_s=0.0,
            judge_s=0.0,
            overhead_s=0.0,
            step_s=0.0,
            elapsed_s=self._now() - self._asked_at,
        )

    def _measured_tpot_s(self, n_tokens: int) -> float | None:
        n_after_first = n_tokens - self._n_first
        if self._first_at is None or n_after_first <= 0:
            return None
        span_s = self._last_at - self._first_at
        return span_s / n_after_first if span_s > _SHORTEST_REPLY_S else None

    def _recent_rate(self) -> float | None:
        if not self._recent or self._first_at is None:
            return None
        window_s = min(_RECENT_WINDOW_S, self._last_at - self._first_at)
        n_tokens = max(0, self._recent[-1][1] - self._n_before)
        return n_tokens / window_s if window_s >= _SHORTEST_WINDOW_S else None
