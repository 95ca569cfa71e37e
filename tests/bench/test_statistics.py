"""The formulas of docs/metrics.md, exactly."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.bench.statistics import (
    Spread,
    acceptance_per_test,
    geometric_spread,
    ideal_of,
    ideal_tokens_per_step,
    median,
    median_spread,
    pooled,
    ratios,
    speculation_efficiency,
)
from tests.bench.replies import StepOf, snapshots


def test_spreads():
    assert median_spread([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0, 3)
    assert median_spread([4.0, 1.0]) == Spread(2.5, 1.0, 4.0, 2)
    assert geometric_spread([1.0, 4.0]) == Spread(pytest.approx(2.0), 1.0, 4.0, 2)
    assert median_spread([]) is geometric_spread([]) is None
    assert median([None, 3.0, None, 1.0]) == 2.0
    assert median([None]) is None


def test_ratios_are_taken_pair_by_pair():
    assert ratios([2.0, 6.0], [1.0, 2.0]) == [2.0, 3.0]
    assert ratios([2.0, None, 4.0, 1.0], [1.0, 2.0, None, 0.0]) == [2.0]
    with pytest.raises(ValueError, match="shorter"):
        ratios([1.0, 2.0], [1.0])


@given(drift=st.lists(st.floats(0.2, 5.0), min_size=1, max_size=7), gain=st.floats(0.5, 3.0))
def test_a_machine_that_drifts_does_not_change_the_speedup(drift: list[float], gain: float):
    plain = [0.02 * factor for factor in drift]
    spread = median_spread(ratios(plain, [each / gain for each in plain]))
    assert spread is not None
    assert spread.middle == pytest.approx(gain)
    assert spread.high - spread.low == pytest.approx(0.0, abs=1e-9)


def test_pooling_is_the_same_as_one_long_reply():
    one = [StepOf(0.1, 4, 4), StepOf(0.1, 4, 0), StepOf(0.05)]
    other = [StepOf(0.2, 2, 1), StepOf(0.1, 8, 8)]
    joined = snapshots([*one, *other])[1]
    both = pooled([snapshots(one)[1], snapshots(other)[1]])
    assert both.acceptance_histogram == joined.acceptance_histogram
    assert both.rejection_histogram == joined.rejection_histogram
    assert both.acceptance_by_position == joined.acceptance_by_position
    assert both.mean_acceptance_length == joined.mean_acceptance_length
    assert both.discarded_share == joined.discarded_share
    assert both.step_s == pytest.approx(joined.step_s)
    assert both.draft_pass_s == pytest.approx(joined.draft_pass_s)
    assert both.n_prompt_tokens == 2 * joined.n_prompt_tokens
    # A speed of two replies is none of one.
    assert both.ttft_s is both.tpot_s is both.tokens_per_second is both.itl_p50_s is None


def test_pooling_plain_replies():
    both = pooled([snapshots([StepOf(0.1)] * 3)[1]] * 2)
    assert (both.n_tokens, both.n_plain_steps) == (6, 6)
    assert both.draft_acceptance_rate is None
    assert both.acceptance_by_position == ()


def test_acceptance_counts_tests_not_drafted_tokens():
    """Of 4 + 4 drafted tokens, one draft was accepted in full and one rejected its first: 4 of 5 tests passed."""
    metrics = snapshots([StepOf(0.1, 4, 4), StepOf(0.1, 4, 0)])[1]
    assert acceptance_per_test(metrics) == 4 / 5
    assert metrics.draft_acceptance_rate == 4 / 8
    assert acceptance_per_test(snapshots([StepOf(0.1)])[1]) is None


@given(acceptance=st.floats(0.0, 1.0), n_draft=st.integers(0, 8))
def test_the_ideal_is_the_expectation_over_all_outcomes(acceptance: float, n_draft: int):
    """Enumerate which of the n tests would pass; what counts are those before the first that fails, and one more."""
    expected = 0.0
    for passes in product([True, False], repeat=n_draft):
        probability = 1.0
        for passed in passes:
            probability *= acceptance if passed else 1 - acceptance
        n_accepted = next((i for i, passed in enumerate(passes) if not passed), n_draft)
        expected += probability * (1 + n_accepted)
    assert ideal_tokens_per_step(acceptance, n_draft) == pytest.approx(expected)


def test_the_ideal_of_what_was_measured():
    metrics = snapshots([StepOf(0.1, 4, 4), StepOf(0.1, 4, 0), StepOf(0.1), StepOf(0.1)])[1]
    assert ideal_of(metrics) == pytest.approx((1 - 0.8 ** (2 + 1)) / (1 - 0.8))
    assert ideal_of(snapshots([StepOf(0.1, 3, 3)])[1]) == 4.0
    assert ideal_of(snapshots([StepOf(0.1)])[1]) is None


def test_efficiency_is_whole_where_steps_take_as_long_as_without_a_draft():
    """Steps of 3 tokens that take as long as one token of plain decoding: all of it arrives."""
    plain = snapshots([StepOf(0.1)] * 5)[1]
    fast = snapshots([StepOf(0.1, 2, 2)] * 5)[1]
    slow = snapshots([StepOf(0.2, 2, 2)] * 5)[1]
    assert plain.tpot_s is not None
    for metrics, efficiency in ((fast, 1.0), (slow, 0.5)):
        assert metrics.tpot_s is not None
        assert metrics.mean_acceptance_length is not None
        speedup = plain.tpot_s / metrics.tpot_s
        assert speculation_efficiency(speedup, metrics.mean_acceptance_length) == pytest.approx(efficiency)
