"""What drafts of one source promise: tokens and seconds by their length."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Outlook:
    """Of drafts of 1, 2 ... tokens: how many are expected to be accepted, and the seconds beyond a plain step.

    `reading_s` more have to be spent once, before the drafter can draft at all; they serve this step and others, so a
    step bears a part of them, as in `costs_s`.
    """

    accepted: list[float]
    extra_s: list[float]
    costs_s: list[float]
    reading_s: float

    @classmethod
    def of(
        cls, acceptance: Sequence[float], seconds: Sequence[float], reading_s: float = 0.0, n_served: float = 1.0
    ) -> Self:
        """From the acceptance of each token if those before it are accepted, and the seconds that it adds to the step.

        What is read serves `n_served` tokens of text.
        """
        accepted, extra_s, costs_s = [], [], []
        reach, expected, total_s = 1.0, 0.0, 0.0
        for odds, token_s in zip(acceptance, seconds, strict=True):
            reach *= odds
            expected += reach
            total_s += token_s
            accepted.append(expected)
            extra_s.append(total_s)
            costs_s.append(total_s + reading_s * min(1.0, (1.0 + expected) / n_served))
        return cls(accepted, extra_s, costs_s, reading_s)

    def best_rate(self, plain_s: float) -> float:
        """Tokens per second at the best length, 0 included."""
        rates = ((1.0 + a) / (plain_s + s) for a, s in zip(self.accepted, self.costs_s, strict=True))
        return max(1.0 / plain_s, max(rates, default=0.0))

    def best(self, price: float, affordable_s: float = math.inf) -> tuple[float, int]:
        """The largest gain in tokens, and the length that brings it; (0.0, 0) when none does.

        Lengths that cost more than `affordable_s`, reading apart, are left out.
        """
        n_most = self.n_affordable(affordable_s)
        gains = (
            (a - price * s, n) for n, (a, s) in enumerate(zip(self.accepted[:n_most], self.costs_s, strict=False), 1)
        )
        return max((0.0, 0), max(gains, default=(0.0, 0)))

    def n_affordable(self, seconds: float) -> int:
        """The longest draft that costs at most so much, reading apart."""
        return bisect.bisect_right(self.extra_s, seconds)

    def most_lost_s(self, n_draft: int) -> float:
        """What a draft of `n_draft` tokens, or of the longest possible if that is less, loses if none is accepted."""
        return self.extra_s[:n_draft][-1] + self.reading_s
