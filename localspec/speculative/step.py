"""One step of a sequence: propose -> (decode) -> verify -> commit.

The decode in the middle belongs to the caller, so that several sequences can share one forward pass:

    draft = step.propose(history, limit)
    rows = ...                              # target.decode([history[-1], *draft.tokens]), then step.drafter.observe
    verification = step.verify(draft, rows, rng)
    history.extend(verification.tokens)
    outcome = step.record(verify_s, batch_width)

When the decode fails, `step.abandon()` takes the place of the lines after it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from localspec.speculative.distribution import RandomSource
from localspec.speculative.draft_length import DraftLength, StepOutcome
from localspec.speculative.drafter import EMPTY_DRAFT, Draft, Drafter
from localspec.speculative.rejection import TargetRows, Verification, verify


class SpeculativeStep:
    """The steps of one sequence, one after the other. Whatever fails, the drafter is told how the step ended.

    `ends_generation` says whether a token ends the reply. `drafter` stays the caller's to start, prefill and close.
    """

    def __init__(self, drafter: Drafter, draft_length: DraftLength, ends_generation: Callable[[int], bool]) -> None:
        self.drafter = drafter
        self._draft_length = draft_length
        self._ends_generation = ends_generation
        self._draft_s = 0.0
        self._n_draft = 0
        self._n_accepted = 0

    def propose(self, history: Sequence[int], limit: int) -> Draft:
        """The draft that follows `history`, at most `limit` tokens (what context and max_tokens leave room for).

        Empty for a plain step. Nothing follows a proposal that ends generation.
        """
        n_draft = min(self._draft_length.next(), limit)
        if n_draft <= 0:
            self._draft_s = 0.0
            return EMPTY_DRAFT
        started = time.perf_counter()
        try:
            draft = self.drafter.propose(history, n_draft).cut(n_draft)
        except BaseException:
            self.abandon()
            raise
        self._draft_s = time.perf_counter() - started
        for i, token in enumerate(draft.tokens):
            if self._ends_generation(token):
                return draft.cut(i + 1)
        return draft

    def verify(self, draft: Draft, rows: TargetRows, rng: RandomSource) -> Verification:
        """Verify `draft` and commit the outcome to the drafter; after an exception, commit that there is none."""
        tokens: tuple[int, ...] = ()
        n_accepted = 0
        try:
            verification = verify(draft, rows, rng, ends_generation=self._ends_generation)
            tokens, n_accepted = verification.tokens, verification.n_accepted
        finally:
            self.drafter.commit(tokens, n_accepted)
        self._n_draft, self._n_accepted = len(draft), n_accepted
        return verification

    def abandon(self) -> None:
        """End a step that failed before verification, for example in its decode: nothing was committed."""
        self.drafter.commit((), 0)

    def record(self, verify_s: float, batch_width: int) -> StepOutcome:
        """Tell the draft length what the step that was just verified cost; see `StepOutcome` for the two numbers."""
        outcome = StepOutcome(self._n_draft, self._n_accepted, self._draft_s, verify_s, batch_width)
        self._draft_length.update(outcome)
        return outcome
