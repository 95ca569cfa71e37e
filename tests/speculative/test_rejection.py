"""verify(): the exact law of one step, and what it does row by row."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.speculative.distribution import TokenDistribution
from localspec.speculative.drafter import EMPTY_DRAFT, Draft
from localspec.speculative.rejection import Origin, Verification, verify
from tests.speculative.exact_law import (
    Law,
    Table,
    TableRows,
    dense_proposals,
    distribution,
    exact_law,
    largest_difference,
    random_table,
    sequence_law,
)

HISTORY = (2, 0, 1)


def step_law(target: Table, draft: Draft, n_vocab: int, end_token: int | None = None) -> dict[Verification, float]:
    proposals = dense_proposals(draft, n_vocab)
    return exact_law(
        lambda rng, trace: verify(
            draft,
            TableRows(target, HISTORY, proposals, trace),
            rng,
            ends_generation=lambda token: token == end_token,
        )
    )


def stochastic_drafts(table: Table, n_draft: int, n_vocab: int):
    """Every draft that a model with this table can sample, and how probable it is."""
    for tokens in itertools.product(range(n_vocab), repeat=n_draft):
        laws = [table((*HISTORY, *tokens[:i])) for i in range(n_draft)]
        p = float(np.prod([law[token] for law, token in zip(laws, tokens, strict=True)]))
        if p > 0:
            yield Draft(tokens, tuple(distribution(law) for law in laws)), p


def completed(outcomes: dict[tuple[int, ...], float], target: Table, n_tokens: int, end_token: int | None) -> Law:
    """The law of the next `n_tokens` tokens when plain sampling goes on after the step."""
    law: Law = defaultdict(float)
    for tokens, p in outcomes.items():
        ended = tokens[-1] == end_token
        rest = {(): 1.0} if ended else sequence_law(target, (*HISTORY, *tokens), n_tokens - len(tokens), end_token)
        for more, q in rest.items():
            law[tokens + more] += p * q
    return law


def assert_lossless(target: Table, drafts, n_draft: int, n_vocab: int, end_token: int | None = None) -> None:
    outcomes: dict[tuple[int, ...], float] = defaultdict(float)
    for draft, p in drafts:
        for verification, q in step_law(target, draft, n_vocab, end_token).items():
            outcomes[verification.tokens] += p * q
    expected = sequence_law(target, HISTORY, n_draft + 1, end_token)
    assert largest_difference(completed(outcomes, target, n_draft + 1, end_token), expected) < 1e-12


@pytest.mark.parametrize("target_style", ["dense", "zeros", "ties", "greedy", "uniform"])
@pytest.mark.parametrize("draft_style", ["dense", "zeros", "ties", "greedy", "uniform"])
@pytest.mark.parametrize(("n_draft", "n_vocab"), [(1, 5), (2, 3)])
def test_a_sampled_draft_leaves_the_law_unchanged(target_style, draft_style, n_draft, n_vocab):
    target = random_table(1, n_vocab, target_style)
    drafts = stochastic_drafts(random_table(2, n_vocab, draft_style), n_draft, n_vocab)
    assert_lossless(target, drafts, n_draft, n_vocab)


@pytest.mark.parametrize("target_style", ["dense", "zeros", "ties", "greedy", "uniform"])
@pytest.mark.parametrize("tokens", [(0,), (2,), (0, 1), (1, 1, 2), (2, 0, 2, 1)])
def test_any_copied_draft_leaves_the_law_unchanged(target_style, tokens):
    assert_lossless(random_table(3, 3, target_style), [(Draft(tokens), 1.0)], len(tokens), 3)


@pytest.mark.parametrize("end_token", [0, 1, 2])
def test_the_law_holds_for_drafts_through_an_end_of_generation(end_token):
    target = random_table(4, 3)
    assert_lossless(target, stochastic_drafts(random_table(5, 3), 2, 3), 2, 3, end_token)
    assert_lossless(target, [(Draft((2, end_token, 1)), 1.0)], 3, 3, end_token)


DISJOINT = np.array([0.5, 0.5, 0, 0]), np.array([0, 0, 0.25, 0.75])
EQUAL = np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.1, 0.2, 0.3, 0.4])
BARELY_EQUAL = np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.1 + 1e-9, 0.2, 0.3 - 1e-9, 0.4])
TINY = np.array([1.0, 1e-300, 0, 0]), np.array([1e-300, 1.0, 1e-310, 0])
OUTSIDE = np.array([0.7, 0.3, 0, 0]), np.array([0.1, 0.1, 0.4, 0.4])


@pytest.mark.parametrize("pair", [DISJOINT, EQUAL, BARELY_EQUAL, TINY, OUTSIDE])
def test_awkward_pairs_leave_the_law_unchanged(pair):
    for target, draft in (pair, pair[::-1]):
        assert_lossless(lambda _, t=target: t, stochastic_drafts(lambda _, d=draft: d, 2, 4), 2, 4)


weights = st.lists(st.sampled_from([0.0, 0.0, 1e-6, 0.1, 0.5, 1.0, 3.0]), min_size=4, max_size=4).filter(any)


@given(weights, weights)
@settings(max_examples=60)
def test_the_law_holds_for_any_pair_of_distributions(target, draft):
    target, draft = (np.array(w) / sum(w) for w in (target, draft))
    assert_lossless(lambda _: target, stochastic_drafts(lambda _: draft, 1, 4), 1, 4)


def test_the_acceptance_probability_is_the_overlap_of_the_two_laws():
    target, draft = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])
    accepted = sum(
        p * q
        for sampled, p in stochastic_drafts(lambda _: draft, 1, 3)
        for verification, q in step_law(lambda _: target, sampled, 3).items()
        if verification.n_accepted
    )
    assert accepted == pytest.approx(0.2 + 0.2 + 0.2, abs=1e-12)


class ListedRows:
    """Rows with given laws that log what is asked of them."""

    def __init__(self, *laws) -> None:
        self._laws = [distribution(np.array(law, dtype=float)) for law in laws]
        self.log: list[tuple[str, int]] = []

    def distribution(self, row: int) -> TokenDistribution:
        self.log.append(("row", row))
        return self._laws[row]

    def accept(self, token: int) -> None:
        self.log.append(("accept", token))


class CountedRandom:
    def __init__(self, *numbers: float) -> None:
        self._numbers = list(numbers)
        self.n_drawn = 0

    def random(self) -> float:
        self.n_drawn += 1
        return self._numbers.pop(0)


def never(token: int) -> bool:
    return False


def test_a_step_without_a_draft_samples_the_target():
    rows = ListedRows([0.25, 0.75])
    assert verify(EMPTY_DRAFT, rows, CountedRandom(0.2), ends_generation=never) == Verification(
        (0,), (Origin.TARGET,), 0
    )
    assert rows.log == [("row", 0), ("accept", 0)]


def test_a_rejection_ends_the_step_and_later_rows_are_not_evaluated():
    rows = ListedRows([0.25, 0.75, 0], [0.5, 0.25, 0.25])
    found = verify(Draft((1, 0, 2, 2)), rows, CountedRandom(0.7, 0.5, 0.9), ends_generation=never)
    assert found == Verification((1, 2), (Origin.DRAFT, Origin.RESIDUAL), 1)
    assert rows.log == [("row", 0), ("accept", 1), ("row", 1), ("accept", 2)]


def test_a_draft_that_is_accepted_in_full_earns_a_bonus_token():
    rows = ListedRows([1, 0], [0, 1], [0.5, 0.5])
    found = verify(Draft((0, 1)), rows, CountedRandom(0.6), ends_generation=never)
    assert found == Verification((0, 1, 1), (Origin.DRAFT, Origin.DRAFT, Origin.BONUS), 2)


def test_an_accepted_end_of_generation_ends_the_step_without_a_bonus_row():
    rows = ListedRows([1, 0], [0, 1])
    found = verify(Draft((0, 1, 0)), rows, CountedRandom(), ends_generation=lambda token: token == 1)
    assert found == Verification((0, 1), (Origin.DRAFT, Origin.DRAFT), 2)
    assert rows.log == [("row", 0), ("accept", 0), ("row", 1), ("accept", 1)]


def test_a_residual_end_of_generation_is_an_ordinary_last_token():
    rows = ListedRows([0, 1])
    found = verify(Draft((0,)), rows, CountedRandom(), ends_generation=lambda token: token == 1)
    assert found == Verification((1,), (Origin.RESIDUAL,), 0)


def test_greedy_decoding_draws_no_random_number():
    rng = CountedRandom()
    rows = ListedRows([0, 1, 0], [1, 0, 0], [0, 0, 1])
    assert verify(Draft((1, 0)), rows, rng, ends_generation=never).tokens == (1, 0, 2)
    assert verify(Draft((2, 0)), ListedRows([0, 1, 0]), rng, ends_generation=never).tokens == (1,)
    assert rng.n_drawn == 0


def test_the_acceptance_test_is_strict_and_u_can_be_zero():
    excluded = ListedRows([0, 0.5, 0.5])
    assert verify(Draft((0,)), excluded, CountedRandom(0.0), ends_generation=never).tokens == (1,)
    at_the_ratio = ListedRows([0.25, 0.75])
    assert verify(Draft((0,)), at_the_ratio, CountedRandom(0.25), ends_generation=never).n_accepted == 0
    below_the_ratio = ListedRows([0.25, 0.75], [1, 0])
    rng = CountedRandom(np.nextafter(0.25, 0))
    assert verify(Draft((0,)), below_the_ratio, rng, ends_generation=never).n_accepted == 1


@pytest.mark.parametrize("stochastic", [False, True])
def test_an_empty_residual_falls_back_to_the_target(stochastic):
    # The target lost its last digit to rounding: the proposal can be rejected although nothing else is possible.
    rounded = TokenDistribution(np.array([3], dtype=np.int32), np.array([1 - 2**-53]))
    draft = Draft((3,), (TokenDistribution.one_hot(3),) if stochastic else None)

    class Rows(ListedRows):
        def distribution(self, row: int) -> TokenDistribution:
            return rounded

    found = verify(draft, Rows(), CountedRandom(1 - 2**-53), ends_generation=never)
    assert found == Verification((3,), (Origin.RESIDUAL,), 0)


def test_a_proposal_outside_its_own_distribution_is_refused():
    draft = Draft((1, 2), (TokenDistribution.one_hot(1), TokenDistribution.one_hot(7)))
    with pytest.raises(ValueError, match=r"token 2 \(row 1\).*top 7"):
        verify(draft, ListedRows([0, 1, 0], [0, 0, 1]), CountedRandom(), ends_generation=never)


@pytest.mark.parametrize("temperature", [0.05, 0.3, 0.8, 1.0, 1.7, 5.0])
def test_a_target_that_drafts_for_itself_is_never_rejected(temperature):
    rng = np.random.default_rng(11)
    for n_kept in (1, 40, 3000):
        for _ in range(30):
            logits = rng.normal(scale=4, size=(6, n_kept)).astype(np.float32) / np.float32(temperature)
            ids = rng.permutation(3000)[:n_kept]
            draft_laws = [TokenDistribution.from_logits(ids, row) for row in logits]
            target_laws = [TokenDistribution.from_logits(ids, row) for row in logits]
            draft = Draft(tuple(law.sample(rng) for law in draft_laws[:5]), tuple(draft_laws[:5]))
            rows = ListedRows()
            rows._laws = target_laws
            assert verify(draft, rows, rng, ends_generation=never).n_accepted == 5


def test_the_standard_library_generator_serves_too():
    found = verify(Draft((0,)), ListedRows([0.5, 0.5], [0.5, 0.5]), random.Random(1), ends_generation=never)
    assert len(found.tokens) == found.n_accepted + 1
