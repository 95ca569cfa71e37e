"""What is told of cohorts: changes that last, once, and not too often."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.engine.requests import Mode
from localspec.server.acceptance_watch import AcceptanceWatch, Change, Notice
from localspec.server.cohorts import AcceptanceWindow, Cohort

COHORT = Cohort("/v1/chat/completions", "0", Mode.AUTO)
QUIET_S = 60.0


class Drafts:
    """Judges drafts of five tokens, a second after the other."""

    def __init__(self, *, threshold: float = 0.55, window: int = 50) -> None:
        self.watch = AcceptanceWatch(threshold, n_steps=16, quiet_s=QUIET_S)
        self.window = AcceptanceWindow(window)
        self.now = 1000.0
        self.notices: list[Notice] = []

    def judge(self, *accepted: int, every_s: float = 1.0) -> list[Change]:
        before = len(self.notices)
        for n_accepted in accepted:
            self.now += every_s
            self.window.add(5, n_accepted)
            self._note(self.watch.acceptance(COHORT, self.window, self.now))
        return [notice.change for notice in self.notices[before:]]

    def step(self, *has_draft: bool, cohort: Cohort = COHORT, every_s: float = 1.0) -> list[Change]:
        before = len(self.notices)
        for each in has_draft:
            self.now += every_s
            self._note(self.watch.drafting(cohort, each, self.now))
        return [notice.change for notice in self.notices[before:]]

    def _note(self, notice: Notice | None) -> None:
        if notice is not None:
            self.notices.append(notice)


def test_low_acceptance_is_told_once_and_so_is_its_recovery() -> None:
    drafts = Drafts()

    assert drafts.judge(*[1] * 9) == []  # the window is not full
    assert drafts.judge(*[1] * 200) == [Change.LOW]
    assert drafts.judge(*[5] * 200) == [Change.RECOVERED]
    assert drafts.notices[0].text == (
        "Acceptance is low: 20% of the last 50 drafted tokens were accepted "
        "(/v1/chat/completions, temperature 0, mode auto); the threshold is 55%."
    )


def test_a_rate_at_the_threshold_does_not_go_to_and_fro() -> None:
    drafts = Drafts(window=100)
    drafts.judge(*[2] * 20)

    # 11 of 20 tokens and then 12 of 20, over and over, for an hour
    changes = drafts.judge(*[2, 3, 3, 3] * 900)

    assert changes in ([], [Change.RECOVERED])


def test_what_changes_within_the_pause_is_told_after_it_if_it_still_holds() -> None:
    drafts = Drafts()
    assert drafts.judge(*[0] * 10, every_s=0.1) == [Change.LOW]

    assert drafts.judge(*[5] * 20, every_s=0.1) == []
    assert drafts.judge(5, every_s=QUIET_S) == [Change.RECOVERED]


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0.01, 30)), max_size=300))
def test_notices_alternate_and_keep_their_distance(judged: list[tuple[int, float]]) -> None:
    drafts, told_at = Drafts(window=20), []
    for n_accepted, wait in judged:
        if drafts.judge(n_accepted, every_s=wait):
            told_at.append(drafts.now)

    changes = [notice.change for notice in drafts.notices]
    assert changes == [Change.LOW, Change.RECOVERED] * (len(changes) // 2) + [Change.LOW] * (len(changes) % 2)
    assert all(later - earlier >= QUIET_S for earlier, later in itertools.pairwise(told_at))


def test_threshold_zero_never_tells() -> None:
    assert Drafts(threshold=0.0).judge(*[0] * 500) == []


def test_drafting_that_stops_and_begins_again_is_told() -> None:
    drafts = Drafts()

    assert drafts.step(*[True] * 100) == []
    assert drafts.step(*[False] * 100) == [Change.SWITCHED_OFF]
    assert drafts.watch.is_off(COHORT)
    assert drafts.step(*[True] * 100) == [Change.SWITCHED_ON]
    assert not drafts.watch.is_off(COHORT)


def test_a_probe_now_and_then_is_not_drafting_again() -> None:
    drafts = Drafts()
    drafts.step(*[False] * 16)

    assert drafts.step(*([True, True] + [False] * 60) * 20) == []


def test_a_cohort_that_never_drafts_is_told_too() -> None:
    assert Drafts().step(*[False] * 15) == []
    assert Drafts().step(*[False] * 16) == [Change.SWITCHED_OFF]


@pytest.mark.parametrize("mode", [Mode.PLAIN, Mode.LOOKUP])
def test_steps_without_a_draft_say_nothing_where_no_draft_model_could_draft(mode: Mode) -> None:
    cohort = Cohort("/infill", "0", mode)
    drafts = Drafts()

    assert drafts.step(*[False] * 100, cohort=cohort) == []
    assert not drafts.watch.is_off(cohort)


def test_cohorts_are_told_apart() -> None:
    drafts, other = Drafts(), Cohort("/infill", "0", Mode.DRAFT)

    assert drafts.step(*[False] * 16) == [Change.SWITCHED_OFF]
    assert drafts.step(*[False] * 16, cohort=other, every_s=0.01) == [Change.SWITCHED_OFF]
    assert [notice.cohort for notice in drafts.notices] == [COHORT, other]
