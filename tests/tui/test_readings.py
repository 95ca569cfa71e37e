"""The numbers beside the chat fit every window, whole or not at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.engine.events import Step
from localspec.engine.requests import Mode
from localspec.tui.readings import BAR_HEIGHT, Readings, bar_lines, column_lines
from tests.tui.scripted_engine import GIB, LOADED, MEMORY, metrics

BUSY = metrics(n_prompt_tokens=100_000, n_tokens=20_000, n_steps=5000, n_drafted=25_000, n_accepted=15_000, ttft_s=12.3)


def readings(**changes: Any) -> Readings:
    values = Readings(mode=Mode.DRAFT, ceiling=5, next_mode=Mode.DRAFT, loaded=LOADED, memory=MEMORY)
    values.rates.extend([40.0, 50.0])
    values.steps.extend([Step((), (), 5, 5, 0.1)] * 300)
    return replace(values, **changes)


def test_the_bar_at_eighty_columns() -> None:
    lines = [line.plain.rstrip() for line in bar_lines(readings(metrics=BUSY, is_running=True), 76)]
    assert lines == [
        "   52.3 tokens/s              ▇█   first token  12.3 s   context  120k/8,192",
        " 60.0 % accepted ███████████████   per step       4.00   memory      812 MiB",
        "  draft mode                       reply         20.0k",
    ]


def test_the_column() -> None:
    lines = [line.plain for line in column_lines(readings(metrics=BUSY, is_running=True), 28, 40)]
    assert lines == [
        "SmolLM2-135M-Instruct F32",
        "+ SmolLM2-135M-Instruct Q4_1",
        "",
        "tokens/s                52.3",
        "                          ▇█",
        "first token           12.3 s",
        "reply tokens           20.0k",
        "",
        "accepted              60.0 %",
        "████████████████████████████",
        "tokens per step         4.00",
        "mode                   draft",
        "",
        "context           120k/8,192",
        "memory               812 MiB",
    ]


def test_before_the_first_reply_there_are_no_numbers() -> None:
    text = "\n".join(line.plain for line in column_lines(readings(loaded=None, memory=None), 28, 40))
    assert text.count("–") == 7


def test_a_mode_that_comes_next_is_named() -> None:
    switched = readings(next_mode=Mode.LOOKUP)
    assert any(line.plain.split() == ["next", "reply", "lookup"] for line in column_lines(switched, 28, 40))
    assert bar_lines(switched, 76)[2].plain.split()[:4] == ["draft", "mode", "next", "lookup"]


def test_the_memory_of_a_card_is_shown_where_there_is_one() -> None:
    with_card = readings(memory=replace(MEMORY, gpu_bytes=12 * GIB))
    assert any(line.plain.split() == ["GPU", "12.0", "GiB"] for line in column_lines(with_card, 28, 40))
    assert bar_lines(with_card, 76)[2].plain.endswith("GPU        12.0 GiB")


def test_the_rate_is_that_of_now_and_then_the_average() -> None:
    assert readings(metrics=BUSY, is_running=True).rate == "52.3"
    assert readings(metrics=BUSY, is_running=False).rate == "50.0"


@pytest.mark.parametrize("height", range(12, 20))
def test_a_low_column_loses_names_and_gaps_but_no_number(height: int) -> None:
    all_rows = readings(metrics=BUSY, next_mode=Mode.PLAIN, memory=replace(MEMORY, gpu_bytes=GIB))
    lines = column_lines(all_rows, 28, height)
    assert len(lines) <= max(height, 12)
    assert "GPU" in lines[-1].plain


@given(
    width=st.integers(20, 200),
    n_prompt_tokens=st.integers(0, 2_000_000),
    ttft_s=st.floats(0, 9999),
    rate=st.floats(0, 99_999),
    gpu_bytes=st.none() | st.integers(0, 200 * GIB),
    next_mode=st.sampled_from(Mode),
)
def test_no_line_is_wider_than_the_window_and_no_number_is_cut(
    width: int, n_prompt_tokens: int, ttft_s: float, rate: float, gpu_bytes: int | None, next_mode: Mode
) -> None:
    shown = readings(
        metrics=replace(BUSY, n_prompt_tokens=n_prompt_tokens, ttft_s=ttft_s, recent_tokens_per_second=rate),
        is_running=True,
        memory=replace(MEMORY, gpu_bytes=gpu_bytes),
        next_mode=next_mode,
    )
    bar = bar_lines(shown, width)
    assert len(bar) == BAR_HEIGHT
    assert max(line.cell_length for line in bar) <= max(width, 28)
    text = "\n".join(line.plain for line in bar)
    assert shown.rate in text
    assert shown.accepted in text
    if width >= 28:
        column = column_lines(shown, width, 40)
        assert max(line.cell_length for line in column) <= width
        text = "\n".join(line.plain for line in column)
        for value in (shown.rate, shown.accepted, shown.per_step, shown.first_token, shown.context, shown.reply):
            assert value in text
