"""What is made of the runs of several contenders, cells and repetitions."""

from __future__ import annotations

import pytest

from localspec.bench.figures import Results, Scope
from localspec.bench.runner import Run
from localspec.bench.schedule import PLAIN, Contender
from localspec.engine.requests import Mode
from tests.bench.replies import AUTO, DRAFT, StepOf, cell, measured, plain_run, run, schedule

ONE, TWO = cell("one"), cell("two")
HOT = cell("one", 0.8)


def both(which, repetition: int, plain_s: float, auto_s: float) -> list[Run]:
    return [plain_run(which, repetition, plain_s), plain_run(which, repetition, auto_s, AUTO)]


def test_a_speedup_is_the_median_of_ratios_within_a_repetition():
    """The machine is ten times as slow in one repetition; the medians of the two contenders would say 0.2 and 10."""
    runs = [*both(ONE, 0, 0.1, 0.05), *both(ONE, 1, 1.0, 0.5), *both(ONE, 2, 0.2, 0.5)]
    auto = Results(measured(schedule([PLAIN, AUTO], [ONE], 3), runs)).of_cell(AUTO, ONE)
    assert auto.speedup is not None
    assert (auto.speedup.middle, auto.speedup.low, auto.speedup.high) == pytest.approx((2.0, 0.4, 2.0))
    assert auto.speed is not None
    assert (auto.speed.middle, auto.speed.low, auto.speed.high) == pytest.approx((2.0, 2.0, 20.0))


def test_plain_is_as_fast_as_itself():
    results = Results(measured(schedule([PLAIN, AUTO], [ONE], 2), [*both(ONE, 0, 0.1, 0.05), *both(ONE, 1, 0.3, 0.1)]))
    plain = results.of_cell(PLAIN, ONE)
    assert plain.speedup is not None
    assert (plain.speedup.low, plain.speedup.middle, plain.speedup.high) == (1.0, 1.0, 1.0)
    assert plain.speculation_efficiency is plain.ideal_tokens_per_step is None


def test_cells_are_averaged_geometrically():
    runs = [*both(ONE, 0, 0.1, 0.05), *both(TWO, 0, 0.1, 0.2), *both(HOT, 0, 0.8, 0.1)]
    results = Results(measured(schedule([PLAIN, AUTO], [ONE, TWO, HOT]), runs))
    cold = results.over(AUTO, Scope(0.0))
    assert cold.speedup is not None
    assert (cold.speedup.middle, cold.speedup.low, cold.speedup.high) == pytest.approx((1.0, 0.5, 2.0))
    whole = results.over(AUTO, Scope())
    assert whole.speedup is not None
    assert (whole.speedup.middle, whole.speedup.n) == (pytest.approx(2.0), 3)
    assert list(map(str, results.scopes())) == ["temperature 0", "temperature 0.8", "all temperatures"]


def test_one_temperature_needs_no_summary():
    assert len(Results(measured(schedule([PLAIN], [ONE]), [plain_run(ONE, 0, 0.1)])).scopes()) == 1


def test_an_incomplete_round_is_left_out():
    """The second repetition of the second prompt lacks auto: its plain run must not count either."""
    runs = [
        *both(ONE, 0, 0.1, 0.05),
        *both(TWO, 0, 0.1, 0.05),
        *both(ONE, 1, 0.1, 0.05),
        plain_run(TWO, 1, 9.0),
    ]
    results = Results(measured(schedule([PLAIN, AUTO], [ONE, TWO, HOT], 2), runs, interrupted=True))
    assert results.cells == (ONE, TWO)
    assert results.n_rounds == 3
    speed = results.of_cell(PLAIN, TWO).speed
    assert speed is not None
    assert (speed.n, speed.middle) == (1, pytest.approx(10.0))
    assert results.temperatures == (0.0,)


def test_nothing_complete_is_no_result():
    results = Results(measured(schedule([PLAIN, AUTO], [ONE]), [plain_run(ONE, 0, 0.1)], interrupted=True))
    assert results.cells == results.scopes() == ()
    assert results.n_rounds == 0


def test_a_reply_too_short_to_time_gives_no_speed():
    runs = [*both(ONE, 0, 0.1, 0.05), plain_run(ONE, 1, 0.1), run(AUTO, ONE, 1, [StepOf(0.1, 3, 3)])]
    auto = Results(measured(schedule([PLAIN, AUTO], [ONE], 2), runs)).of_cell(AUTO, ONE)
    assert auto.speed is not None
    assert auto.speedup is not None
    assert auto.speed.n == auto.speedup.n == 1
    assert auto.metrics.n_drafted == 3
    only = Results(measured(schedule([PLAIN], [ONE]), [plain_run(ONE, 0, 0.1, n_steps=1)])).over(PLAIN, Scope())
    assert only.speed is only.speedup is None


def test_latencies_are_medians_and_counts_are_sums():
    steps = [StepOf(0.1, 2, 2), StepOf(0.1, 2, 0), StepOf(0.3)]
    runs = [run(PLAIN, ONE, n, [StepOf(0.1)] * 4, ttft_s=1.0) for n in range(3)]
    runs += [run(DRAFT, ONE, n, steps, ttft_s=ttft_s) for n, ttft_s in enumerate((0.1, 0.9, 0.2))]
    draft = Results(measured(schedule([PLAIN, DRAFT], [ONE], 3), runs)).of_cell(DRAFT, ONE)
    assert draft.ttft_s == pytest.approx(0.2)
    assert (draft.itl_p50_s, draft.itl_p95_s) == pytest.approx((0.3, 0.3))
    assert (draft.metrics.n_drafted, draft.metrics.n_accepted, draft.times.n_steps) == (12, 6, 6)
    assert draft.ideal_tokens_per_step == pytest.approx((1 - (2 / 3) ** (4 / 3 + 1)) / (1 - 2 / 3))


def test_sweeps_are_contenders_that_differ_in_length_only():
    lengths = [Contender(Mode.DRAFT, 4), Contender(Mode.DRAFT, 1), Contender(Mode.LOOKUP, 3)]
    contenders = [PLAIN, AUTO, *lengths]
    results = Results(measured(schedule(contenders, [ONE]), [plain_run(ONE, 0, 0.1, each) for each in contenders]))
    assert results.fixed_lengths() == {"draft": (Contender(Mode.DRAFT, 1), Contender(Mode.DRAFT, 4))}


def test_contexts():
    cells = [cell("one", 0.0, 512), cell("one", 0.0, 2048)]
    runs = [plain_run(cells[0], 0, 0.1), plain_run(cells[1], 0, 0.4)]
    results = Results(measured(schedule([PLAIN], cells), runs))
    assert results.contexts == (512, 2048)
    long = results.over(PLAIN, Scope(n_context=2048)).speed
    assert long is not None
    assert long.middle == pytest.approx(2.5)
