"""Sums over all requests since the server's start."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from localspec.engine.events import FinishReason, Step
from localspec.engine.metrics import RequestMetrics
from localspec.engine.requests import MAX_NUM_SPECULATIVE_TOKENS, Mode
from localspec.errors import ContextFullError, EngineDiedError, EngineError, LocalspecError
from localspec.server.acceptance_watch import Change
from localspec.server.service import Outcome
from localspec.speculative.drafter import DraftSource


class StepKind(StrEnum):
    """Where the draft of a step came from."""

    MODEL = "draft_model"
    COPY = "copied"
    NONE = "none"

    @classmethod
    def of(cls, step: Step) -> StepKind:
        """The kind of a step."""
        if not step.n_draft:
            return cls.NONE
        return cls.COPY if step.source is DraftSource.LOOKUP else cls.MODEL


class FailureKind(StrEnum):
    """What a request that failed ran into."""

    ENGINE_DIED = "engine_died"
    ENGINE = "engine"
    CONTEXT_FULL = "context_full"
    OTHER = "other"  # the chat template refused the messages, a grammar is none, ...

    @classmethod
    def of(cls, error: LocalspecError) -> FailureKind:
        """The kind of an error."""
        kinds = ((EngineDiedError, cls.ENGINE_DIED), (EngineError, cls.ENGINE), (ContextFullError, cls.CONTEXT_FULL))
        return next((kind for error_type, kind in kinds if isinstance(error, error_type)), cls.OTHER)


@dataclass(slots=True)
class Totals:
    """The sums. Seconds are summed over requests: those that share a forward pass each count all of it."""

    outcomes: Counter[tuple[str, Outcome]] = field(default_factory=Counter)  # by endpoint
    finish_reasons: Counter[FinishReason] = field(default_factory=Counter)
    failures: Counter[FailureKind] = field(default_factory=Counter)
    n_prompt_tokens: int = 0  # that were read; those found in the cache are not among them
    n_cached_tokens: int = 0
    n_tokens: int = 0
    steps: Counter[StepKind] = field(default_factory=Counter)
    n_drafted: int = 0
    n_accepted: int = 0
    # [i]: drafts that had a token at position i, and those that kept it
    drafted_at: list[int] = field(default_factory=lambda: [0] * MAX_NUM_SPECULATIVE_TOKENS)
    accepted_at: list[int] = field(default_factory=lambda: [0] * MAX_NUM_SPECULATIVE_TOKENS)
    prefill_s: float = 0.0
    draft_s: float = 0.0
    verify_s: float = 0.0
    step_s: float = 0.0
    fallbacks: Counter[tuple[Mode, Mode]] = field(default_factory=Counter)  # the mode asked for, and the one that ran
    changes: Counter[Change] = field(default_factory=Counter)
    n_restarts: int = 0

    @property
    def n_drafts(self) -> int:
        """Steps with a draft."""
        return self.steps[StepKind.MODEL] + self.steps[StepKind.COPY]

    def add(self, step: Step) -> None:
        """A step of some request."""
        self.n_tokens += len(step.tokens)
        self.steps[StepKind.of(step)] += 1
        self.n_drafted += step.n_draft
        self.n_accepted += step.n_accepted
        for position in range(min(step.n_draft, len(self.drafted_at))):
            self.drafted_at[position] += 1
            self.accepted_at[position] += position < step.n_accepted

    def add_seconds(self, before: RequestMetrics | None, after: RequestMetrics) -> None:
        """What a request has taken since the metrics `before`; None: since it began."""
        self.prefill_s += after.prefill_s - (before.prefill_s if before else 0.0)
        self.draft_s += after.draft_s - (before.draft_s if before else 0.0)
        self.verify_s += after.verify_s - (before.verify_s if before else 0.0)
        self.step_s += after.step_s - (before.step_s if before else 0.0)
