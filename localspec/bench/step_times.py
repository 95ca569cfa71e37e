"""Where the time of a reply's steps went. The first step is left out: it may carry the prompt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Self

from localspec.engine.metrics import RequestMetrics


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Steps and tokens after the first emission; the five parts of these steps, and the whole time, in seconds.

    `elapsed_s` runs from the first emission to the last; the steps fill it but for what lies between them.
    """

    n_steps: int = 0
    n_tokens: int = 0
    n_raw_tokens: int = 0
    draft_pass_s: float = 0.0
    draft_sampling_s: float = 0.0
    target_pass_s: float = 0.0
    judge_s: float = 0.0
    rest_s: float = 0.0
    elapsed_s: float = 0.0

    @classmethod
    def between(cls, first: RequestMetrics, last: RequestMetrics) -> Self:
        """Of one reply: `first` are its metrics after the first step, `last` those at its end."""
        draft_s = last.draft_s - first.draft_s
        draft_pass_s = last.draft_pass_s - first.draft_pass_s
        target_pass_s = last.verify_s - first.verify_s
        judge_s = last.judge_s - first.judge_s
        n_tokens = last.n_tokens - first.n_tokens
        return cls(
            n_steps=last.n_steps - first.n_steps,
            n_tokens=n_tokens,
            n_raw_tokens=last.n_raw_tokens - first.n_raw_tokens,
            draft_pass_s=draft_pass_s,
            draft_sampling_s=draft_s - draft_pass_s,
            target_pass_s=target_pass_s,
            judge_s=judge_s,
            rest_s=last.step_s - first.step_s - draft_s - target_pass_s - judge_s,
            elapsed_s=(last.tpot_s or 0.0) * n_tokens,
        )

    @classmethod
    def total(cls, parts: Iterable[StepTimes]) -> Self:
        """The sum over replies."""
        parts = tuple(parts)
        return cls(**{field.name: sum(getattr(part, field.name) for part in parts) for field in fields(cls)})

    @property
    def step_s(self) -> float:
        """The steps as a whole."""
        return sum(seconds for _, seconds in self.parts())

    def parts(self) -> Iterator[tuple[str, float]]:
        """The five parts of a step, by name."""
        yield "draft passes", self.draft_pass_s
        yield "draft sampling", self.draft_sampling_s
        yield "target pass", self.target_pass_s
        yield "judging", self.judge_s
        yield "the rest", self.rest_s

    @property
    def draft_share(self) -> float | None:
        """Share of the step time that drafting takes, sampling included."""
        return (self.draft_pass_s + self.draft_sampling_s) / self.step_s if self.step_s else None

    @property
    def verify_share(self) -> float | None:
        """Share of the step time that the target's forward passes take."""
        return self.target_pass_s / self.step_s if self.step_s else None

    @property
    def committed_per_second(self) -> float | None:
        """Tokens of the reply by time."""
        return self.n_tokens / self.elapsed_s if self.elapsed_s else None

    @property
    def raw_per_second(self) -> float | None:
        """Rows that the target evaluated, thrown away or not, by time."""
        return self.n_raw_tokens / self.elapsed_s if self.elapsed_s else None
