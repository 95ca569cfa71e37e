"""The last minutes: a fixed number of intervals, and a speed that nothing before a pause belongs to."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.engine.events import Step
from localspec.server.history import History, RecentSpeed
from localspec.speculative.drafter import DraftSource

pauses = st.floats(0, 40, allow_nan=False)


def step(n_tokens: int, n_draft: int = 0, source: DraftSource | None = None) -> Step:
    return Step(tuple(range(n_tokens)), (), n_draft, n_draft // 2, 0.1, source)


@given(st.lists(st.tuples(pauses, st.integers(1, 9), st.integers(0, 4)), max_size=40), pauses)
def test_intervals_hold_what_happened_in_them(events: list[tuple[float, int, int]], pause: float) -> None:
    history, now, at = History(10.0, 6), 1000.0, []
    for wait, n_tokens, n_draft in events:
        now += wait
        history.add(step(n_tokens, n_draft, DraftSource.MODEL if n_draft else None), now)
        at.append((now, n_tokens, n_draft))
    now += pause

    intervals = history.intervals(now)

    assert len(intervals) == 6
    last = math.floor(now / 10)
    for index, interval in enumerate(intervals):
        number = last - 5 + index
        inside = [each for each in at if math.floor(each[0] / 10) == number]
        assert interval.n_tokens == sum(n for _, n, _ in inside)
        assert interval.n_drafted == sum(n for _, _, n in inside)
        assert interval.n_model_steps + interval.n_plain_steps == len(inside)


def test_steps_are_told_apart_by_their_source() -> None:
    history = History(10.0, 2)
    for each in (
        step(1),
        step(3, 4, DraftSource.MODEL),
        step(5, 8, DraftSource.LOOKUP),
        step(2, 2, DraftSource.LOOKUP),
    ):
        history.add(each, 5.0)

    interval = history.intervals(5.0)[-1]

    assert (interval.n_plain_steps, interval.n_model_steps, interval.n_copy_steps) == (1, 1, 2)
    assert interval.n_accepted == 2 + 4 + 1


@given(st.integers(1, 20), st.floats(0.02, 0.5))
def test_speed_is_that_of_steady_steps(n_tokens: int, gap_s: float) -> None:
    speed, now = RecentSpeed(5.0), 100.0
    for _ in range(int(12 / gap_s)):
        now += gap_s
        speed.add(n_tokens, now)

    measured = speed.tokens_per_second(now)

    assert measured is not None
    assert measured == pytest.approx(n_tokens / gap_s, abs=n_tokens / 5.0 * 1.01)


def test_speed_counts_from_the_first_tokens_on() -> None:
    speed = RecentSpeed(5.0)
    speed.add(100, 10.0)  # took as long as the prompt did
    assert speed.tokens_per_second(10.1) is None
    speed.add(10, 10.5)
    speed.add(10, 11.0)

    assert speed.tokens_per_second(11.0) == pytest.approx(20.0)
    assert speed.tokens_per_second(30.0) is None

    speed.add(100, 40.0)
    speed.add(5, 41.0)
    assert speed.tokens_per_second(41.0) == pytest.approx(5.0)
