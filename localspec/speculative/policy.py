"""Who drafts in the next step, and how many tokens at most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from localspec.speculative.drafter import DraftSource, WantsAnother


@dataclass(frozen=True, slots=True)
class Plan:
    """`source` drafts `n_draft` (>= 1) tokens, or fewer where `wants_another` says that it is enough."""

    source: DraftSource
    n_draft: int
    wants_another: WantsAnother | None = None


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What a step cost and brought.

    `source` None: a plain step. `n_accepted` == `n_draft` is censored: a longer draft might have been accepted
    further. `verify_s` is the target's forward pass and the judging after it. The pass had `n_rows` rows and served
    `batch_width` sequences, this one included. `n_other_rows` were steps of other sequences; where `n_rows` is more
    than these and the step's own, the pass also read prompts. `n_drafting` of the sequences had a draft of the draft
    model, this one included if it had one.
    """

    source: DraftSource | None
    n_draft: int
    n_accepted: int
    draft_s: float
    verify_s: float
    n_rows: int
    n_other_rows: int
    batch_width: int
    n_drafting: int = 0


class DraftPolicy(Protocol):
    """Decides for one request, step by step: `plan`, then `update`. A step that fails has no `update`."""

    def begin(self, source: DraftSource, n_prompt: int, n_unread: int = 0, n_most: int | None = None) -> bool:
        """A request begins: whether this drafter should read its prompt, since it will probably draft.

        Of `n_prompt` tokens it has not read `n_unread`; the reply will have at most `n_most`, None: nobody knows.
        """

    def has_read(self, n_tokens: int, seconds: float) -> None:
        """The draft model took so long for so much of a prompt."""

    def end(self) -> None:
        """The request has ended."""

    def plan(self, history: Sequence[int], limit: int) -> Plan | None:
        """What to draft after `history`, at most `limit` (>= 1) tokens; None is a plain step."""

    def update(self, outcome: StepOutcome) -> None:
        """Learn from a completed step, plain steps included."""


class FixedLength:
    """Every draft from the one source there is, as long as it may be; without a source, plain decoding."""

    def __init__(self, lengths: Mapping[DraftSource, int]) -> None:
        """`lengths`: the source and its length, or nothing.

        Raises:
            ValueError: there are several sources: something has to choose between them.
        """
        if len(lengths) > 1:
            raise ValueError(f"A fixed length is for one source of drafts; got {', '.join(lengths)}.")
        self._lengths = dict(lengths)

    def begin(self, source: DraftSource, n_prompt: int, n_unread: int = 0, n_most: int | None = None) -> bool:  # noqa: ARG002 - the protocol's signature
        """The source, if it drafts at all."""
        return self._lengths.get(source, 0) > 0

    def has_read(self, n_tokens: int, seconds: float) -> None:
        """Nothing to learn."""

    def end(self) -> None:
        """Nothing to learn."""

    def plan(self, history: Sequence[int], limit: int) -> Plan | None:  # noqa: ARG002 - the protocol's signature
        """The length, as far as there is room."""
        for source, length in self._lengths.items():
            if min(length, limit) > 0:
                return Plan(source, min(length, limit))
        return None

    def update(self, outcome: StepOutcome) -> None:
        """Nothing to learn."""
