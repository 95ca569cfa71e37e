"""One step of a sequence: propose -> (decode) -> verify -> commit.

Forward passes belong to the caller, so that several sequences can share them:

    draft = yield from step.propose(history, limit)  # the draft model's passes: see `Drafting`
    rows = ...                              # target.decode([history[-1], *draft.tokens]), then step.observe
    verification = step.verify(draft, rows, rng)
    history.extend(verification.tokens)
    outcome = step.record(pass_s, ...)

When the decode fails, `step.abandon()` takes the place of the lines after it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from localspec.speculative.block_verification import verify_block
from localspec.speculative.distribution import RandomSource
from localspec.speculative.drafter import EMPTY_DRAFT, Draft, Drafter, Drafting, DraftSource
from localspec.speculative.policy import DraftPolicy, StepOutcome
from localspec.speculative.rejection import Origin, TargetRows, Verification, verify


class SpeculativeStep:
    """The steps of one sequence, one after the other. Whatever fails, every drafter is told how the step ended.

    `ends_generation` says whether a token ends the reply. `rows_are_memoryless`: the target's rows are functions of
    their place alone (no penalty, grammar or coin), so that sampled drafts can be verified as a whole.
    """

    def __init__(
        self,
        drafters: Mapping[DraftSource, Drafter],
        policy: DraftPolicy,
        ends_generation: Callable[[int], bool],
        *,
        rows_are_memoryless: bool = False,
    ) -> None:
        self._drafters = dict(drafters)
        self._policy = policy
        self._ends_generation = ends_generation
        self._rows_are_memoryless = rows_are_memoryless
        self._readers: list[Drafter] = []
        self._source: DraftSource | None = None
        self._draft_s = self._judge_s = 0.0
        self._n_draft = self._n_accepted = 0

    # --- the request -------------------------------------------------------------------------------------------------

    def start(self, history: Sequence[int], n_most: int | None = None) -> None:
        """Begin a request whose prompt is `history`; the reply will have at most `n_most` tokens."""
        for drafter in self._drafters.values():
            drafter.start(history)
        self._readers = [
            drafter
            for source, drafter in self._drafters.items()
            if self._policy.begin(source, len(history), drafter.n_unread(history), n_most)
        ]

    def prefill(self, history: Sequence[int], max_tokens: int) -> int:
        """Let the drafters that are likely to draft read on, each at most `max_tokens`; tokens still pending."""
        n_pending = 0
        for drafter in self._readers:
            n_unread, started = drafter.n_unread(history), time.perf_counter()
            n_pending += drafter.prefill(history, max_tokens)
            if n_read := n_unread - drafter.n_unread(history):
                self._policy.has_read(n_read, time.perf_counter() - started)
        return n_pending

    def close(self) -> None:
        """Free what the drafters hold. May be called twice."""
        self._policy.end()
        for drafter in self._drafters.values():
            drafter.close()

    # --- a step ------------------------------------------------------------------------------------------------------

    def propose(self, history: Sequence[int], limit: int) -> Drafting:
        """The draft that follows `history`, at most `limit` tokens (what context and max_tokens leave room for).

        Empty for a plain step. Nothing follows a proposal that ends generation.
        """
        self._source, self._draft_s = None, 0.0
        started = time.perf_counter()
        plan = self._policy.plan(history, limit) if limit > 0 else None
        if plan is None:
            return EMPTY_DRAFT
        try:
            draft = yield from self._drafters[plan.source].propose(history, plan.n_draft, plan.wants_another)
        except BaseException:
            self.abandon()
            raise
        self._draft_s = time.perf_counter() - started
        draft = draft.cut(plan.n_draft)
        if draft:
            self._source = plan.source
        for i, token in enumerate(draft.tokens):
            if self._ends_generation(token):
                return draft.cut(i + 1)
        return draft

    def observe(self, tokens: Sequence[int], position: int, first_row: int) -> None:
        """The target has decoded `tokens`; see `Drafter.observe`."""
        for drafter in self._drafters.values():
            drafter.observe(tokens, position, first_row)

    def verify(self, draft: Draft, rows: TargetRows, rng: RandomSource) -> Verification:
        """Verify `draft` and commit the outcome to the drafters; after an exception, commit that there is none."""
        started = time.perf_counter()
        tokens: tuple[int, ...] = ()
        n_accepted = 0
        jointly = self._rows_are_memoryless and draft.distributions is not None and len(draft) > 1
        try:
            judge = verify_block if jointly else verify
            verification = judge(draft, rows, rng, ends_generation=self._ends_generation)
            tokens, n_accepted = verification.tokens, verification.n_accepted
        finally:
            self._commit(tokens, n_accepted)
        self._n_draft, self._n_accepted = len(draft), n_accepted
        self._judge_s = time.perf_counter() - started
        if self._source is DraftSource.LOOKUP:
            origins = tuple(Origin.COPIED if each is Origin.DRAFT else each for each in verification.origins)
            return replace(verification, origins=origins)
        return verification

    def abandon(self) -> None:
        """End a step that failed before verification, for example in its decode: nothing was committed."""
        self._commit((), 0)

    def record(
        self, pass_s: float, *, n_rows: int, n_other_rows: int = 0, batch_width: int = 1, n_drafting: int = 0
    ) -> StepOutcome:
        """Tell the policy what the step that was just verified cost: `pass_s` in the target; see `StepOutcome`."""
        outcome = StepOutcome(
            source=self._source,
            n_draft=self._n_draft,
            n_accepted=self._n_accepted,
            draft_s=self._draft_s,
            verify_s=pass_s + self._judge_s,
            n_rows=n_rows,
            n_other_rows=n_other_rows,
            batch_width=batch_width,
            n_drafting=n_drafting,
        )
        self._policy.update(outcome)
        return outcome

    def _commit(self, tokens: tuple[int, ...], n_accepted: int) -> None:
        for source, drafter in self._drafters.items():
            drafter.commit(tokens, n_accepted if source is self._source else 0)
