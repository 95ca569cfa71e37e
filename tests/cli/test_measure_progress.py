"""What `localspec pair --measure` tells while it runs."""

from __future__ import annotations

from typing import Any

import pytest

from localspec.cli.measure_progress import MeasureProgress
from localspec.engine.events import Loading


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


RUN: Any = None  # which reply it was does not matter


def test_elsewhere_than_on_a_terminal_there_is_a_line_for_each_draft(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with MeasureProgress(3, 4, clock) as progress:
        progress.begin(1, "first\x1b[2J.gguf")
        progress.on_load(Loading("the target", 0.5))
        for _ in range(4):
            clock.now_s += 10
            progress.on_run(RUN)
        progress.begin(2, "second.gguf")
        progress.on_run(RUN)
        progress.tell("second.gguf: it failed.")
        progress.begin(3, "third.gguf")
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "Measuring first\N{SYMBOL FOR ESCAPE}[2J.gguf (1 of 3)",
        "Measuring second.gguf (2 of 3), about 1:20 min left",
        "second.gguf: it failed.",
        "Measuring third.gguf (3 of 3), about 32 s left",
    ]


def test_the_time_left_is_that_of_all_drafts_and_ends_at_nothing() -> None:
    clock = Clock()
    progress = MeasureProgress(2, 5, clock)
    progress.begin(1, "a")
    assert progress.seconds_left is None
    lefts = []
    for number in (1, 2):
        progress.begin(number, "a")
        for _ in range(5):
            clock.now_s += 3
            progress.on_run(RUN)
            lefts.append(progress.seconds_left)
    assert lefts == [27, 24, 21, 18, 15, 12, 9, 6, 3, 0]


def test_on_a_terminal_it_is_one_line_that_goes_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import sys

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "100")
    clock = Clock()
    with MeasureProgress(2, 2, clock) as progress:
        progress.begin(1, "first.gguf")
        clock.now_s += 60
        progress.on_run(RUN)
        progress._progress.refresh()
        assert "first.gguf (1 of 2)" in capsys.readouterr().err
        progress.tell("first.gguf: [bold]it failed.")
        progress.begin(2, "second.gguf")
    said = capsys.readouterr().err
    assert "first.gguf: [bold]it failed." in said
    assert "Measuring" not in said
