from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.speculative.distribution import TokenDistribution
from tests.speculative.exact_law import exact_law

N_VOCAB = 8

weight = st.one_of(st.just(0.0), st.floats(1e-308, 1e6), st.sampled_from([1.0, 2.0, 5e-324]))
weights = st.lists(weight, min_size=N_VOCAB, max_size=N_VOCAB).filter(any)
orders = st.permutations(range(N_VOCAB))


def dense(distribution: TokenDistribution | None, n_vocab: int = N_VOCAB) -> np.ndarray:
    out = np.zeros(n_vocab)
    if distribution is not None:
        out[distribution.ids] = distribution.probs
    return out


def assert_valid(distribution: TokenDistribution) -> None:
    assert distribution.ids.dtype == np.int32
    assert distribution.probs.dtype == np.float64
    assert len(distribution) == len(distribution.ids) == len(distribution.probs) == len(set(distribution.ids.tolist()))
    assert (distribution.probs > 0).all()
    assert (np.diff(distribution.probs) <= 0).all()
    assert math.isclose(distribution.probs.sum(), 1, abs_tol=1e-12)
    assert distribution.is_one_hot == (len(distribution) == 1)
    assert distribution.top == distribution.ids[0]


@given(weights, orders)
def test_probabilities_are_normalised_sorted_and_looked_up(values, order):
    values = np.array(values)
    distribution = TokenDistribution.from_probabilities(order, values[list(order)])
    assert_valid(distribution)
    np.testing.assert_allclose(dense(distribution), values / values.sum(), rtol=1e-12, atol=1e-300)
    for token in range(-1, N_VOCAB + 1):
        listed = dense(distribution, N_VOCAB + 1)[token] if token >= 0 else 0.0
        assert distribution.probability(token) == listed


@given(weights, weights, orders, orders)
def test_the_residual_is_what_the_draft_leaves_of_the_target(target, draft, order, other_order):
    target = TokenDistribution.from_probabilities(order, np.array(target)[list(order)])
    draft = TokenDistribution.from_probabilities(other_order, np.array(draft)[list(other_order)])
    excess = np.maximum(dense(target) - dense(draft), 0)
    residual = target.residual(draft)
    assert (residual is None) == (not excess.any())
    if residual is not None:
        assert_valid(residual)
        np.testing.assert_allclose(dense(residual), excess / excess.sum(), rtol=1e-12, atol=1e-300)


@given(weights)
def test_nothing_is_left_of_a_distribution_after_itself(values):
    one = TokenDistribution.from_probabilities(range(N_VOCAB), values)
    assert one.residual(TokenDistribution.from_probabilities(range(N_VOCAB), values)) is None


@given(weights, st.integers(0, N_VOCAB))
def test_without_a_token_the_others_share_its_probability(values, token):
    whole = TokenDistribution.from_probabilities(range(N_VOCAB), values)
    others = dense(whole, N_VOCAB + 1)
    others[token] = 0
    rest = whole.without(token)
    assert (rest is None) == (not others.any())
    if rest is not None:
        assert_valid(rest)
        np.testing.assert_allclose(dense(rest, N_VOCAB + 1), others / others.sum(), rtol=1e-12, atol=1e-300)
        one_hot = TokenDistribution.one_hot(token)
        np.testing.assert_allclose(dense(whole.residual(one_hot)), dense(rest), rtol=1e-9, atol=1e-300)


@given(weights, orders)
@settings(max_examples=30)
def test_sampling_follows_the_probabilities_exactly(values, order):
    distribution = TokenDistribution.from_probabilities(order, np.array(values)[list(order)])

    def run(rng, trace):
        trace.breakpoints = lambda: np.cumsum([distribution.probability(token) for token in order])
        return distribution.sample(rng)

    law = exact_law(run)
    for token in range(N_VOCAB):
        assert law.get(token, 0) == pytest.approx(distribution.probability(token), abs=1e-11)


class Fixed:
    def __init__(self, number: float) -> None:
        self._number = number

    def random(self) -> float:
        return self._number


@given(weights)
def test_the_largest_random_number_still_hits_a_token(values):
    distribution = TokenDistribution.from_probabilities(range(N_VOCAB), values)
    for number in (0.0, 1 - 2**-53):
        assert distribution.probability(distribution.sample(Fixed(number))) > 0


def test_each_token_owns_a_half_open_interval():
    distribution = TokenDistribution.from_probabilities([4, 1], [0.5, 0.5])
    assert [distribution.sample(Fixed(u)) for u in (0.0, np.nextafter(0.5, 0), 0.5)] == [4, 4, 1]


def test_reading_the_sorted_view_does_not_change_what_is_sampled():
    first, second = (TokenDistribution.from_probabilities([4, 1, 3], [0.2, 0.5, 0.3]) for _ in range(2))
    assert second.ids.tolist() == [1, 3, 4]
    numbers = np.linspace(0, 0.999, 50)
    assert [first.sample(Fixed(u)) for u in numbers] == [second.sample(Fixed(u)) for u in numbers]


def test_one_hot_samples_without_a_random_number():
    distribution = TokenDistribution.one_hot(151_999)
    assert_valid(distribution)
    assert distribution.sample(None) == 151_999
    assert distribution.probability(151_999) == 1.0
    assert distribution.probability(2) == 0.0
    assert distribution.without(151_999) is None


logits = st.lists(st.one_of(st.just(-math.inf), st.floats(-1e4, 1e4, width=32)), min_size=N_VOCAB, max_size=N_VOCAB)


@given(logits.filter(lambda row: any(x > -math.inf for x in row)), st.floats(-1e4, 1e4, width=32))
def test_softmax_of_logits(row, shift):
    distribution = TokenDistribution.from_logits(range(N_VOCAB), row)
    assert_valid(distribution)
    highest = max(row)
    expected = [math.exp(x - highest) for x in row]
    np.testing.assert_allclose(dense(distribution), np.array(expected) / sum(expected), rtol=1e-12, atol=1e-300)
    shifted = TokenDistribution.from_logits(range(N_VOCAB), np.array(row) + shift)
    np.testing.assert_allclose(dense(shifted), dense(distribution), rtol=1e-9, atol=1e-300)


def test_equal_tokens_keep_the_order_in_which_they_were_given():
    assert TokenDistribution.from_logits([9, 4, 7, 2, 5], [0, 1, 0, 1, 0]).ids.tolist() == [4, 2, 9, 7, 5]


def test_the_arrays_of_the_caller_are_copied():
    native = np.zeros(3, dtype=[("id", np.int32), ("logit", np.float64)])
    native["id"] = [5, 6, 7]
    native["logit"] = [3, 2, 1]
    distribution = TokenDistribution.from_logits(native["id"], native["logit"])
    weights = np.array([0.5, 0.5])
    other = TokenDistribution.from_probabilities(ids := np.array([1, 2], dtype=np.int32), weights)
    native["id"], native["logit"], ids[:], weights[:] = 0, 0, 0, 0
    assert distribution.ids.tolist() == [5, 6, 7]
    assert (other.probability(1), other.probability(2)) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("ids", "values", "problem"),
    [
        ([1, 2], [-math.inf, -math.inf], "2 logits make no distribution: no token is possible"),
        ([1, 2], [0.0, math.nan], "the highest is nan"),
        ([1, 2], [0.0, math.inf], "the highest is inf"),
        ([], [], "must be two lists"),
        ([1, 2], [0.0], "must be two lists"),
        ([[1]], [[0.0]], "must be two lists"),
    ],
)
def test_logits_without_a_distribution_are_refused(ids, values, problem):
    with pytest.raises(ValueError, match=problem):
        TokenDistribution.from_logits(ids, values)


@pytest.mark.parametrize("values", [[0.0, 0.0], [1.0, -0.1], [1.0, math.nan], [1.0, math.inf]])
def test_weights_without_a_distribution_are_refused(values):
    with pytest.raises(ValueError, match="2 weights make no distribution"):
        TokenDistribution.from_probabilities([1, 2], values)


def test_a_whole_vocabulary():
    rng = np.random.default_rng(3)
    n_target, n_draft = 152_064, 151_936  # the padding of real pairs differs
    target_logits, draft_logits = rng.normal(scale=3, size=(2, n_target)).astype(np.float32)
    target = TokenDistribution.from_logits(np.arange(n_target), target_logits)
    draft = TokenDistribution.from_logits(rng.permutation(n_draft), draft_logits[:n_draft])
    assert_valid(target)
    residual = target.residual(draft)
    assert_valid(residual)
    excess = np.maximum(dense(target, n_target) - dense(draft, n_target), 0)
    np.testing.assert_allclose(dense(residual, n_target), excess / excess.sum(), rtol=1e-12, atol=0)
    assert repr(target) == f"<TokenDistribution of 152064, top {target.top}: {target.probs[0]:.4g}>"
