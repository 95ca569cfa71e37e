"""How many tokens to draft next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What a step cost and brought.

    `n_accepted` == `n_draft` is censored: a longer draft might have been accepted further. `verify_s` is the time of
    the target's forward pass, which this step shared with `batch_width` sequences (itself included).
    """

    n_draft: int
    n_accepted: int
    draft_s: float
    verify_s: float
    batch_width: int


class DraftLength(Protocol):
    """A policy, one object per sequence."""

    def next(self) -> int:
        """How many tokens to draft in the next step; 0 means a plain step."""

    def update(self, outcome: StepOutcome) -> None:
        """Learn from a completed step, plain steps included."""


class FixedDraftLength:
    """Always the ceiling, `num_speculative_tokens`."""

    def __init__(self, num_speculative_tokens: int) -> None:
        self._num_speculative_tokens = num_speculative_tokens

    def next(self) -> int:
        """The ceiling."""
        return self._num_speculative_tokens

    def update(self, outcome: StepOutcome) -> None:
        """Nothing to learn."""
