"""What a draft promises, against a plain sum over what can become of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.speculative.outlook import Outlook

ODDS = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12)


@given(ODDS)
def test_accepted_tokens_are_those_of_an_enumeration(odds):
    outlook = Outlook.of(odds, [0.01] * len(odds))
    for n in range(1, len(odds) + 1):
        expected, reach = 0.0, 1.0
        for i in range(n):
            expected += i * reach * (1.0 - odds[i])  # the first rejection is that of token i
            reach *= odds[i]
        assert outlook.accepted[n - 1] == pytest.approx(expected + n * reach)


@given(ODDS, st.floats(1.0, 200.0))
def test_the_best_length_is_none_shorter_or_longer(odds, price):
    seconds = [0.001 * (1 + i % 3) for i in range(len(odds))]
    outlook = Outlook.of(odds, seconds)
    gains = [0.0] + [outlook.accepted[i] - price * sum(seconds[: i + 1]) for i in range(len(odds))]
    gain, n_draft = outlook.best(price)
    assert gain == pytest.approx(max(gains))
    assert gains[n_draft] == pytest.approx(gain)


@given(ODDS, st.floats(0.0, 0.2), st.floats(1.0, 100.0))
def test_at_the_best_rate_no_length_gains_more_than_plain_decoding_loses(odds, reading_s, n_served):
    """Dinkelbach: at the price of the best rate, the best step is exactly worth its time."""
    plain_s = 0.02
    outlook = Outlook.of(odds, [0.008] * len(odds), reading_s, n_served)
    price = outlook.best_rate(plain_s)
    gain, _ = outlook.best(price)
    assert gain == pytest.approx(price * plain_s - 1.0, abs=1e-9)


def test_reading_is_shared_with_the_text_that_it_serves():
    acceptance, seconds = [1.0] * 9, [0.01] * 9
    longer_text = Outlook.of(acceptance, seconds, reading_s=0.2, n_served=40.0)
    assert longer_text.costs_s[8] == pytest.approx(0.09 + 0.2 * 10 / 40)
    short_text = Outlook.of(acceptance, seconds, reading_s=0.2, n_served=4.0)
    assert short_text.costs_s[8] == pytest.approx(0.09 + 0.2), "never more than all of it"


def test_what_a_draft_may_lose_includes_all_reading():
    outlook = Outlook.of([0.9] * 4, [0.01] * 4, reading_s=0.05, n_served=100.0)
    assert [outlook.n_affordable(s) for s in (-0.1, 0.0, 0.005, 0.0101, 0.0401, 1.0)] == [0, 0, 0, 1, 4, 4]
    assert outlook.best(1.0, 0.0101)[1] == 1
    assert outlook.most_lost_s(2) == pytest.approx(0.07)
    assert outlook.most_lost_s(9) == pytest.approx(0.09)
