"""Pairs of runs through a scripted engine: their order, what is loaded when, and what counts as measured."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.bench.tune_measure import Case, Pace, PairedMeasurement, cases_in_turn, fit_to_budget
from localspec.bench.tune_search import OutOfTimeError, UnusableError
from localspec.bench.tune_space import present_point
from localspec.bench.workloads import Workload
from localspec.config import Settings
from localspec.engine.requests import GenerateRequest, Mode, ModelSpec, PairSpec, SamplingParams
from localspec.errors import EngineError, UsageError
from tests.bench.tune_engine import ScriptedEngine

DRAFT = Path("/m/draft.gguf")
PAIR = PairSpec("pair", ModelSpec(Path("/m/target.gguf")), ModelSpec(DRAFT))
AUTO = present_point(Settings(), DRAFT)
PLAIN = replace(AUTO, mode=Mode.PLAIN)
CASES = [Case(Workload("p" * (10 + i), name=str(i)), 0.5 * i) for i in range(3)]


def measurement(engine: ScriptedEngine) -> PairedMeasurement:
    measure = PairedMeasurement(engine, PAIR, -1, SamplingParams(top_k=7), now=engine.now)
    measure.cases, measure.max_tokens = CASES, 40
    return measure


def by_mode(_pair: PairSpec, request: GenerateRequest) -> float:
    return 0.01 if request.mode is Mode.PLAIN else 0.005


def order(engine: ScriptedEngine) -> list[str]:
    return [
        f"load {each.n_threads}"
        if isinstance(each, PairSpec)
        else f"{each.mode} {len(each.prompt.messages[0].content) - 10}"  # type: ignore[union-attr]
        for each in engine.log
    ]


def test_ratios_are_those_of_decode_speed():
    engine = ScriptedEngine(by_mode, read_s=5.0)
    measure = measurement(engine)
    assert measure(PLAIN, AUTO, 0) == pytest.approx([math.log(2)] * 3)
    assert measure(AUTO, PLAIN, 0) == pytest.approx([-math.log(2)] * 3)


def test_what_loads_the_same_takes_turns_case_by_case():
    engine = ScriptedEngine(by_mode)
    measure = measurement(engine)
    measure.load(AUTO)
    engine.log.clear()
    measure(PLAIN, AUTO, 0)
    assert order(engine) == ["plain 0", "auto 0", "auto 1", "plain 1", "plain 2", "auto 2"]
    engine.log.clear()
    measure(PLAIN, AUTO, 1)
    assert order(engine) == ["auto 0", "plain 0", "plain 1", "auto 1", "auto 2", "plain 2"]


def test_what_must_be_loaded_runs_in_blocks_that_turn_from_pass_to_pass():
    engine = ScriptedEngine(by_mode)
    measure = measurement(engine)
    threaded = replace(AUTO, threads=3)
    measure.load(AUTO)
    engine.log.clear()
    measure(AUTO, threaded, 0)
    # After a load one reply that is not measured warms up.
    block = ["auto 0", "auto 1", "auto 2"]
    assert order(engine) == [*block, "load 3", "auto 0", *block]
    engine.log.clear()
    measure(AUTO, threaded, 1)
    assert order(engine) == [*block, "load None", "auto 0", *block]


def test_both_get_the_same_request_but_for_what_is_compared():
    engine = ScriptedEngine(by_mode)
    measure = measurement(engine)
    fixed = replace(AUTO, mode=Mode.DRAFT, fixed_length=True, num_speculative_tokens=3)
    measure.load(AUTO)
    engine.log.clear()
    measure(AUTO, fixed, 2)
    for i, case in enumerate(CASES):
        one, other = engine.requests[2 * i : 2 * i + 2]
        assert {(each.mode, each.fixed_length, each.num_speculative_tokens) for each in (one, other)} == {
            (Mode.AUTO, False, None),
            (Mode.DRAFT, True, 3),
        }
        assert one.sampling == other.sampling
        assert (one.sampling.temperature, one.sampling.top_k) == (case.temperature, 7)
        assert one.prompt == other.prompt == case.workload.chat
    seeds = {each.sampling.seed for each in engine.requests}
    measure(AUTO, fixed, 3)
    assert {each.sampling.seed for each in engine.requests[6:]}.isdisjoint(seeds)


def test_a_prompt_longer_than_the_context_and_a_reply_too_short_to_time_are_not_measured():
    engine = ScriptedEngine(by_mode, n_ctx=12)
    measure = measurement(engine)
    ratios = measure(PLAIN, AUTO, 0)
    assert ratios[2] is None
    assert None not in ratios[:2]
    assert measurement(ScriptedEngine(by_mode, n_tokens_at_most=5))(PLAIN, AUTO, 0) == [None] * 3


def test_a_challenger_that_fails_is_unusable_and_the_next_comparison_loads_again():
    engine = ScriptedEngine(by_mode, unloadable=lambda pair: pair.n_threads == 3)
    measure = measurement(engine)
    measure.load(AUTO)
    with pytest.raises(UnusableError, match="does not fit"):
        measure(AUTO, replace(AUTO, threads=3), 0)
    assert measure(PLAIN, AUTO, 0) == pytest.approx([math.log(2)] * 3)
    assert engine.pair is not None
    assert engine.pair.n_threads is None


def test_an_incumbent_that_fails_is_an_error():
    engine = ScriptedEngine(by_mode, unrunnable=lambda request: request.mode is Mode.PLAIN)
    with pytest.raises(EngineError, match="fails"):
        measurement(engine)(PLAIN, AUTO, 0)
    with pytest.raises(UnusableError, match="fails"):
        measurement(engine)(AUTO, PLAIN, 0)


def test_speculation_that_the_pair_cannot_do_is_not_mistaken_for_speculation():
    note = "tiny (mamba) cannot take back tokens: speculation is off."
    engine = ScriptedEngine(by_mode, mode_of=lambda request: (Mode.PLAIN, note))
    with pytest.raises(UnusableError, match="mamba"):
        measurement(engine)(PLAIN, AUTO, 0)


def test_the_deadline_ends_a_pass_in_the_middle_of_a_reply():
    engine = ScriptedEngine(by_mode)
    measure = measurement(engine)
    measure.load(AUTO)
    measure.deadline = 0.5
    with pytest.raises(OutOfTimeError):
        measure(PLAIN, AUTO, 0)
    assert engine.time == pytest.approx(0.5, abs=0.02)
    assert engine.n_cancelled == 1


def test_the_pace_is_that_of_a_short_reply():
    engine = ScriptedEngine(by_mode, read_s=2.0)
    measure = measurement(engine)
    measure.load(PLAIN)
    pace = measure.pace(PLAIN, CASES[0])
    assert (pace.token_s, pace.char_s) == pytest.approx((0.01, 0.2))


# --- how much is measured --------------------------------------------------------------------------------------------


def workloads(*kinds: str) -> list[Workload]:
    return [Workload("x" * 100, kind, f"{kind}{i}") for i, kind in enumerate(kinds)]


def test_cases_come_one_kind_after_the_other_and_temperatures_in_turn():
    cases = cases_in_turn(workloads("chat", "chat", "code", "code", "edit"), [0.0, 0.8])
    assert [case.workload.name for case in cases] == ["chat0", "code2", "edit4", "chat1", "code3"]
    assert [case.temperature for case in cases] == [0.0, 0.8, 0.0, 0.8, 0.0]


@pytest.mark.parametrize("token_s", [0.001, 0.01, 0.02, 0.04, 0.1])
@pytest.mark.parametrize("budget_s", [30.0, 300.0, 3_000.0])
def test_a_pass_fits_into_the_budget_many_times_or_is_as_short_as_it_gets(token_s: float, budget_s: float):
    cases = cases_in_turn(workloads(*"abcabcabcabc"), [0.0])
    pace = Pace(token_s, 0.0005)

    def pass_s(n_cases: int, n_tokens: int) -> float:
        return 2 * n_cases * (100 * pace.char_s + n_tokens * token_s)

    if pass_s(4, 32) > budget_s / 4:
        with pytest.raises(UsageError):
            fit_to_budget(cases, pace, budget_s)
        return
    chosen, n_tokens = fit_to_budget(cases, pace, budget_s)
    assert chosen == cases[: len(chosen)]
    assert n_tokens in {32, 48, 64}
    if pass_s(len(chosen), n_tokens) > budget_s / 24:
        assert (len(chosen), n_tokens) == (4, 32)
    # More tokens, or one more case, would not have fitted.
    if n_tokens < 64:
        assert pass_s(12, n_tokens + 16) > budget_s / 24
    if len(chosen) < 12:
        assert pass_s(len(chosen) + 1, 32) > budget_s / 24


def test_the_budget_that_the_refusal_names_is_enough():
    cases = cases_in_turn(workloads(*"abcd"), [0.0])
    pace = Pace(token_s=2.0, char_s=0.1)
    with pytest.raises(UsageError) as caught:
        fit_to_budget(cases, pace, 300)
    minutes = int(caught.value.hint.partition("--budget ")[2].partition(".")[0])
    assert fit_to_budget(cases, pace, minutes * 60) == (cases, 32)


def test_few_prompts_stay_few():
    cases = cases_in_turn(workloads("a"), [0.0])
    assert fit_to_budget(cases, Pace(0.5, 0.0), 300) == (cases, 32)
