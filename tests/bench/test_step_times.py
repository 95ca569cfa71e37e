"""Where the time goes: five parts that add up, without the first step."""

from __future__ import annotations

import pytest

from localspec.bench.step_times import StepTimes
from tests.bench.replies import StepOf, snapshots

PROMPT = StepOf(3.0)  # a first step that carried the prompt


def times(*steps: StepOf) -> StepTimes:
    return StepTimes.between(*snapshots(steps, ttft_s=3.0))


def test_the_first_step_is_left_out():
    measured = times(PROMPT, StepOf(0.10, 4, 2), StepOf(0.05))
    assert (measured.n_steps, measured.n_tokens, measured.n_raw_tokens) == (2, 3 + 1, 5 + 1)
    assert measured.step_s == pytest.approx(0.15)
    assert measured.elapsed_s == pytest.approx(0.15)


def test_the_parts_add_up_to_the_steps():
    measured = times(PROMPT, StepOf(0.10, 4, 2), StepOf(0.05))
    assert dict(measured.parts()) == pytest.approx(
        {
            "draft passes": 0.2 * 0.10,
            "draft sampling": 0.05 * 0.10,
            "target pass": 0.7 * 0.15,
            "judging": 0.02 * 0.15,
            "the rest": 0.03 * 0.10 + 0.28 * 0.05,
        }
    )
    assert sum(seconds for _, seconds in measured.parts()) == pytest.approx(0.15)


def test_shares_and_rates():
    measured = times(PROMPT, StepOf(0.10, 4, 2), StepOf(0.10, 4, 4))
    assert measured.draft_share == pytest.approx(0.25)
    assert measured.verify_share == pytest.approx(0.7)
    assert measured.committed_per_second == pytest.approx(8 / 0.2)
    assert measured.raw_per_second == pytest.approx(10 / 0.2)


def test_a_reply_of_one_step_has_none():
    measured = times(PROMPT)
    assert measured == StepTimes()
    assert measured.draft_share is measured.verify_share is None
    assert measured.committed_per_second is measured.raw_per_second is None


def test_totals():
    one, other = times(PROMPT, StepOf(0.10, 4, 2)), times(PROMPT, StepOf(0.05), StepOf(0.05))
    total = StepTimes.total([one, other])
    assert total.n_steps == 3
    assert total.step_s == pytest.approx(0.20)
    assert total.draft_share == pytest.approx(0.25 * 0.10 / 0.20)
    assert StepTimes.total([]) == StepTimes()
