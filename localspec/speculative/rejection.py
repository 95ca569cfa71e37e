"""Verification of a draft by rejection sampling: the output law is the target's own, whatever the drafter proposes.

A draft token x that was sampled from `draft` is kept with probability min(1, target(x) / draft(x)); a rejected one is
replaced by a sample of the residual, max(0, target - draft) normalised. Together they give the target's law:

    P(x) = min(draft(x), target(x)) + P(rejected) * residual(x)
         = min(draft(x), target(x)) + max(0, target(x) - draft(x)) = target(x)

since P(rejected) = 1 - sum(min(draft, target)) = sum(max(0, target - draft)), the residual's normaliser.
Nothing here depends on how good the draft is: a bad one costs speed, never the law. Greedy decoding is the case in
which every distribution is one-hot. Source: Leviathan, Kalman, Matias, "Fast Inference from Transformers via
Speculative Decoding" (2023), theorem in appendix A.1; the same rule in Chen et al., "Accelerating Large Language Model
Decoding with Speculative Sampling" (2023).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from localspec.speculative.distribution import RandomSource, TokenDistribution
from localspec.speculative.drafter import Draft


class Origin(StrEnum):
    """Where a committed token came from."""

    DRAFT = "draft"  # proposed and accepted
    COPIED = "copied"  # the same, by prompt lookup
    RESIDUAL = "residual"  # replaces the proposal that was rejected
    BONUS = "bonus"  # follows a draft that was accepted in full
    TARGET = "target"  # the token of a step without a draft


class TargetRows(Protocol):
    """The target's distributions after one decode of the last token and the draft."""

    def distribution(self, row: int) -> TokenDistribution:
        """The target's law of the next token after draft[:row], transforms applied; rows are asked in order, once."""

    def accept(self, token: int) -> None:
        """Advance penalties and grammar by a committed token; called for each of them, in order."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The tokens that a step commits: `n_accepted` of the draft, then one more unless the last one ends generation."""

    tokens: tuple[int, ...]
    origins: tuple[Origin, ...]
    n_accepted: int


def verify(
    draft: Draft, rows: TargetRows, rng: RandomSource, *, ends_generation: Callable[[int], bool]
) -> Verification:
    """Commit a prefix of `draft` and one more token, distributed as if sampled from the target one by one.

    An accepted token that ends generation ends the step: nothing after it is evaluated or committed. Rows behind a
    rejection are not evaluated either. Random numbers: at most one per acceptance test and one for the last token;
    none where the outcome is certain (a ratio of at least 1 or of 0, a one-hot distribution).

    Raises:
        ValueError: a proposal has no probability in the distribution that it is said to be sampled from.
    """
    origins: list[Origin] = []
    for row, proposal in enumerate(draft.tokens):
        target = rows.distribution(row)
        source = None if draft.distributions is None else draft.distributions[row]
        if not _is_accepted(target.probability(proposal), draft_probability(proposal, row, source), rng):
            residual = target.without(proposal) if source is None else target.residual(source)
            # Empty: rejected by rounding only, where the two laws are equal.
            token = (target if residual is None else residual).sample(rng)
            rows.accept(token)
            return Verification((*draft.tokens[:row], token), (*origins, Origin.RESIDUAL), n_accepted=row)
        rows.accept(proposal)
        origins.append(Origin.DRAFT)
        if ends_generation(proposal):
            return Verification(draft.tokens[: row + 1], tuple(origins), n_accepted=row + 1)

    token = rows.distribution(len(draft)).sample(rng)
    rows.accept(token)
    last_origin = Origin.BONUS if origins else Origin.TARGET
    return Verification((*draft.tokens, token), (*origins, last_origin), n_accepted=len(draft))


def _is_accepted(target_prob: float, draft_prob: float, rng: RandomSource) -> bool:
    if target_prob >= draft_prob:
        return True
    # Strictly below: u can be 0, and a token that the target excludes must never pass.
    return target_prob > 0.0 and rng.random() < target_prob / draft_prob


def draft_probability(proposal: int, row: int, source: TokenDistribution | None) -> float:
    """Probability of a proposal under the law that it was sampled from; None stands for a one-hot one.

    Raises:
        ValueError: it is 0.
    """
    if source is None:
        return 1.0
    draft_prob = source.probability(proposal)
    if draft_prob == 0.0:  # no rule could keep the law: the drafter reports another distribution than it sampled
        raise ValueError(f"Draft token {proposal} (row {row}) has probability 0 in its own distribution, {source!r}.")
    return draft_prob
