"""The numbers of one request. Formulas: docs/metrics.md.

Times are in seconds on the engine's own clock. An "emission" is one step's release of tokens: a step that commits five
tokens is one emission, so ITL (the gap between emissions) and TPOT (the time per token) differ under speculation.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from localspec.speculative.drafter import DraftSource

_RECENT_WINDOW_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class RequestMetrics:
    """A snapshot. Rates are None until there is something to divide by."""

    n_prompt_tokens: int
    n_cached_tokens: int
    n_tokens: int
    n_steps: int
    n_plain_steps: int  # steps without a draft
    n_drafted: int
    n_accepted: int
    n_lookup_steps: int  # of the steps with a draft: those that copied it from the text so far
    n_lookup_drafted: int
    n_lookup_accepted: int
    acceptance_histogram: tuple[int, ...]  # [j]: steps with a draft that accepted exactly j
    rejection_histogram: tuple[int, ...]  # [j]: of these, those that rejected the token after the j
    ttft_s: float | None
    tpot_s: float | None
    tokens_per_second: float | None
    recent_tokens_per_second: float | None  # over the last two seconds: what a screen shows as "now"
    itl_p50_s: float | None
    itl_p95_s: float | None
    prefill_s: float
    draft_s: float
    draft_pass_s: float
    verify_s: float
    judge_s: float
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
    def acceptance_by_position(self) -> tuple[float | None, ...]:
        """[i]: of the drafts whose first i tokens were accepted and that had another, the share that kept that one.

        None where no draft got so far.
        """
        reached = list(itertools.accumulate(reversed(self.acceptance_histogram)))[::-1]  # [j]: accepted at least j
        kept = [*reached[1:], 0][: len(reached)]
        tests = [k + r for k, r in zip(kept, self.rejection_histogram, strict=True)]
        return tuple(k / n if n else None for k, n in zip(kept, tests, strict=True))

    @property
    def n_raw_tokens(self) -> int:
        """Rows that the target evaluated in its steps: one per step and one per drafted token."""
        return self.n_steps + self.n_drafted

    @property
    def discarded_share(self) -> float | None:
        """Share of these rows whose token was thrown away."""
        return (self.n_drafted - self.n_accepted) / self.n_raw_tokens if self.n_raw_tokens else None

    @property
    def n_context_tokens(self) -> int:
        """Tokens of the context in use: prompt and reply."""
        return self.n_prompt_tokens + self.n_tokens

    @property
    def overhead_share(self) -> float | None:
        """Share of the step time spent outside llama.cpp."""
        return self.overhead_s / self.step_s if self.step_s else None

    def as_dict(self) -> dict[str, Any]:
        """Everything, the derived numbers included, ready for JSON."""
        derived = (
            "draft_acceptance_rate",
            "mean_acceptance_length",
            "acceptance_by_position",
            "n_raw_tokens",
            "discarded_share",
            "n_context_tokens",
            "overhead_share",
        )
        return dataclasses.asdict(self) | {name: getattr(self, name) for name in derived}


class MetricsRecorder:
    """Collects one request's numbers. `now` is the clock, in seconds."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._accepted_at = now()
        self._first_at: float | None = None
        self._last_at: float | None = None
        self._n_prompt = self._n_cached = self._n_tokens = self._n_first = 0
        self._n_steps = self._n_plain_steps = self._n_drafted = self._n_accepted = 0
        self._n_lookup_steps = self._n_lookup_drafted = self._n_lookup_accepted = 0
        self._histogram: list[int] = []
        self._rejections: list[int] = []
        self._gaps: list[float] = []  # sorted: a percentile is an index
        self._recent: deque[tuple[float, int]] = deque()
        self._n_recent = 0
        self._prefill_s = self._draft_s = self._draft_pass_s = self._verify_s = self._judge_s = 0.0
        self._overhead_s = self._step_s = 0.0

    def prompt(self, n_tokens: int, n_cached: int) -> None:
        """The prompt was tokenized and `n_cached` of its tokens were found in the cache."""
        self._n_prompt, self._n_cached = n_tokens, n_cached

    def prefilled(self, seconds: float) -> None:
        """A chunk of the prompt was decoded."""
        self._prefill_s += seconds

    def step(
        self,
        *,
        n_tokens: int,
        n_draft: int,
        n_accepted: int,
        source: DraftSource | None,
        draft_s: float,
        draft_pass_s: float,
        verify_s: float,
        judge_s: float,
        step_s: float,
    ) -> None:
        """A step committed `n_tokens`.

        Of its `step_s`, `draft_s` went into drafting (`draft_pass_s` of it into the draft model's forward passes),
        `verify_s` into the target's forward pass, `judge_s` into sampling from its rows and verification.
        """
        self._n_steps += 1
        self._draft_s += draft_s
        self._draft_pass_s += draft_pass_s
        self._verify_s += verify_s
        self._judge_s += judge_s
        self._step_s += step_s
        self._overhead_s += max(0.0, step_s - verify_s - draft_pass_s)
        if n_draft:
            self._n_drafted += n_draft
            self._n_accepted += n_accepted
            missing = n_accepted + 1 - len(self._histogram)
            self._histogram.extend([0] * missing)
            self._rejections.extend([0] * missing)
            self._histogram[n_accepted] += 1
            self._rejections[n_accepted] += n_accepted < n_draft
            if source is DraftSource.LOOKUP:
                self._n_lookup_steps += 1
                self._n_lookup_drafted += n_draft
                self._n_lookup_accepted += n_accepted
        else:
            self._n_plain_steps += 1
        self._emitted(n_tokens)

    def _emitted(self, n_tokens: int) -> None:
        now = self._now()
        self._n_tokens += n_tokens
        if self._last_at is None:
            self._first_at, self._n_first = now, n_tokens
        else:
            bisect.insort(self._gaps, now - self._last_at)
            self._recent.append((now, n_tokens))
            self._n_recent += n_tokens
        self._last_at = now
        while self._recent and self._recent[0][0] < now - _RECENT_WINDOW_S:
            self._n_recent -= self._recent.popleft()[1]

    def snapshot(self) -> RequestMetrics:
        """The numbers so far; costs the same at every length of the reply."""
        now = self._now()
        tpot = None
        # The tokens of the first emission arrive together: time per token is over those that came after.
        n_after_first = self._n_tokens - self._n_first
        if self._first_at is not None and self._last_at is not None and n_after_first > 0:
            tpot = (self._last_at - self._first_at) / n_after_first
        return RequestMetrics(
            n_prompt_tokens=self._n_prompt,
            n_cached_tokens=self._n_cached,
            n_tokens=self._n_tokens,
            n_steps=self._n_steps,
            n_plain_steps=self._n_plain_steps,
            n_drafted=self._n_drafted,
            n_accepted=self._n_accepted,
            n_lookup_steps=self._n_lookup_steps,
            n_lookup_drafted=self._n_lookup_drafted,
            n_lookup_accepted=self._n_lookup_accepted,
            acceptance_histogram=tuple(self._histogram),
            rejection_histogram=tuple(self._rejections),
            ttft_s=None if self._first_at is None else self._first_at - self._accepted_at,
            tpot_s=tpot,
            tokens_per_second=1 / tpot if tpot else None,
            recent_tokens_per_second=self._recent_rate(),
            itl_p50_s=self._percentile(0.50),
            itl_p95_s=self._percentile(0.95),
            prefill_s=self._prefill_s,
            draft_s=self._draft_s,
            draft_pass_s=self._draft_pass_s,
            verify_s=self._verify_s,
            judge_s=self._judge_s,
            overhead_s=self._overhead_s,
            step_s=self._step_s,
            elapsed_s=now - self._accepted_at,
        )

    def _recent_rate(self) -> float | None:
        if self._last_at is None or self._first_at is None:
            return None
        span = min(_RECENT_WINDOW_S, self._last_at - self._first_at)
        return self._n_recent / span if span > 0 else None

    def _percentile(self, q: float) -> float | None:
        """The gap at rank floor(q * n), from 0."""
        if not self._gaps:
            return None
        return self._gaps[min(len(self._gaps) - 1, int(q * len(self._gaps)))]
