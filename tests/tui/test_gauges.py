"""Histories of one line: the height carries the value."""

from __future__ import annotations

from localspec.engine.events import Step
from localspec.speculative.drafter import DraftSource
from localspec.tui.gauges import acceptance_strip, progress_bar, sparkline


def step(n_accepted: int, n_draft: int = 5, source: DraftSource = DraftSource.MODEL) -> Step:
    return Step((), (), n_draft, n_accepted, 0.1, source if n_draft else None)


def test_a_sparkline_starts_at_zero() -> None:
    assert sparkline([0.0, 50.0, 100.0], 3) == "▁▅█"
    assert sparkline([98.0, 100.0, 99.0], 3) == "███"  # noise is not stretched over the whole height


def test_a_sparkline_shows_the_newest_on_the_right() -> None:
    assert sparkline([1.0, 2.0], 4) == "  ▅█"
    assert sparkline([9.0, 9.0, 9.0, 0.0], 2) == "█▁"
    assert sparkline([], 3) == "   "
    assert sparkline([1.0], 0) == ""
    assert sparkline([0.0, 0.0], 2) == "▁▁"


def test_the_strip_shows_how_many_drafts_each_step_accepted() -> None:
    strip = acceptance_strip([step(0), step(1), step(3), step(5)], 6)
    assert strip.plain == "  ▁▂▅█"


def test_the_strip_is_as_high_as_the_longest_draft_that_it_shows() -> None:
    steps = [step(16, 16), step(2, 2), step(4, 4)]
    assert acceptance_strip(steps, 3).plain == "█▂▃"
    assert acceptance_strip(steps, 2).plain == "▅█"
    assert acceptance_strip([step(32, 32), step(1, 1)], 2).plain == "█▂"  # a whole draft is never like none


def test_one_of_many_differs_from_none_without_colour() -> None:
    assert acceptance_strip([step(0, 64), step(1, 64)], 2).plain == "▁▂"


def test_a_step_without_a_draft_is_a_dot() -> None:
    assert acceptance_strip([step(0, 0)], 1).plain == "·"


def test_a_whole_draft_stands_out_in_colour_whatever_its_length() -> None:
    steps = [step(2, 2), step(5, 5, DraftSource.LOOKUP), step(2, 5, DraftSource.LOOKUP), step(0, 5)]
    assert [span.style for span in acceptance_strip(steps, 4).spans] == [
        "$accent",
        "$secondary",
        "$foreground",
        "$warning",
    ]


def test_a_strip_has_the_width_that_it_was_given() -> None:
    steps = [step(5)] * 10
    assert [acceptance_strip(steps, width).cell_length for width in (0, 4, 30)] == [0, 4, 30]


def test_a_progress_bar_shows_its_fraction_without_colour() -> None:
    assert progress_bar(0.25, 8).plain == "━━──────"
    assert progress_bar(-1.0, 4).plain == "────"
    assert progress_bar(7.0, 4).plain == "━━━━"
