"""Verification of a sampled draft as a whole: never fewer accepted tokens in expectation than one by one.

Token by token, a draft that the target likes less at one place is lost from there on, however much it likes the rest.
Here the prefix of i tokens carries a weight, the running likelihood ratio capped at 1,

    weight[0] = 1,   weight[i] = min(1, weight[i-1] * target(x_i) / draft(x_i))

and is accepted, if no longer one is, with probability

    accept[n] = weight[n],   accept[i] = S[i] / (S[i] + 1 - weight[i]),   S[i] = sum over x of excess[i](x),
    excess[i](x) = max(0, weight[i] * target(x | prefix) - draft(x | prefix))

The token after the longest accepted prefix is drawn from the target after the whole draft, else from excess[i],
normalised. The tree of drafts behind a prefix gives each of its continuations at most the probability that the target
wants there, and the excess is just what is missing. A draft may stop wherever its own tokens say so, as long as the
drafter decides to go on before it sees the next token: then a prefix determines whether it is the whole draft.
Source: Sun et al., "Block Verification Accelerates Speculative Decoding" (2024), algorithm 2 and theorems 1 and 2.
"""

from __future__ import annotations

from collections.abc import Callable

from localspec.speculative.distribution import RandomSource, TokenDistribution
from localspec.speculative.drafter import Draft
from localspec.speculative.rejection import Origin, TargetRows, Verification, draft_probability


def verify_block(
    draft: Draft, rows: TargetRows, rng: RandomSource, *, ends_generation: Callable[[int], bool]
) -> Verification:
    """Like `rejection.verify`, for a draft with distributions and at most one end of generation, its last token.

    The rows must be functions of their place alone: they are read before anything is accepted, and a later row decides
    with whether an earlier token stays. Rows behind a prefix of weight 0 are not evaluated. Random numbers: at most
    one per proposal and one for the last token.

    Raises:
        ValueError: the draft has no distributions, or a proposal has no probability in its own.
    """
    if draft.distributions is None:
        raise ValueError("A draft without distributions is verified token by token.")
    targets: list[TokenDistribution] = []
    accept: list[float] = []
    weights = [1.0]
    for row, (proposal, source) in enumerate(zip(draft.tokens, draft.distributions, strict=True)):
        target, weight = rows.distribution(row), weights[row]
        targets.append(target)
        excess = float(target.excess(source, weight).sum())
        accept.append(excess / (excess + 1.0 - weight) if excess else 0.0)
        ratio = target.probability(proposal) / draft_probability(proposal, row, source)
        weights.append(min(1.0, weight * ratio))
        if weights[-1] == 0.0:
            break
    accept.append(weights[-1])

    n_accepted = len(accept) - 1
    while n_accepted and not _happens(accept[n_accepted], rng):
        n_accepted -= 1
    kept = draft.tokens[:n_accepted]
    for token in kept:
        rows.accept(token)
    origins = (Origin.DRAFT,) * n_accepted
    if n_accepted < len(draft):
        target, source = targets[n_accepted], draft.distributions[n_accepted]
        residual = target.residual(source, weights[n_accepted])
        # Empty: stopped here by rounding only, where the two laws are equal.
        token = (target if residual is None else residual).sample(rng)
        rows.accept(token)
        return Verification((*kept, token), (*origins, Origin.RESIDUAL), n_accepted)
    if n_accepted and ends_generation(kept[-1]):
        return Verification(kept, origins, n_accepted)
    token = rows.distribution(n_accepted).sample(rng)
    rows.accept(token)
    return Verification((*kept, token), (*origins, Origin.BONUS if kept else Origin.TARGET), n_accepted)


def _happens(probability: float, rng: RandomSource) -> bool:
    return probability >= 1.0 or (probability > 0.0 and rng.random() < probability)
