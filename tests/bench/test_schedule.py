"""How contenders are spelled, and an order of runs that is fair to them."""

from __future__ import annotations

from collections import Counter

import pytest

from localspec.bench.schedule import PLAIN, Contender, cells_of, default_contenders, parse_contenders
from localspec.bench.workloads import Workload
from localspec.engine.requests import Mode
from localspec.errors import UsageError
from tests.bench.replies import AUTO, DRAFT, LOOKUP, cell, schedule


def test_contenders_are_read_and_written_the_same_way():
    texts = ["auto", "draft:6", "lookup:10", "draft", "plain"]
    assert sorted(map(str, parse_contenders(texts))) == sorted(texts)


def test_plain_comes_first_and_everything_once():
    assert parse_contenders(["draft", "draft:3", "draft:2..4", "draft"]) == (
        PLAIN,
        DRAFT,
        Contender(Mode.DRAFT, 3),
        Contender(Mode.DRAFT, 2),
        Contender(Mode.DRAFT, 4),
    )
    assert parse_contenders([]) == (PLAIN,)


def test_a_range_holds_both_ends():
    assert [each.fixed_length for each in parse_contenders(["draft:0..12"])[1:]] == list(range(13))


@pytest.mark.parametrize(
    "text",
    ["", "fast", "AUTO", "auto:3", "plain:0", "draft:", "draft:x", "draft:-1", "draft:33", "draft:6..2", "draft:1-3"],
)
def test_what_is_no_contender_is_named(text: str):
    with pytest.raises(UsageError, match=repr(text).replace(".", r"\.")) as refused:
        parse_contenders(["auto", text])
    assert "draft:0..12" in refused.value.hint


def test_without_a_draft_model_nothing_is_measured_twice():
    assert default_contenders(has_draft_model=True) == (PLAIN, AUTO, DRAFT, LOOKUP)
    assert default_contenders(has_draft_model=False) == (PLAIN, AUTO)


def test_every_contender_meets_every_cell_once_per_repetition():
    a_schedule = schedule(
        [PLAIN, AUTO, DRAFT], cells_of([Workload("x", "k", "a"), Workload("x", "k", "b")], [0.0, 0.8]), 3
    )
    runs = Counter((each.cell, each.repetition, who) for each in a_schedule.rounds() for who in each.contenders)
    assert len(runs) == a_schedule.n_runs == 2 * 2 * 3 * 3
    assert set(runs.values()) == {1}


def test_the_turns_are_shared_out_evenly():
    contenders = [PLAIN, AUTO, DRAFT, LOOKUP]
    cells = [cell(str(i)) for i in range(8)]
    rounds = list(schedule(contenders, cells, 4).rounds())
    for turn in range(4):
        assert set(Counter(each.contenders[turn] for each in rounds).values()) == {8}
    # In one cell, too: over the repetitions each goes first once.
    assert {each.contenders[0] for each in rounds if each.cell == cells[3]} == set(contenders)


def test_repetitions_are_far_apart():
    """All cells come once before any comes again, and the temperatures of a prompt follow each other."""
    cells = cells_of([Workload("x", "k", "a"), Workload("x", "k", "b")], [0.0, 0.8])
    order = [each.cell for each in schedule([PLAIN], cells, 2).rounds()]
    assert order == [*cells, *cells]
    assert [(each.workload.name, each.temperature) for each in cells] == [("a", 0), ("a", 0.8), ("b", 0), ("b", 0.8)]


def test_requests_differ_in_what_is_compared_only():
    a_schedule = schedule([PLAIN, AUTO, Contender(Mode.DRAFT, 6)], [cell(temperature=0.8)], 2)
    plain, auto, fixed = (a_schedule.request(each, a_schedule.cells[0], 1) for each in a_schedule.contenders)
    assert plain.prompt == auto.prompt == fixed.prompt == a_schedule.cells[0].workload.chat
    assert plain.sampling == auto.sampling == fixed.sampling
    assert (plain.sampling.seed, plain.sampling.temperature) == (2, 0.8)
    assert plain.max_tokens == auto.max_tokens == fixed.max_tokens == a_schedule.cells[0].workload.max_tokens
    assert [(each.mode, each.num_speculative_tokens, each.fixed_length) for each in (plain, auto, fixed)] == [
        (Mode.PLAIN, None, False),
        (Mode.AUTO, None, False),
        (Mode.DRAFT, 6, True),
    ]


def test_a_padded_cell_says_so():
    assert str(cell("lake", 0.8)) == "chat/lake, temperature 0.8"
    assert str(cell("lake", 0.0, 2048)) == "chat/lake @2048, temperature 0"
