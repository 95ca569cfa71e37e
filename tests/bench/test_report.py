"""What people and programs get to read: tables in Markdown and in a terminal, and JSON."""

from __future__ import annotations

import datetime
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.bench.cell_text import middle, milliseconds, number, percent, with_extremes
from localspec.bench.conditions import Conditions
from localspec.bench.figures import Results, Scope
from localspec.bench.report import as_json, facts, markdown
from localspec.bench.runner import Measurement
from localspec.bench.schedule import PLAIN, Cell, Contender
from localspec.bench.statistics import Spread
from localspec.bench.step_times import StepTimes
from localspec.bench.tables import context_table, length_tables, position_table, speed_table, step_table, time_table
from localspec.bench.terminal import ProgressBar, show
from localspec.bench.workloads import Workload
from localspec.engine.events import Loaded
from localspec.engine.requests import Mode, ModelSpec, PairSpec
from localspec.errors import EngineError
from tests.bench.replies import AUTO, DRAFT, LOOKUP, StepOf, cell, measured, plain_run, run, schedule

NASTY = "a|b`c*d_e[f]<g>\\h\x1b[31m\u202e"
DRAFTING = [StepOf(0.1), StepOf(0.1, 4, 4), StepOf(0.1, 4, 1), StepOf(0.05)]


def conditions(tmp_path: Path, *, draft: bool = True) -> Conditions:
    target = tmp_path / "secret folder" / "target.gguf"
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(b"x" * 10)
    pair = PairSpec("p", ModelSpec(target), ModelSpec(tmp_path / "draft.gguf") if draft else None)
    return Conditions.now(pair, Loaded("Target 7B", "Draft 1B" if draft else None, 512, 100, 3, 10, False, True))


def measurement(
    *, contenders: tuple[Contender, ...] = (PLAIN, AUTO, DRAFT, LOOKUP), cells: tuple[Cell, ...] | None = None
) -> Measurement:
    cells = cells or (cell("one"), cell("two"), cell("one", 0.8), cell("two", 0.8))
    runs = []
    for where in cells:
        for n in range(2):
            runs.append(plain_run(where, n, 0.1))
            runs += [run(who, where, n, DRAFTING) for who in contenders if who != PLAIN]
    return measured(schedule(contenders, cells, 2), runs)


def shown(results: Results, width: int, *, with_step_times: bool = True) -> str:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Screen()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        patch.setenv("TERM", "xterm")
        show(results, ("A fact.",), stream, with_step_times=with_step_times)
    return re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())


def rows(text: str, title: str) -> list[list[str]]:
    """The cells of a Markdown table."""
    section = text.split(f"## {title}\n\n")[1].split("\n\n")[0]
    return [[part.strip() for part in line.strip("|").split(" | ")] for line in section.splitlines()]


def test_numbers_in_cells():
    assert (number(1.26), number(1.26, 2), number(None)) == ("1.3", "1.26", "–")
    assert (percent(0.125), percent(None)) == ("12%", "–")
    assert (milliseconds(0.0125), milliseconds(None)) == ("12.5", "–")
    spread = Spread(1.5, 1.25, 2.0, 3)
    assert (middle(spread), middle(None)) == ("1.5", "–")
    assert (with_extremes(spread), with_extremes(None)) == ("1.50 (1.25–2.00)", "–")
    assert with_extremes(Spread(1.0, 1.0, 1.001, 3)) == "1.00"


def test_the_speed_table():
    """Plain: 10 tokens/s. Draft: 8 tokens in 0.25 s after the first, 10 in 4 steps, of 8 drafted 5 accepted."""
    table = speed_table(Results(measurement()), Scope(0.0))
    plain, auto, *_ = table.rows
    assert plain == ("plain", "10.0", "1.00", "–", "1.00", "–", "–", "–")
    ideal = (1 - (5 / 6) ** 3) / (1 - 5 / 6)
    assert auto == ("auto", "32.0", "3.20", "62%", "2.25", f"{ideal:.2f}", f"{3.2 / 2.25:.0%}", "25%")
    assert len(table.header) == len(auto)


def test_a_large_draft_share_is_flagged_and_explained():
    fine = time_table(Results(measurement()), Scope())
    assert not fine.notes
    assert not any("!" in each for row in fine.rows for each in row)
    heavy = StepTimes(n_steps=1, n_tokens=1, draft_pass_s=0.3, draft_sampling_s=0.1, target_pass_s=0.6, elapsed_s=1.0)
    runs = [plain_run(cell(), 0, 0.1), replace(run(DRAFT, cell(), 0, DRAFTING), times=heavy)]
    table = time_table(Results(measured(schedule([PLAIN, DRAFT], [cell()]), runs)), Scope())
    assert table.rows[1][4] == "40% !"
    assert "30 %" in table.notes[0]


def test_acceptance_by_position_is_cut_to_what_fits():
    results = Results(measurement())
    table = position_table(results, Scope(), 3)
    assert table is not None
    assert table.header == ("mode", "1", "2", "3")
    assert [row[0] for row in table.rows] == ["auto", "draft", "lookup"]
    assert table.rows[0][1:] == ("100%", "50%", "100%")
    assert position_table(Results(measurement(contenders=(PLAIN,))), Scope(), 3) is None


def test_the_parts_of_a_step_add_up():
    for name, step, *parts in step_table(Results(measurement()), Scope()).rows:
        assert sum(float(part.split()[0]) for part in parts) == pytest.approx(float(step), abs=0.03), name
        assert sum(int(part.split()[1].strip("%")) for part in parts) == pytest.approx(100, abs=2)


def test_a_sweep_is_compared_with_its_best():
    sweep = [Contender(Mode.DRAFT, n) for n in range(3)]
    speeds = {PLAIN: 0.1, AUTO: 0.05, sweep[0]: 0.1, sweep[1]: 0.04, sweep[2]: 0.08}
    runs = [plain_run(cell(), 0, seconds, who) for who, seconds in speeds.items()]
    (table,) = length_tables(Results(measured(schedule(list(speeds), [cell()]), runs)), Scope(0.0))
    assert {row[0]: (row[1], row[-1]) for row in table.rows} == {
        "plain": ("100.00", "0.40"),
        "auto": ("50.00", "0.80"),
        "draft:0": ("100.00", "0.40"),
        "draft:1": ("40.00", "1.00"),
        "draft:2": ("80.00", "0.50"),
    }
    assert not list(length_tables(Results(measurement()), Scope()))


def test_the_cost_against_the_context():
    cells = [cell("one", 0.0, 512), cell("one", 0.0, 1024)]
    runs = [plain_run(cells[0], 0, 0.1), plain_run(cells[1], 0, 0.2)]
    table = context_table(Results(measured(schedule([PLAIN], cells), runs)), Scope(0.0))
    assert table is not None
    assert [(row[0], row[1]) for row in table.rows] == [("512 plain", "100.00"), ("1024 plain", "200.00")]
    assert context_table(Results(measurement()), Scope()) is None


def test_the_markdown_report_has_every_cell(tmp_path: Path):
    whole = measurement()
    text = markdown(whole, Results(whole), conditions(tmp_path))
    assert text.startswith("# Speed of p\n")
    assert f"{datetime.date.today():%Y-%m-%d}" in text
    table = rows(text, "Every prompt")
    assert len(table) == 2 + 4 * 4
    assert {len(row) for row in table} == {14}
    assert "2 repetitions" in text
    for scope in ("temperature 0", "temperature 0.8", "all temperatures"):
        for title in ("Speed", "Latency and work", "A step in milliseconds", "Acceptance by position in the draft"):
            assert len(rows(text, f"{title}, {scope}")) >= 2 + 3


def test_names_from_outside_break_no_table(tmp_path: Path):
    where = Cell(Workload("x", "k", NASTY), 0.0)
    nasty = measurement(cells=(where,))
    text = markdown(nasty, Results(nasty), conditions(tmp_path))
    assert "\x1b" not in text
    assert "\u202e" not in text
    table = [line for line in text.splitlines() if line.startswith("| k/a")]
    assert len(table) == 1 + 4
    for line in table:
        assert "k/a\\|b\\`c\\*d\\_e\\[f]\\<g>\\\\h" in line
    screen = shown(Results(nasty), 200)
    assert "\x1b" not in screen
    assert "a|b`c*d_e[f]<g>" in screen


def test_a_report_says_what_is_missing(tmp_path: Path):
    whole = measurement()
    whole.runs = whole.runs[:21]  # the third cell lacks its second repetition, the last is missing
    whole.interrupted = True
    results = Results(whole)
    words = "Stopped after 21 of 32 replies. Only rounds with every mode count: 5 of 8, in 3 of 4 cells."
    assert facts(whole, results, conditions(tmp_path))[-1] == words
    assert words in markdown(whole, results, conditions(tmp_path))
    document = json.loads(as_json(whole, results, conditions(tmp_path)))
    assert document["complete"] is False
    assert (len(document["runs"]), document["n_runs_planned"]) == (21, 32)
    whole.runs, whole.error = [], EngineError("It broke.")
    empty = Results(whole)
    assert "Ended by an error after 0 of 32 replies" in markdown(whole, empty, conditions(tmp_path))
    assert json.loads(as_json(whole, empty, conditions(tmp_path)))["error"] == "It broke."


def test_the_json_has_every_run_and_its_conditions(tmp_path: Path):
    whole = measurement()
    results = Results(whole)
    text = as_json(whole, results, conditions(tmp_path))
    document = json.loads(text)
    assert "secret folder" not in text
    assert document["format"] == 1
    assert datetime.datetime.fromisoformat(document["date"]).tzinfo is not None
    assert document["machine"]["cpu"]
    assert document["threads"] >= 1
    assert document["llama_cpp"]["llama-cpp-python"]
    assert (document["pair"]["target"]["file"], document["pair"]["target"]["bytes"]) == ("target.gguf", 10)
    assert (document["pair"]["draft"]["file"], document["pair"]["draft"]["bytes"]) == ("draft.gguf", None)
    assert document["settings"]["contenders"] == ["plain", "auto", "draft", "lookup"]
    assert len(document["runs"]) == 4 * 4 * 2
    first = document["runs"][1]
    assert (first["contender"], first["workload"], first["temperature"], first["repetition"]) == ("auto", "one", 0.0, 0)
    assert first["metrics"]["n_drafted"] == 8
    assert sum(first["seconds_after_first_step"].values()) == pytest.approx(2 * 0.25)  # the parts, and all of them
    # The figures can be made from the runs again.
    (auto,) = [each for each in document["figures"] if (each["contender"], each["temperature"]) == ("auto", 0.0)]
    assert auto["speedup"]["middle"] == pytest.approx(3.2)
    assert auto["acceptance_by_position"] == [1.0, 0.5, 1.0, 1.0, None]


def test_a_pair_without_a_draft(tmp_path: Path):
    whole = measurement(contenders=(PLAIN, AUTO))
    document = json.loads(as_json(whole, Results(whole), conditions(tmp_path, draft=False)))
    assert document["pair"]["draft"] is None
    assert "no draft model" in facts(whole, Results(whole), conditions(tmp_path, draft=False))[0]


def test_tables_fit_a_terminal_of_80_columns():
    lengths = tuple(Contender(Mode.LOOKUP, n) for n in range(11, 13))
    cells = tuple(cell("extraction", temperature, n) for temperature in (0.0, 0.8) for n in (4096, 8192))
    for contenders in ((PLAIN, AUTO, DRAFT, LOOKUP), (PLAIN, AUTO, *lengths)):
        screen = shown(Results(measurement(contenders=contenders, cells=cells)), 80)
        assert max(map(len, screen.splitlines())) <= 80
        for line in screen.splitlines():
            if line.startswith(("plain", "auto", "draft", "lookup")):
                assert len(re.split(r"\s{2,}", line.strip())) >= 4, line  # a row is one line
        assert "…" not in screen
        assert "A fact." in screen


def test_a_narrower_terminal_loses_nothing():
    screen = shown(Results(measurement()), 40)
    assert max(map(len, screen.splitlines())) <= 40
    wide = shown(Results(measurement()), 200)
    digits = re.compile(r"\d")
    assert len(digits.findall(screen)) == len(digits.findall(wide))


def test_a_pipe_gets_plain_text():
    stream = io.StringIO()
    show(Results(measurement()), (), stream, with_step_times=False)
    assert "\x1b" not in stream.getvalue()
    assert "A step in milliseconds" not in stream.getvalue()
    assert "Speedup by prompt, temperature 0.8" in stream.getvalue()


def test_many_contenders_leave_the_table_side_by_side_to_the_report():
    contenders = (PLAIN, *(Contender(Mode.DRAFT, n) for n in range(8)))
    assert "Speedup by prompt" not in shown(Results(measurement(contenders=contenders)), 80)


def test_progress_is_silent_where_nobody_watches():
    stream = io.StringIO()
    with ProgressBar(stream).shown() as bar:
        bar.begin(2)
        bar.done(plain_run(cell(), 0, 0.1))
    assert stream.getvalue() == ""
