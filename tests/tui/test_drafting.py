"""Who drafted, what it brought, and whether speculation rests: from the numbers and steps of one reply."""

from __future__ import annotations

import pytest

from localspec.engine.events import Step
from localspec.engine.requests import Mode
from localspec.speculative.drafter import DraftSource
from localspec.tui.drafting import Contribution, contributions, recent_draft_length, rest_note
from tests.tui.scripted_engine import metrics

MIXED = metrics(
    n_steps=40,
    n_plain_steps=4,
    n_drafted=200,
    n_accepted=130,
    n_lookup_steps=16,
    n_lookup_drafted=120,
    n_lookup_accepted=90,
)


def draft(n_draft: int, n_accepted: int, source: DraftSource = DraftSource.MODEL) -> Step:
    return Step((), (), n_draft, n_accepted, 0.1, source)


PLAIN = Step((), (), 0, 0, 0.1)


def test_steps_and_acceptance_of_each_source() -> None:
    assert contributions(Mode.AUTO, MIXED) == [
        Contribution(DraftSource.MODEL, share=20 / 40, acceptance=40 / 80),
        Contribution(DraftSource.LOOKUP, share=16 / 40, acceptance=90 / 120),
        Contribution(None, share=4 / 40, acceptance=None),
    ]


@pytest.mark.parametrize(
    ("mode", "sources"),
    [
        (Mode.AUTO, [DraftSource.MODEL, DraftSource.LOOKUP, None]),
        (Mode.DRAFT, [DraftSource.MODEL, None]),
        (Mode.LOOKUP, [DraftSource.LOOKUP, None]),
        (Mode.PLAIN, []),
    ],
)
@pytest.mark.parametrize("numbers", [None, metrics(), MIXED], ids=["none", "no step", "some"])
def test_a_mode_has_its_sources_from_the_start(mode: Mode, sources: list[object], numbers: object) -> None:
    assert [each.source for each in contributions(mode, numbers)] == sources  # type: ignore[arg-type]


def test_a_source_that_never_drafted_has_no_acceptance() -> None:
    only_model = metrics(n_steps=4, n_drafted=20, n_accepted=10)
    model, copied, none = contributions(Mode.AUTO, only_model)
    assert (model.share, model.acceptance) == (1.0, 0.5)
    assert (copied.share, copied.acceptance) == (0.0, None)
    assert none.share == 0.0


def test_the_draft_length_is_that_of_late_and_of_steps_with_a_draft() -> None:
    assert recent_draft_length([]) is None
    assert recent_draft_length([PLAIN] * 40) is None
    assert recent_draft_length([draft(4, 0), PLAIN, draft(7, 7, DraftSource.LOOKUP)]) == 5.5
    assert recent_draft_length([draft(16, 16)] * 100 + [draft(2, 1)] * 32) == 2.0


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.DRAFT])
def test_steps_without_a_draft_are_a_rest(mode: Mode) -> None:
    assert rest_note(mode, 16, [PLAIN] * 8) == "resting: drafts do not pay here"
    assert rest_note(mode, 16, [draft(5, 5)] * 200 + [PLAIN] * 32) == "resting: drafts do not pay here"
    assert rest_note(mode, 16, [draft(5, 5)] * 200 + [PLAIN] * 20) == ""  # of late there were drafts
    assert rest_note(mode, 16, [PLAIN] * 7) == ""
    assert rest_note(mode, 16, []) == ""


def test_in_lookup_mode_there_is_nothing_to_copy() -> None:
    assert rest_note(Mode.LOOKUP, 16, [PLAIN] * 20) == "resting: nothing to copy here"


def test_a_probe_does_not_end_a_rest_but_what_pays_does() -> None:
    rest = [PLAIN] * 31
    assert rest_note(Mode.AUTO, 16, [*rest, draft(3, 0)])
    assert rest_note(Mode.AUTO, 16, [*rest, draft(3, 2)])
    assert rest_note(Mode.AUTO, 16, [*rest, draft(24, 20, DraftSource.LOOKUP)]) == ""
    assert rest_note(Mode.AUTO, 16, [*rest[:29], draft(1, 0), draft(1, 0), draft(1, 0)]) == ""


def test_plain_mode_needs_no_reason_and_a_ceiling_of_zero_is_one() -> None:
    assert rest_note(Mode.PLAIN, 16, [PLAIN] * 32) == ""
    assert rest_note(Mode.AUTO, 0, [PLAIN] * 32) == "off: at most 0 are drafted"
    assert rest_note(Mode.AUTO, None, [PLAIN] * 32) == "resting: drafts do not pay here"  # not said is not 0
