"""What is learned: pass times, acceptance, and what may be lost."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.speculative.acceptance import AcceptanceTable
from localspec.speculative.evidence import Agreement, Evidence
from localspec.speculative.ledger import Ledger, ProbeFund
from localspec.speculative.pass_times import PassTimes
from localspec.speculative.reply_evidence import BetweenCopies, Rate, TextFactor


class TestPassTimes:
    def test_between_measurements_times_are_linear_and_go_on_beyond_them(self):
        times = PassTimes({1: 0.010, 3: 0.014, 5: 0.030})
        assert [times.seconds(n) for n in (1, 2, 3, 4, 5, 7)] == pytest.approx(
            [0.010, 0.012, 0.014, 0.022, 0.030, 0.040]
        )

    def test_one_measurement_is_enough(self):
        assert PassTimes({1: 0.02}).seconds(5) == pytest.approx(0.1)  # as if rows ran one after the other
        assert PassTimes({4: 0.02}).seconds(1) == pytest.approx(0.02)

    @pytest.mark.parametrize("measured", [{}, {0: 0.1}, {1: 0.0}, {1: 0.1, 2: -1.0}])
    def test_what_is_no_time_is_refused(self, measured):
        with pytest.raises(ValueError, match="Pass times"):
            PassTimes(measured)

    def test_a_measurement_that_a_wider_one_contradicts_gives_way(self):
        """Something else held the machine up; nothing makes it faster than it is."""
        times = PassTimes({1: 0.02, 2: 0.9, 3: 0.03})
        assert [times.seconds(n) for n in (1, 2, 3)] == pytest.approx([0.02, 0.03, 0.03])

    def test_a_measurement_of_more_than_as_many_single_passes_gives_way(self):
        times = PassTimes({1: 0.02, 2: 0.9})
        assert [times.seconds(n) for n in (1, 2)] == pytest.approx([0.02, 0.04])

    @given(
        st.dictionaries(st.integers(1, 33), st.floats(1e-4, 1.0), min_size=1, max_size=7),
        st.lists(st.tuples(st.integers(1, 40), st.floats(1e-6, 10.0)), max_size=60),
    )
    def test_more_rows_never_take_less_time(self, measured, passes):
        times = PassTimes(measured)
        for n_rows, seconds in passes:
            times.observe(n_rows, seconds)
        estimates = [times.seconds(n) for n in range(1, 45)]
        assert all(a <= b * (1 + 1e-12) for a, b in itertools.pairwise(estimates))
        assert estimates[0] > 0

    def test_it_follows_what_it_sees(self):
        times, rng = PassTimes({1: 0.02, 9: 0.04}), random.Random(1)
        for _ in range(400):
            times.observe(rng.choice((1, 5, 9)), 0.05)  # now flat
        assert [times.seconds(n) for n in (1, 5, 9)] == pytest.approx([0.05] * 3, rel=0.1)

    @pytest.mark.parametrize(
        "noise",
        [
            lambda rng: rng.lognormvariate(0.0, 0.25),
            lambda rng: 5.0 if rng.random() < 0.02 else 1.0,
        ],
        ids=["scatter", "hiccups"],
    )
    @pytest.mark.parametrize("widths", [(1,), (1, 2, 3), tuple(range(1, 10)), (1, 33)], ids=len)
    def test_noise_drives_no_width_away(self, noise, widths):
        def true_s(n: int) -> float:
            return 0.02 + 0.0006 * (n - 1)

        times, rng = PassTimes({n: true_s(n) for n in (1, 2, 5, 9, 33)}), random.Random(4)
        for _ in range(30_000):
            n = rng.choice(widths)
            times.observe(n, true_s(n) * noise(rng))
        for n in (1, 3, 9, 17, 33):
            assert times.seconds(n) == pytest.approx(true_s(n), rel=0.25)

    def test_a_load_that_comes_and_goes_leaves_no_trace(self):
        times, rng = PassTimes({1: 0.02, 9: 0.024, 33: 0.04}), random.Random(5)
        for i in range(40_000):
            n = rng.choice((1, 2, 5)) if i // 250 % 2 else rng.randint(1, 9)
            times.observe(n, (0.02 + 0.0006 * (n - 1)) * (4.0 if i // 500 % 2 else 1.0))
        for _ in range(300):
            times.observe(1, 0.02)
        assert times.seconds(33) == pytest.approx(0.04, rel=0.5), "half a pass too much: probes will tell"

    def test_what_was_measured_on_a_busy_machine_is_soon_forgotten(self):
        times = PassTimes({1: 0.2, 2: 0.2, 9: 0.2})
        for _ in range(8):
            times.observe(1, 0.002)
        assert times.seconds(1) < 0.006

    def test_a_machine_that_slows_down_slows_every_width(self):
        times = PassTimes({1: 0.02, 9: 0.04})
        for _ in range(100):
            times.observe(9, 0.08)
        assert times.seconds(9) == pytest.approx(0.08, rel=0.01)
        assert 0.024 < times.seconds(1) < 0.05

    def test_one_hiccup_moves_little(self):
        times = PassTimes({1: 0.02, 9: 0.04})
        times.observe(1, 30.0)
        assert times.seconds(1) < 0.026
        assert times.seconds(9) < 0.045

    def test_widths_that_were_not_measured_are_learned_up_to_the_widest(self):
        times = PassTimes({1: 0.2}, widest=9)
        assert times.seconds(9) == pytest.approx(1.8)
        for _ in range(200):
            times.observe(9, 0.25)
            times.observe(1, 0.2)
        assert times.seconds(9) == pytest.approx(0.25, rel=0.05)
        assert times.seconds(5) < 0.27

    def test_wider_passes_than_known_say_nothing(self):
        times = PassTimes({1: 0.02, 9: 0.04})
        times.observe(10, 5.0)
        assert times.seconds(9) == pytest.approx(0.04)

    @given(st.floats(0.0, 1e-5), st.floats(0.0, 1e-5), st.integers(1024, 100_000), st.integers(0, 200_000))
    def test_attention_is_found_from_two_widths(self, per_cell_s, per_row_s, n_cells, elsewhere):
        times = PassTimes({1: 0.02, 3: 0.025, 9: 0.04})

        def true_s(n_rows: int, n_cells: int) -> float:
            return times.seconds(n_rows) + n_cells * (per_cell_s + n_rows * per_row_s)

        times.learn_context(n_cells, {n: true_s(n, n_cells) for n in (1, 3)})
        for n_rows in (1, 2, 9, 40):
            assert times.seconds(n_rows, elsewhere) == pytest.approx(true_s(n_rows, elsewhere), rel=1e-6)

    @given(st.floats(1e-4, 1.0), st.floats(1e-4, 1.0), st.lists(st.tuples(st.integers(1, 9), st.floats(1e-4, 10.0))))
    def test_whatever_was_measured_rows_share_work_or_do_not(self, one_s, three_s, passes):
        """Hiccups included: more rows take more time, but never more than as many passes."""
        times = PassTimes({1: 0.02, 3: 0.025, 9: 0.04})
        times.learn_context(4000, {1: one_s, 3: three_s})
        for n_rows, seconds in passes:
            times.observe(n_rows, seconds, 4000)
        estimates = [times.seconds(n, 4000) for n in range(1, 10)]
        assert all(a <= b * (1 + 1e-12) for a, b in itertools.pairwise(estimates))
        assert all(s <= n * estimates[0] * (1 + 1e-9) for n, s in enumerate(estimates, 1))
        assert all(times.seconds(n) <= times.seconds(n, 4000) for n in range(1, 10))

    def test_only_a_context_that_is_much_longer_is_measured_again(self):
        times = PassTimes({1: 0.02, 3: 0.025})
        assert [n for n in (0, 100, 1000, 1100) if times.is_worth_measuring(n)] == [1100]
        times.learn_context(1100, {1: 0.021, 3: 0.026})
        assert [n for n in (1100, 1600, 1700, 9000) if times.is_worth_measuring(n)] == [1700, 9000]

    def test_another_model_stands_in_until_it_is_measured(self):
        target, draft = PassTimes({1: 0.02, 3: 0.025}), PassTimes({1: 0.002, 3: 0.002})
        target.learn_context(2000, {1: 0.04, 3: 0.085})
        draft.assume_context(target, 0.5)
        assert draft.seconds(1, 2000) == pytest.approx(0.002 + 0.01)
        draft.learn_context(2000, {1: 0.003, 3: 0.005})
        draft.assume_context(target, 0.5)
        assert draft.seconds(1, 2000) == pytest.approx(0.003)

    def test_a_long_text_leaves_what_is_known_of_short_ones(self):
        """Its passes are mostly attention, here twice of what was measured."""
        times, rng = PassTimes({1: 0.02, 3: 0.022, 9: 0.03}), random.Random(7)
        times.learn_context(8000, {1: 0.06, 3: 0.142})
        for _ in range(500):
            n_rows = rng.choice((1, 1, 1, 4))
            times.observe(n_rows, 0.02 + 0.001 * (n_rows - 1) + 8000 * n_rows * 1e-5, 8000)
        assert times.seconds(1, 8000) == pytest.approx(0.1, rel=0.1)
        ratio = times.seconds(9) / times.seconds(1)
        assert ratio == pytest.approx(1.5, rel=0.15)
        for _ in range(60):
            times.observe(1, 0.02)
        assert times.seconds(9) == pytest.approx(0.03, rel=0.2)


class TestAcceptance:
    def test_before_any_test_there_is_the_prior(self):
        assert AcceptanceTable((2, 5)).estimate(3, 0.7) == pytest.approx(0.7)

    def test_classes_are_ranges(self):
        table = AcceptanceTable((2, 5))
        for _ in range(1000):
            table.record(2, accepted=True)
            table.record(5, accepted=False)
        assert table.estimate(4.9, 0.5) == pytest.approx(1.0, abs=0.02)
        assert table.estimate(99, 0.5) == pytest.approx(0.0, abs=0.02)
        assert table.estimate(1.9, 0.5) == 0.5

    @pytest.mark.parametrize("odds", [0.1, 0.5, 0.95])
    def test_the_estimate_comes_to_the_share_of_tests(self, odds):
        table, rng = AcceptanceTable(()), random.Random(2)
        estimates = []
        for _ in range(6000):
            table.record(0, accepted=rng.random() < odds)
            estimates.append(table.estimate(0, 0.5))
        assert sum(estimates[300:]) / len(estimates[300:]) == pytest.approx(odds, abs=0.02)

    def test_old_tests_fade(self):
        table = AcceptanceTable(())
        for _ in range(2000):
            table.record(0, accepted=True)
        for _ in range(300):
            table.record(0, accepted=False)
        assert table.estimate(0, 1.0) < 0.2


class TestTextFactor:
    def test_before_any_test_an_estimate_stands(self):
        assert TextFactor().adjust(0.7) == pytest.approx(0.7)

    @pytest.mark.parametrize(("odds", "low", "high"), [(1.0, 0.95, 1.0), (0.8, 0.7, 0.9), (0.2, 0.0, 0.4)])
    def test_after_a_few_tokens_it_is_that_of_the_text(self, odds, low, high):
        text, rng = TextFactor(), random.Random(3)
        for _ in range(40):
            text.record(0.8, accepted=rng.random() < odds)
        assert low <= text.adjust(0.8) <= high

    @given(st.lists(st.tuples(st.floats(0.0, 1.0), st.booleans()), max_size=60), st.floats(0.0, 1.0))
    def test_it_stays_a_probability(self, tests, estimate):
        text = TextFactor()
        for each, accepted in tests:
            text.record(each, accepted=accepted)
        assert 0.0 <= text.adjust(estimate) <= 1.0


class TestLedger:
    @given(st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(-3.0, 3.0)), max_size=200))
    def test_losses_stay_within_the_credit_the_gains_and_a_small_share(self, steps):
        """Whatever happens, when no draft may cost more than its stake."""
        ledger = Ledger(plain_token_s=0.1)
        gained = spent_plainly = 0.0
        for plain_s, wish in steps:
            if -wish <= ledger.stake_s():
                ledger.settle(wish)
                gained += wish
            ledger.earn(plain_s)
            spent_plainly += plain_s
            assert gained >= -(0.6 + 0.005 * spent_plainly) - 1e-9

    def test_a_reply_begins_with_little_of_what_others_have_gained(self):
        ledger = Ledger(plain_token_s=1.0)
        ledger.begin()
        assert ledger.balance_s == pytest.approx(6.0)
        ledger.settle(20.0)
        ledger.begin()
        assert ledger.balance_s == pytest.approx(6.0)

    def test_half_of_it_may_be_staked_after_reading(self):
        ledger = Ledger(plain_token_s=1.0)
        ledger.settle(4.0)
        assert [ledger.stake_s(reading_s) for reading_s in (0.0, 4.0, 8.0, 12.0)] == pytest.approx(
            [5.0, 5.0, 2.0, -2.0]
        )

    def test_it_saves_up_a_limited_sum(self):
        ledger = Ledger(plain_token_s=1.0)
        ledger.settle(5.0)
        assert ledger.balance_s == pytest.approx(11.0)
        ledger.settle(100.0)
        assert ledger.balance_s == pytest.approx(24.0)


class TestProbeFund:
    @given(st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 3.0)), max_size=200))
    def test_failures_cost_no_more_than_the_credit_and_a_small_share(self, steps):
        fund = ProbeFund(plain_token_s=0.1)
        lost = spent_plainly = 0.0
        for plain_s, cost in steps:
            if fund.may_spend(cost):
                fund.spend(cost)
                lost += cost
            fund.earn(plain_s)
            spent_plainly += plain_s
            assert lost <= 0.4 + 0.01 * spent_plainly + 1e-9

    def test_failed_probes_become_rarer_until_a_draft_gains(self):
        fund = ProbeFund(plain_token_s=1.0)

        def steps_until_a_probe() -> int:
            for n in range(2000):
                if fund.may_spend(0.01):
                    return n
                fund.earn(1.0)
            raise AssertionError

        waits = []
        for _ in range(8):
            waits.append(steps_until_a_probe())
            fund.spend(0.01)
        assert waits == [0, 8, 16, 32, 64, 128, 256, 256]
        fund.note_gain()
        assert steps_until_a_probe() == 0
        fund.spend(0.01)
        assert steps_until_a_probe() == 8

    def test_a_probe_that_costs_more_than_there_is_waits_for_it_or_is_granted(self):
        fund = ProbeFund(plain_token_s=1.0)
        assert fund.may_spend(4.0)
        fund.spend(4.0)
        assert not fund.may_spend(0.5)
        for _ in range(49):
            fund.earn(1.0)
        assert not fund.may_spend(0.5)
        fund.earn(2.0)
        assert fund.may_spend(0.5)
        fund.spend(0.5)
        fund.grant(0.5)
        assert fund.may_spend(0.5)


def test_between_copies_counts_stretches_of_other_text():
    between = BetweenCopies()
    at_first = between.n_tokens
    for _ in range(50):
        between.record(6, is_copy=False)
        between.record(4, is_copy=False)
        for _ in range(3):
            between.record(30, is_copy=True)
    assert between.n_tokens == pytest.approx(10, rel=0.1)
    assert at_first > 30
    without = BetweenCopies()
    for _ in range(20):
        without.record(5, is_copy=False)
    assert without.n_tokens > 100


def test_the_rate_is_that_of_the_last_steps():
    rate = Rate()
    assert rate.tokens_per_second is None
    for _ in range(200):
        rate.add(1, 0.1)
    assert rate.tokens_per_second == pytest.approx(10)
    for _ in range(60):
        rate.add(3, 0.1)
    assert 25 < rate.tokens_per_second < 30


def test_greedy_and_sampled_replies_are_learned_apart():
    evidence = Evidence(PassTimes({1: 0.02}))
    for _ in range(50):
        evidence.regime(greedy=True).model.record(1, 0.9, accepted=False)
    assert evidence.regime(greedy=True).model.at_place(1) < 0.3
    assert evidence.regime(greedy=False).model.at_place(1) > 0.7


def test_places_learn_from_each_other_and_then_for_themselves():
    model = Evidence(PassTimes({1: 0.02})).regime(greedy=True).model
    for _ in range(300):
        model.record(1, 0.9, accepted=True)
        model.record(2, 0.9, accepted=False)
    assert model.at_place(1) > 0.9
    assert model.at_place(2) < 0.1
    assert 0.4 < model.at_place(12) < 0.6
    assert model.once_drafted(0.9) == pytest.approx(0.5, abs=0.05)
    assert model.once_drafted(0.1) == model.once_drafted(0.999), "never seen: as all of them"


def test_a_place_where_two_early_rejections_came_is_tested_again():
    """Drafts would end before it, and nothing would ever correct the estimate."""
    model = Evidence(PassTimes({1: 0.02})).regime(greedy=True).model
    for _ in range(30):
        for place in range(1, 6):
            model.record(place, 0.9, accepted=True)
    for _ in range(2):
        model.record(6, 0.9, accepted=False)
    assert model.at_place(6) > 0.85


def test_what_is_expected_before_the_first_test():
    evidence = Evidence(PassTimes({1: 0.02}), PassTimes({1: 0.01}), Agreement(greedy=0.9, sampled=0.4))
    assert evidence.regime(greedy=True).model.at_place(3) == pytest.approx(0.9)
    assert evidence.regime(greedy=False).model.once_drafted(0.5) == pytest.approx(0.4)
