"""The record of all requests: sums of what their events say, however requests run together and end."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.engine.events import (
    Cancelled,
    Failed,
    Finished,
    FinishReason,
    Prefilling,
    Queued,
    RequestEvent,
    Step,
    StepDecoded,
)
from localspec.engine.metrics import MetricsRecorder
from localspec.engine.requests import Mode, SamplingParams
from localspec.errors import ChatTemplateError, ContextFullError, EngineDiedError, EngineError, LocalspecError
from localspec.server.acceptance_watch import Change
from localspec.server.observation import Observation
from localspec.server.service import Outcome, RequestInfo
from localspec.server.totals import FailureKind, StepKind
from localspec.speculative.drafter import DraftSource
from tests.server.observed_app import observed
from tests.server.scripted_engine import LOADED, begun, finished, step

INFO = RequestInfo("/v1/completions", SamplingParams(temperature=0.0), Mode.AUTO)


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def observation_at(clock: Clock) -> Observation:
    service: Any = SimpleNamespace(observers=[], loaded=None, open_requests=())
    return Observation(service, now=clock)


@dataclass
class Run:
    """One request as the engine would report it: a real recorder makes its metrics."""

    request_id: str
    n_prompt: int
    n_cached: int
    clock: Clock
    mode: Mode = Mode.AUTO
    n_tokens: int = 0
    steps: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.recorder = MetricsRecorder(self.clock)

    def queued(self) -> Queued:
        return Queued(self.request_id, 1, self.mode)

    def prefilling(self, n_done: int) -> Prefilling:
        self.recorder.prompt(self.n_prompt, self.n_cached)
        return Prefilling(self.request_id, n_done, self.n_prompt, self.n_cached)

    def step(self, n_draft: int, n_accepted: int) -> StepDecoded:
        self.recorder.prompt(self.n_prompt, self.n_cached)
        source = DraftSource.MODEL if n_draft else None
        self.recorder.step(
            n_tokens=n_accepted + 1,
            n_draft=n_draft,
            n_accepted=n_accepted,
            source=source,
            draft_s=0.5 * n_draft,
            draft_pass_s=0.25 * n_draft,
            verify_s=1.0,
            judge_s=0.0,
            step_s=2.0,
        )
        self.n_tokens += n_accepted + 1
        self.steps.append((n_draft, n_accepted))
        done = Step(tuple(range(n_accepted + 1)), (), n_draft, n_accepted, 2.0, source)
        return StepDecoded(self.request_id, (), done, self.recorder.snapshot())

    def finished(self, reason: FinishReason = FinishReason.STOP) -> Finished:
        return Finished(self.request_id, (), reason, self.recorder.snapshot())

    def cancelled(self) -> Cancelled:
        return Cancelled(self.request_id, (), self.recorder.snapshot())


def sample(observation: Observation, name: str, **labels: str) -> float | None:
    return cast("float | None", observation.registry.get_sample_value(f"localspec:{name}", labels))


prompts = st.integers(0, 50).flatmap(lambda cached: st.tuples(st.integers(cached + 1, 90), st.just(cached)))
drafts = st.integers(0, 32).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))
ends = st.sampled_from(["stop", "length", "cancelled", "failed", "cancelled early"])
requests = st.lists(st.tuples(prompts, st.lists(drafts, max_size=8), ends), max_size=6)


@given(requests, st.randoms(use_true_random=False))
def test_sums_are_those_of_all_steps(
    runs: list[tuple[tuple[int, int], list[tuple[int, int]], str]], random: Any
) -> None:
    clock = Clock()
    observation = observation_at(clock)
    streams: list[list[RequestEvent]] = []
    read = cached = 0
    steps: list[tuple[int, int]] = []
    for number, ((n_prompt, n_cached), judged, end) in enumerate(runs):
        run = Run(f"r{number}", n_prompt, n_cached, clock)
        events: list[RequestEvent] = [run.queued()]
        if end != "cancelled early":
            middle = (n_cached + n_prompt) // 2
            events += [run.prefilling(n_cached), run.prefilling(middle)]
            events += [run.step(*each) for each in judged]
            steps += judged
            read += (n_prompt if judged else middle) - n_cached
            cached += n_cached
        match end:
            case "stop" | "length":
                events.append(run.finished(FinishReason(end)))
            case "failed":
                events.append(Failed(run.request_id, EngineError("no")))
            case _:
                events.append(run.cancelled())
        streams.append(events)

    while streams:
        stream = random.choice(streams)
        clock.now += 0.1
        observation.observe(INFO, stream.pop(0))
        streams = [each for each in streams if each]

    totals = observation.totals
    assert totals.n_tokens == sum(n_accepted + 1 for _, n_accepted in steps)
    assert totals.n_drafted == sum(n_draft for n_draft, _ in steps)
    assert totals.n_accepted == sum(n_accepted for _, n_accepted in steps)
    assert totals.n_drafts == sum(n_draft > 0 for n_draft, _ in steps)
    assert totals.n_prompt_tokens == read
    assert totals.n_cached_tokens == cached
    assert totals.verify_s == pytest.approx(1.0 * len(steps))
    assert totals.draft_s == pytest.approx(0.5 * totals.n_drafted)
    assert totals.step_s == pytest.approx(2.0 * len(steps))
    assert sum(totals.drafted_at) == totals.n_drafted
    assert sum(totals.accepted_at) == totals.n_accepted
    assert all(accepted <= drafted for accepted, drafted in zip(totals.accepted_at, totals.drafted_at, strict=True))
    assert sum(record.n_drafted for _, record in observation.cohorts) == totals.n_drafted
    assert observation.n_running == 0
    n_ended = sum(end in ("stop", "length") for _, _, end in runs)
    assert totals.finish_reasons.total() == n_ended
    assert totals.failures.total() == sum(end == "failed" for _, _, end in runs)


def test_waiting_first_tokens_and_gaps_are_timed_by_arrival() -> None:
    clock = Clock()
    observation = observation_at(clock)
    run = Run("r", 20, 0, clock)
    for wait, event in ((0.0, run.queued), (2.0, lambda: run.prefilling(0)), (1.0, lambda: run.step(5, 2))):
        clock.now += wait
        observation.observe(INFO, event())
    for gap in (0.25, 0.5):
        clock.now += gap
        observation.observe(INFO, run.step(5, 5))
    observation.observe(INFO, run.finished())

    assert sample(observation, "request_queue_time_seconds_sum") == pytest.approx(2.0)
    assert sample(observation, "time_to_first_token_seconds_sum", endpoint="/v1/completions") == pytest.approx(3.0)
    assert sample(observation, "inter_token_latency_seconds_count") == 2
    assert sample(observation, "inter_token_latency_seconds_sum") == pytest.approx(0.75)
    assert sample(observation, "request_generation_tokens_sum", endpoint="/v1/completions") == 15
    assert sample(observation, "request_time_per_output_token_seconds_sum") == pytest.approx(0.75 / 12)


def test_a_reply_that_pauses_and_reads_again_is_counted_once() -> None:
    clock = Clock()
    observation = observation_at(clock)
    run = Run("r", 20, 4, clock)
    read: list[int] = []
    for event in (
        run.queued(),
        run.prefilling(4),
        run.prefilling(20),
        run.step(3, 3),
        run.prefilling(0),
        run.prefilling(12),
        run.prefilling(20),
        run.step(3, 1),
        run.finished(),
    ):
        observation.observe(INFO, event)
        read.append(observation.totals.n_prompt_tokens)

    assert read == [0, 0, *[16] * 7]
    assert observation.totals.n_cached_tokens == 4
    assert sample(observation, "request_queue_time_seconds_count") == 1


def test_a_mode_that_did_not_run_is_a_fallback_and_no_cohort() -> None:
    observation = observation_at(Clock())
    observation.observe(INFO, Queued("a", 1, Mode.LOOKUP, "No draft model is loaded."))
    observation.observe(INFO, Queued("b", 1, Mode.LOOKUP))  # auto without a draft model is lookup, as documented

    assert observation.totals.fallbacks == {(Mode.AUTO, Mode.LOOKUP): 1}
    assert [cohort.mode for cohort, _ in observation.cohorts] == [Mode.LOOKUP]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (EngineDiedError("gone"), FailureKind.ENGINE_DIED),
        (EngineError("no"), FailureKind.ENGINE),
        (ContextFullError.for_prompt(9, 8), FailureKind.CONTEXT_FULL),
        (ChatTemplateError("no"), FailureKind.OTHER),
    ],
)
def test_failures_are_told_apart(error: LocalspecError, kind: FailureKind) -> None:
    observation = observation_at(Clock())
    observation.observe(INFO, Failed("r", error))

    assert observation.totals.failures == {kind: 1}


def test_replies_of_one_token_do_not_look_as_if_drafting_was_off(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    observation = observation_at(clock)
    for number in range(200):
        run = Run(f"r{number}", 5, 0, clock)
        for event in (run.queued(), run.prefilling(0), run.step(0, 0), run.finished(FinishReason.LENGTH)):
            observation.observe(INFO, event)

    assert not observation.totals.changes
    assert not caplog.records


def test_changes_are_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="localspec.server")
    clock = Clock()
    observation = observation_at(clock)
    run = Run("r", 5, 0, clock)
    observation.observe(INFO, run.queued())
    for n_draft, n_accepted, times in ((5, 1, 120), (0, 0, 100), (5, 5, 120)):
        for _ in range(times):
            clock.now += 1.0
            observation.observe(INFO, run.step(n_draft, n_accepted))

    assert observation.totals.changes == dict.fromkeys(
        (Change.LOW, Change.SWITCHED_OFF, Change.SWITCHED_ON, Change.RECOVERED), 1
    )
    levels = [(record.levelname, record.getMessage().partition(":")[0]) for record in caplog.records]
    assert levels == [
        ("WARNING", "Acceptance is low"),
        ("WARNING", "Speculation was switched off, since it does not pay"),
        ("INFO", "Speculation was switched on again"),
        ("INFO", "Acceptance has recovered"),
    ]


async def test_every_request_of_the_service_gets_one_outcome() -> None:
    async with observed() as it:
        await it.reply([*begun(), step("a", "b"), finished()])
        with pytest.raises(EngineError):
            await it.reply([*begun(), Failed("", EngineError("no"))], "/infill")
        totals = it.observation.totals

        assert totals.outcomes == {("/v1/completions", Outcome.FINISHED): 1, ("/infill", Outcome.FAILED): 1}
        assert totals.steps == {StepKind.MODEL: 1}
        assert sample(it.observation, "e2e_request_latency_seconds_count", endpoint="/infill") == 1


async def test_an_engine_that_loads_again_is_a_restart() -> None:
    async with observed() as it:
        assert it.observation.totals.n_restarts == 0
        again = replace(LOADED)
        it.engine.report_load(again)
        await it.until(lambda: it.service.loaded is again)
        assert it.observation.totals.n_restarts == 1
