"""The numbers beside the chat fit every window, whole or not at all, and say which reply they are of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.engine.events import Step
from localspec.engine.requests import Mode
from localspec.speculative.drafter import DraftSource
from localspec.tui.panel import BAR_HEIGHT, bar_lines, column_lines
from localspec.tui.readings import Readings
from tests.tui.scripted_engine import GIB, LOADED, MEMORY, metrics

BUSY = metrics(
    n_prompt_tokens=100_000,
    n_tokens=20_000,
    n_steps=5000,
    n_plain_steps=650,
    n_drafted=25_000,
    n_accepted=15_000,
    n_lookup_steps=1250,
    n_lookup_drafted=9000,
    n_lookup_accepted=6390,
    ttft_s=12.3,
)
DRAFTED = Step((), (), 5, 5, 0.1, DraftSource.MODEL)
COPIED = Step((), (), 20, 20, 0.1, DraftSource.LOOKUP)
PLAIN = Step((), (), 0, 0, 0.1)


def readings(mode: Mode = Mode.AUTO, *, steps: int = 300, step: Step = DRAFTED, **changes: Any) -> Readings:
    """A reply that runs."""
    values = Readings(ceiling=16, next_mode=mode, loaded=LOADED, memory=MEMORY)
    values.begin(mode)
    values.rates.extend([40.0, 50.0])
    values.steps.extend([step] * steps)
    return replace(values, metrics=BUSY, **changes)


def bar(shown: Readings, width: int = 76) -> list[str]:
    return [line.plain.rstrip() for line in bar_lines(shown, width)]


def column(shown: Readings, width: int = 28, height: int = 40) -> list[str]:
    return [line.plain.rstrip() for line in column_lines(shown, width, height)]


def test_the_bar_at_eighty_columns() -> None:
    assert bar(readings()) == [
        "   52.3 tokens/s              ▇█   first token  12.3 s   context  120k/8,192",
        " 60.0 % accepted ███████████████   per step       4.00   memory      812 MiB",
        "   auto mode                       draft length   5.00",
        "draft model 62 % of steps, 54 % accepted   copied 25 %, 71 %   none 13 %",
    ]


def test_the_column() -> None:
    assert column(readings()) == [
        "SmolLM2-135M-Instruct F32",
        "+ SmolLM2-135M-Instruct Q4_1",
        "",
        "this reply              auto",
        "tokens/s                52.3",
        "                          ▇█",
        "first token           12.3 s",
        "reply tokens           20.0k",
        "",
        "accepted              60.0 %",
        "████████████████████████████",
        "tokens per step         4.00",
        "draft length            5.00",
        "",
        "drafts        steps accepted",
        "draft model    62 %     54 %",
        "copied         25 %     71 %",
        "none           13 %",
        "",
        "context           120k/8,192",
        "memory               812 MiB",
    ]


def test_before_the_first_reply_there_are_no_numbers() -> None:
    fresh = Readings(ceiling=16, next_mode=Mode.AUTO)
    lines = column(fresh)
    assert "\n".join(lines).count("–") == 13
    assert lines[0].split() == ["next", "reply", "auto"]
    assert bar(fresh)[3] == ""
    fresh.next_mode = Mode.LOOKUP
    lines = column(fresh)
    assert lines[0].split() == ["next", "reply", "lookup"]
    assert not any(line.startswith("draft model") for line in lines)
    assert "\n".join(lines).count("next reply") == 1


def test_the_numbers_are_those_of_one_reply_and_named_so() -> None:
    shown = readings(next_mode=Mode.LOOKUP)
    assert column(shown)[3].split() == ["this", "reply", "auto"]
    assert column(shown)[-1].split() == ["next", "reply", "lookup"]
    assert bar(shown)[2].startswith("   auto this reply, lookup next ")

    shown.is_running = False
    assert column(shown)[3].split() == ["last", "reply", "auto"]
    assert column(shown)[-1].split() == ["next", "reply", "lookup"]
    assert bar(shown)[2].startswith("   auto last reply, lookup next ")

    shown.begin(Mode.LOOKUP)
    assert column(shown)[3].split() == ["this", "reply", "lookup"]
    assert not any(line.startswith("next") for line in column(shown))
    assert (shown.rate, shown.accepted, shown.draft_length, len(shown.steps), len(shown.rates)) == ("–", "–", "–", 0, 0)


def test_a_mode_that_the_engine_changed_is_not_a_change_for_the_next_reply() -> None:
    """Without a draft model auto runs as lookup, each time anew."""
    shown = readings(running_mode=Mode.LOOKUP)
    assert column(shown)[3].split() == ["this", "reply", "lookup"]
    assert not any(line.startswith(("next", "draft model")) for line in column(shown))
    assert bar(shown)[2].split()[:2] == ["lookup", "mode"]
    assert bar(shown)[3] == "copied 25 % of steps, 71 % accepted   none 13 %"


@pytest.mark.parametrize(
    ("step", "name"), [(DRAFTED, "draft model"), (COPIED, "copied"), (PLAIN, "none")], ids=["model", "copy", "plain"]
)
def test_who_drafts_now_stands_out_while_the_reply_runs(step: Step, name: str) -> None:
    def bold_names(shown: Readings) -> set[str]:
        lines = [*column_lines(shown, 28, 40), *bar_lines(shown, 76)]
        bold = {line.plain[span.start : span.end] for line in lines for span in line.spans if span.style == "bold"}
        return bold & {"draft model", "copied", "none"}

    shown = readings(steps=5, step=step)
    assert bold_names(shown) == {name}
    shown.is_running = False
    assert bold_names(shown) == set()


def test_a_rest_says_why_nothing_is_drafted() -> None:
    shown = readings(step=PLAIN)
    lines = column(shown)
    assert lines[12] == "resting: drafts do not pay here"  # in place of the length that there is none of
    assert len(lines) == len(column(readings()))
    assert bar(shown)[3] == "resting: drafts do not pay here   draft model 62 % of steps, 54 % accepted"
    assert bar(shown, 50)[3] == "resting: drafts do not pay here"


def test_plain_mode_shows_no_drafters() -> None:
    shown = readings(Mode.PLAIN, step=PLAIN)
    assert column(shown)[12:14] == ["draft length               –", ""]
    assert bar(shown)[3] == ""


def test_entries_that_do_not_fit_are_left_out_whole() -> None:
    assert bar(readings(), 56)[3] == "draft model 62 %, 54 %   copied 25 %, 71 %   none 13 %"
    assert bar(readings(), 50)[3] == "draft model 62 %, 54 %   copied 25 %, 71 %"
    assert bar(readings(), 36)[3] == "draft model 62 %, 54 %"


def test_the_memory_of_a_card_is_shown_where_there_is_one() -> None:
    with_card = readings(memory=replace(MEMORY, gpu_bytes=12 * GIB))
    assert column(with_card)[-1].split() == ["GPU", "12.0", "GiB"]
    assert bar(with_card)[2].endswith("GPU        12.0 GiB")


def test_the_rate_is_that_of_now_and_then_the_average() -> None:
    assert readings().rate == "52.3"
    assert readings(is_running=False).rate == "50.0"


def test_a_low_window_has_no_room_for_who_drafts() -> None:
    lines = bar_lines(readings(), 76, 3)
    assert [line.plain for line in lines] == [line.plain for line in bar_lines(readings(), 76)[:3]]


@pytest.mark.parametrize("height", range(17, 25))
def test_a_low_column_loses_names_and_gaps_but_no_number(height: int) -> None:
    all_rows = readings(next_mode=Mode.PLAIN, memory=replace(MEMORY, gpu_bytes=GIB))
    lines = column(all_rows, height=height)
    assert len(lines) <= height
    assert sum(bool(line) for line in lines) == (19 if height >= 24 else 17)
    assert (LOADED.target_name in lines) == (height >= 24)
    assert ("" in lines) == (height >= 21)


@given(
    width=st.integers(20, 200),
    n_prompt_tokens=st.integers(0, 2_000_000),
    ttft_s=st.floats(0, 9999),
    rate=st.floats(0, 99_999),
    gpu_bytes=st.none() | st.integers(0, 200 * GIB),
    mode=st.sampled_from(Mode),
    next_mode=st.sampled_from(Mode),
    is_running=st.booleans(),
    step=st.sampled_from([DRAFTED, COPIED, PLAIN]),
)
def test_no_line_is_wider_than_the_window_and_no_number_is_cut(
    width: int,
    n_prompt_tokens: int,
    ttft_s: float,
    rate: float,
    gpu_bytes: int | None,
    mode: Mode,
    next_mode: Mode,
    is_running: bool,
    step: Step,
) -> None:
    shown = readings(
        mode,
        step=step,
        memory=replace(MEMORY, gpu_bytes=gpu_bytes),
        next_mode=next_mode,
        is_running=is_running,
    )
    shown.metrics = replace(BUSY, n_prompt_tokens=n_prompt_tokens, ttft_s=ttft_s, recent_tokens_per_second=rate)
    lines = bar_lines(shown, width)
    assert len(lines) == BAR_HEIGHT
    assert max(line.cell_length for line in lines) <= max(width, 31)
    text = "\n".join(line.plain for line in lines)
    assert shown.rate in text
    assert shown.accepted in text
    if width >= 32:
        lines = column_lines(shown, width, 40)
        assert max(line.cell_length for line in lines) <= width
        text = "\n".join(line.plain for line in lines)
        for value in (shown.rate, shown.accepted, shown.per_step, shown.first_token, shown.context, shown.reply):
            assert value in text
        assert shown.rest_note in text
        assert shown.draft_length in text or shown.rest_note
