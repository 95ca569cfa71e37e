"""The pictures: which there are, that they are sound SVG, and that names from outside do them no harm."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from xml.etree import ElementTree

import pytest

from localspec.bench.figures import Results
from localspec.bench.plots import require_plots, write_plots
from localspec.bench.schedule import PLAIN, Cell, Contender
from localspec.bench.workloads import Workload
from localspec.engine.requests import Mode
from localspec.errors import UsageError
from tests.bench.replies import AUTO, StepOf, cell, measured, plain_run, run, schedule

DRAFTING = [StepOf(0.1), StepOf(0.1, 4, 4), StepOf(0.1, 4, 1), StepOf(0.05)]


def results(contenders: tuple[Contender, ...] = (PLAIN, AUTO), cells: tuple[Cell, ...] = ()) -> Results:
    cells = cells or (cell("one"), cell("two"), cell("one", 0.8), cell("two", 0.8))
    runs = [
        plain_run(where, n, 0.1 + 0.01 * n) if who == PLAIN else run(who, where, n, DRAFTING)
        for where in cells
        for n in range(2)
        for who in contenders
    ]
    return Results(measured(schedule(contenders, cells, 2), runs))


def texts(path: Path) -> list[str]:
    return [
        "".join(each.itertext()).strip() for each in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")
    ]


def test_speed_and_acceptance_are_always_drawn(tmp_path: Path):
    written = write_plots(results(), tmp_path / "new" / "plots")
    assert [path.name for path in written] == ["speed.svg", "acceptance.svg"]
    speed, acceptance = map(texts, written)
    assert {"chat/one", "chat/two", "temperature 0", "temperature 0.8", "plain", "auto", "tokens/s"} <= set(speed)
    assert {"position in the draft", "auto"} <= set(acceptance)
    assert "plain" not in acceptance  # it drafts nothing


def test_a_sweep_and_contexts_get_their_own(tmp_path: Path):
    sweep = tuple(Contender(Mode.DRAFT, n) for n in range(7))
    cells = (cell("one", 0.0, 512), cell("one", 0.0, 2048))
    written = write_plots(results((PLAIN, AUTO, *sweep), cells), tmp_path)
    assert [path.name for path in written] == ["speed.svg", "acceptance.svg", "length.svg", "context.svg"]
    speed, _, length, context = map(texts, written)
    assert "draft:3" not in speed  # nine bars per prompt would say nothing
    assert {"draft, fixed length", "plain", "auto", "tokens per draft"} <= set(length)
    assert {"512", "2048", "context in tokens"} <= set(context)


def test_the_same_numbers_give_the_same_file(tmp_path: Path):
    first, second = (write_plots(results(), tmp_path / name) for name in ("a", "b"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_replies_too_short_to_time_leave_gaps(tmp_path: Path):
    runs = [plain_run(cell(), 0, 0.1, n_steps=1), run(AUTO, cell(), 0, [StepOf(0.1)])]
    for path in write_plots(Results(measured(schedule([PLAIN, AUTO], [cell()]), runs)), tmp_path):
        assert texts(path)


@pytest.mark.parametrize("name", ["$x^{$", "\\frac{", "<b>&amp;", "日本語", "\x1b[31m", "_private", "a" * 40])
def test_any_name_can_be_drawn(tmp_path: Path, name: str):
    where = Cell(Workload("x", "k", name), 0.0)
    speed, _ = write_plots(results(cells=(where,)), tmp_path)
    shown = f"k/{name}".replace("\x1b", "␛")
    assert shown in texts(speed)


def test_without_the_library_it_is_said_at_once(monkeypatch: pytest.MonkeyPatch):
    require_plots()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="matplotlib") as refused:
        require_plots()
    assert "pip install matplotlib" in refused.value.hint
