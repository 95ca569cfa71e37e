"""The statistics of paired runs: exact cases, the table of quantiles, and how often the bounds hold."""

from __future__ import annotations

import math
import random

import pytest

from localspec.bench import paired
from localspec.bench.paired import speedup


def below(t: float, freedom: int) -> float:
    """Student's distribution function: with t = sqrt(n) tan(a) its density is that of a power of cos(a)."""

    def integral(low: float, high: float, n: int = 2_000) -> float:
        width = (high - low) / n
        values = [math.cos(low + i * width) ** (freedom - 1) for i in range(n + 1)]
        return width / 3 * (values[0] + values[-1] + 4 * sum(values[1:-1:2]) + 2 * sum(values[2:-1:2]))

    half = math.pi / 2
    return 0.5 + integral(0, math.atan(t / math.sqrt(freedom))) / integral(-half, half)


def test_the_table_holds_the_quantiles_of_student():
    for freedom, t in enumerate(paired._T99, start=1):
        assert below(t, freedom) == pytest.approx(0.99, abs=2e-5), freedom


def test_cases_that_differ_are_no_uncertainty():
    """Every pair says the same about its case: the mean is exact, however far the cases are apart."""
    one_pass = [math.log(0.5), math.log(2.0), math.log(3.0)]
    measured = speedup([one_pass, one_pass])
    assert measured is not None
    assert measured.ratio == pytest.approx(3 ** (1 / 3))
    assert (measured.low, measured.high, measured.n_pairs) == (measured.ratio, measured.ratio, 6)


def test_the_bounds_of_a_case_worked_by_hand():
    """Two cases, two pairs each, all off their means by 0.1: the pooled variance is 4 * 0.01 / 2."""
    measured = speedup([[0.1, 0.3], [-0.1, 0.1]])
    assert measured is not None
    assert math.log(measured.ratio) == pytest.approx(0.1)
    margin = 6.965 * math.sqrt(0.02 * (1 / 2 + 1 / 2)) / 2
    assert math.log(measured.low) == pytest.approx(0.1 - margin)
    assert math.log(measured.high) == pytest.approx(0.1 + margin)


def test_one_pass_has_no_bounds_and_missing_pairs_count_nowhere():
    single = speedup([[0.2, None, 0.4]])
    assert single is not None
    assert (math.log(single.ratio), single.low, single.high, single.n_pairs) == (pytest.approx(0.3), 0.0, math.inf, 2)
    assert not single.has_bounds
    assert speedup([]) is None
    assert speedup([[None, None], [None, None]]) is None
    assert speedup([[0.2, None, 0.4], [0.2, None, None]]) == speedup([[0.2, 0.4], [0.2, None]])


def test_passes_over_different_cases_are_a_mistake():
    with pytest.raises(ValueError, match="zip"):
        speedup([[0.1, 0.2], [0.1]])


def test_whichever_comes_first():
    passes = [[0.11, -0.2, 0.31], [0.12, -0.25, 0.29]]
    forth, back = speedup(passes), speedup([[-value for value in values] for values in passes])
    assert forth is not None
    assert back is not None
    assert (back.ratio, back.low, back.high) == pytest.approx((1 / forth.ratio, 1 / forth.high, 1 / forth.low))


@pytest.mark.parametrize("n_passes", [2, 4])
def test_each_bound_holds_as_often_as_it_says(n_passes: int):
    rng = random.Random(n_passes)
    n_trials, true = 4_000, [0.0, 0.1, -0.1, 0.3, 0.05]
    too_high = too_low = 0
    for _ in range(n_trials):
        measured = speedup([[value + rng.gauss(0, 0.05) for value in true] for _ in range(n_passes)])
        assert measured is not None
        too_high += math.log(measured.low) > 0.07
        too_low += math.log(measured.high) < 0.07
    # 1 % of 4000 is 40, with a standard deviation of 6.3.
    assert 20 <= too_high <= 60
    assert 20 <= too_low <= 60
