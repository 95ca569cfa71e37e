"""The law of whole sequences: every drafter, every draft length, and drafters that want to do harm."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from localspec.speculative.distribution import RandomSource
from localspec.speculative.drafter import Draft, Drafter, Drafting, DraftSource, WantsAnother
from localspec.speculative.policy import DraftPolicy, FixedLength, Plan
from localspec.speculative.prompt_lookup import PromptLookup
from localspec.speculative.step import SpeculativeStep
from tests.speculative.drafts import drafted_at_once
from tests.speculative.exact_law import (
    Law,
    MemorylessRows,
    Table,
    TableDrafter,
    TableRows,
    Trace,
    dense_proposals,
    exact_law,
    largest_difference,
    random_table,
    sequence_law,
)

PROMPT = (0, 1, 1, 0, 1, 1, 0, 1)  # repeats, so that prompt lookup proposes from the start


def other_than(target: Table, seed: int, style: str = "dense") -> Table:
    """A draft model of its own mind over the target's vocabulary."""
    return random_table(seed, len(target(())), style)


def least_likely(target: Table) -> Table:
    """All of the draft on what the target wants least: wrong nearly always."""

    @cache
    def table(history: tuple[int, ...]) -> np.ndarray:
        wanted = target(history)
        return (np.arange(len(wanted)) == wanted.argmin()).astype(float)

    return table


def inverted(target: Table) -> Table:
    """Probable where the target is not: accepted as rarely as a stochastic draft can be."""

    @cache
    def table(history: tuple[int, ...]) -> np.ndarray:
        unwanted = (target(history).max() - target(history)) ** 4 + 1e-9
        return unwanted / unwanted.sum()

    return table


MakeDrafter = Callable[[Table, RandomSource, Trace], Drafter]

DRAFTERS: dict[str, MakeDrafter] = {
    "prompt lookup": lambda target, rng, trace: PromptLookup(),
    "prompt lookup from 1-grams": lambda target, rng, trace: PromptLookup(1, 2),
    "stochastic draft model": lambda target, rng, trace: TableDrafter(other_than(target, 21), rng, trace),
    "draft model with zeros": lambda target, rng, trace: TableDrafter(other_than(target, 22, "zeros"), rng, trace),
    "argmax draft": lambda target, rng, trace: TableDrafter(other_than(target, 21), rng, trace, argmax=True),
    "the target itself": TableDrafter,
    "hostile, stochastic": lambda target, rng, trace: TableDrafter(inverted(target), rng, trace),
    "hostile, one-hot": lambda target, rng, trace: TableDrafter(least_likely(target), rng, trace, argmax=True),
}


def with_penalty(table: Table) -> Table:
    """A transform that depends on the tokens so far, as repetition penalties do: recent tokens lose weight."""

    @cache
    def penalised(history: tuple[int, ...]) -> np.ndarray:
        weights = table(history).copy()
        for token in history[-4:]:
            weights[token] *= 0.25
        return weights / weights.sum()

    return penalised


SOURCE = DraftSource.MODEL


class StopsWhenUnsure(FixedLength):
    """Ends a draft after a token that the drafter gave less than one half."""

    def plan(self, history: Sequence[int], limit: int) -> Plan | None:
        plan = super().plan(history, limit)
        return plan and replace(plan, wants_another=lambda confidence: confidence >= 0.5)


def one_step(
    target: Table,
    history: tuple[int, ...],
    make: MakeDrafter,
    policy: DraftPolicy,
    end_token: int | None,
    *,
    jointly: bool = False,
) -> dict[tuple[int, ...], float]:
    def run(rng: RandomSource, trace: Trace) -> tuple[int, ...]:
        step = SpeculativeStep(
            {SOURCE: make(target, rng, trace)}, policy, lambda token: token == end_token, rows_are_memoryless=jointly
        )
        step.start(history)
        step.prefill(history, len(history))
        draft = drafted_at_once(step.propose(history, limit=4))
        proposals = dense_proposals(draft, len(target(())))
        is_block = jointly and draft.distributions is not None and len(draft) > 1
        rows = (MemorylessRows if is_block else TableRows)(target, history, proposals, trace)
        return step.verify(draft, rows, rng).tokens

    return exact_law(run)


def speculative_law(
    target: Table,
    make: MakeDrafter,
    policy: DraftPolicy,
    n_tokens: int,
    end_token: int | None,
    *,
    jointly: bool = False,
) -> Law:
    law: Law = defaultdict(float)
    unfinished: Law = {(): 1.0}
    while unfinished:
        tokens, p = unfinished.popitem()
        for committed, q in one_step(target, PROMPT + tokens, make, policy, end_token, jointly=jointly).items():
            longer = (tokens + committed)[:n_tokens]
            done = len(longer) == n_tokens or longer[-1] == end_token
            into = law if done else unfinished
            into[longer] = into.get(longer, 0.0) + p * q
    return law


POLICIES = {
    "plain": FixedLength({}),
    **{f"fixed {n}": FixedLength({SOURCE: n}) for n in range(1, 5)},
    "stops when unsure": StopsWhenUnsure({SOURCE: 2}),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", DRAFTERS)
def test_the_law_of_sequences_is_the_targets(name, policy):
    target = random_table(31, 3 if policy in {"fixed 1", "fixed 2"} else 2)
    found = speculative_law(target, DRAFTERS[name], POLICIES[policy], 3, None)
    assert largest_difference(found, sequence_law(target, PROMPT, 3, None)) < 1e-12


@pytest.mark.parametrize(("policy", "n_vocab"), [("fixed 1", 3), ("fixed 2", 2), ("stops when unsure", 2)])
@pytest.mark.parametrize("name", DRAFTERS)
def test_it_holds_where_drafts_are_verified_jointly(name, policy, n_vocab):
    target = random_table(34, n_vocab)
    found = speculative_law(target, DRAFTERS[name], POLICIES[policy], 3, None, jointly=True)
    assert largest_difference(found, sequence_law(target, PROMPT, 3, None)) < 1e-12


@pytest.mark.parametrize("style", ["zeros", "ties", "greedy"])
@pytest.mark.parametrize("name", DRAFTERS)
def test_it_holds_with_penalties_and_an_end_of_generation(name, style):
    target = with_penalty(random_table(32, 3, style))
    found = speculative_law(target, DRAFTERS[name], FixedLength({SOURCE: 2}), n_tokens=4, end_token=2)
    assert largest_difference(found, sequence_law(target, PROMPT, 4, 2)) < 1e-12


class OutsideDrafter(PromptLookup):
    """Proposes tokens that the target's vocabulary does not have."""

    def propose(self, history: Sequence[int], n_draft: int, wants_another: WantsAnother | None = None) -> Drafting:
        yield from ()
        return Draft((1000,) * n_draft)


def chi_square(counts: Counter, law: Law) -> tuple[float, int]:
    """Pearson's statistic and its degrees of freedom; rare sequences share a cell."""
    total = counts.total()
    expected = {key: p * total for key, p in law.items() if p * total >= 8}
    observed = {key: counts[key] for key in expected}
    rest = total - sum(expected.values())
    statistic = sum((observed[key] - expected[key]) ** 2 / expected[key] for key in expected)
    statistic += (total - sum(observed.values()) - rest) ** 2 / max(rest, 1.0)
    return statistic, len(expected)


@pytest.mark.parametrize("name", [*DRAFTERS, "outside the vocabulary"])
def test_long_runs_of_one_stateful_drafter_follow_the_law(name):
    """Many replies through the same objects: what a drafter keeps from step to step and reply to reply counts."""
    target = with_penalty(random_table(33, 3))
    rng = np.random.default_rng(5)
    drafter = DRAFTERS.get(name, lambda *_: OutsideDrafter())(target, rng, Trace())
    step = SpeculativeStep({SOURCE: drafter}, FixedLength({SOURCE: 4}), lambda token: False)
    counts: Counter = Counter()
    n_accepted = 0
    for _ in range(1500):
        history = [*PROMPT]
        step.start(history)
        while step.prefill(history, 3):
            pass
        while len(history) < len(PROMPT) + 5:
            draft = drafted_at_once(step.propose(history, limit=len(PROMPT) + 4 - len(history)))
            rows = TableRows(target, tuple(history), (), Trace())
            verification = step.verify(draft, rows, rng)
            history += verification.tokens
            n_accepted += verification.n_accepted
        assert len(history) == len(PROMPT) + 5
        counts[tuple(history[len(PROMPT) :])] += 1
    statistic, freedom = chi_square(counts, sequence_law(target, PROMPT, 5, None))
    assert statistic < freedom + 4 * (2 * freedom) ** 0.5  # 4 standard deviations
    assert (n_accepted == 0) == (name == "outside the vocabulary")
