"""Who drafts in the next step, and how many tokens at most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from localspec.speculative.drafter import DraftSource, WantsAnother, always


@dataclass(frozen=True, slots=True)
class Plan:
    """`source` drafts at most `n_draft` (>= 1) tokens; fewer where `wants_another` says that it is enough."""

    source: DraftSource
    n_draft: int
    wants_another: WantsAnother = always


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What a step cost and brought.

    `source` None: a plain step. `n_accepted` == `n_draft` is censored: a longer draft might have been accepted
    further. `verify_s` is the target's forward pass and what followed it up to the committed tokens. The pass had
    `n_rows` rows, `n_other_rows` of them for other sequences, and served `batch_width` sequences, this one included.
    """

    source: DraftSource | None
    n_draft: int
    n_accepted: int
    draft_s: float
    verify_s: float
    n_rows: int
    n_other_rows: int
    batch_width: int


class DraftPolicy(Protocol):
    """Decides for one sequence, step by step: `plan`, then `update`."""

    def reads(self, source: DraftSource) -> bool:
        """Whether the drafter should read the prompt: it probably gets to draft. Asked once, when a request begins."""

    def plan(self, history: Sequence[int], limit: int) -> Plan | None:
        """What to draft after `history`, at most `limit` (>= 1) tokens; None is a plain step."""

    def update(self, outcome: StepOutcome) -> None:
        """Learn from a completed step, plain steps included."""


class FixedLength:
    """Every draft from one source, as long as it may be. A length of 0 is plain decoding."""

    def __init__(self, source: DraftSource, n_draft: int) -> None:
        self._source = source
        self._n_draft = n_draft

    def reads(self, source: DraftSource) -> bool:
        """The one source, if it is used at all."""
        return source is self._source and self._n_draft > 0

    def plan(self, history: Sequence[int], limit: int) -> Plan | None:  # noqa: ARG002 - the protocol's signature
        """The length, as far as there is room."""
        n_draft = min(self._n_draft, limit)
        return Plan(self._source, n_draft) if n_draft > 0 else None

    def update(self, outcome: StepOutcome) -> None:
        """Nothing to learn."""
