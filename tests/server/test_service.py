"""The service: who is let in, how each request ends, and what is left of it."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from dataclasses import dataclass, field

import pytest

from localspec.engine.events import Cancelled, Failed, Finished, LoadFailed, Loading, RequestEvent, StepDecoded
from localspec.engine.questions import Tokenize
from localspec.engine.requests import GenerateRequest, RawPrompt
from localspec.errors import (
    BusyError,
    ContextFullError,
    EngineError,
    ModelFileError,
    RequestTimeoutError,
    ShuttingDownError,
    StillLoadingError,
    UsageError,
)
from localspec.server.service import EngineService, Outcome, RequestInfo, ServiceState
from tests.server.scripted_engine import LOADED, PAIR, ScriptedEngine, begun, complete, finished, metrics, step


def a_request() -> GenerateRequest:
    return GenerateRequest(RawPrompt("Once"))


INFO = RequestInfo.of("/test", a_request())


@dataclass
class Recorder:
    """An observer that keeps everything."""

    events: list[RequestEvent] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)

    def observe(self, info: RequestInfo, event: RequestEvent) -> None:
        assert info == INFO
        self.events.append(event)

    def ended(self, info: RequestInfo, outcome: Outcome, elapsed_s: float) -> None:
        assert elapsed_s >= 0
        self.outcomes.append(outcome)


@pytest.fixture
def recorder(service: EngineService) -> Recorder:
    observer = Recorder()
    service.observers.append(observer)
    return observer


async def until_idle(service: EngineService) -> None:
    async with asyncio.timeout(10):
        while service.open_requests:
            await asyncio.sleep(0.001)


async def test_events_arrive_in_order_and_end_with_finished(
    service: EngineService, engine: ScriptedEngine, recorder: Recorder
) -> None:
    engine.replies.append(complete("a", "b"))
    async with service.generate(a_request(), INFO) as reply:
        events = [event async for event in reply]
    assert [type(event).__name__ for event in events] == [
        "Queued",
        "Prefilling",
        "StepDecoded",
        "StepDecoded",
        "Finished",
    ]
    assert recorder.events == events
    assert recorder.outcomes == [Outcome.FINISHED]
    assert engine.cancelled == []


async def test_at_most_so_many_requests_are_open_and_the_rest_is_told_when_to_come_back(
    service: EngineService, engine: ScriptedEngine, recorder: Recorder
) -> None:
    replies = [service.generate(a_request(), INFO) for _ in range(4)]  # two run, two wait
    with pytest.raises(BusyError) as refused:
        service.generate(a_request(), INFO)
    assert refused.value.retry_after_s == 2.5  # two replies at once, 5 s each until something is known
    assert recorder.outcomes == [Outcome.REFUSED]
    assert len(engine.requests) == 4
    engine.play(complete("a"), request=0)
    assert [event async for event in replies[0]]
    with_room = service.generate(a_request(), INFO)
    for reply in (*replies[1:], with_room):
        await reply.aclose()
    await until_idle(service)


async def test_the_time_to_come_back_follows_the_requests_before(
    service: EngineService, engine: ScriptedEngine
) -> None:
    service._recent_s.extend([20.0, 40.0])
    assert service.retry_after_s == 15.0
    service._recent_s.extend([0.01] * 40)
    assert service.retry_after_s == 1.0


async def test_requests_that_belong_together_are_let_in_together_or_not_at_all(
    service: EngineService, engine: ScriptedEngine, recorder: Recorder
) -> None:
    async with service.generate(a_request(), INFO):
        with pytest.raises(BusyError):
            service.generate_all([a_request() for _ in range(4)], INFO)
        assert len(engine.requests) == 1
        assert recorder.outcomes == [Outcome.REFUSED] * 4
    with pytest.raises(UsageError, match="5 replies; at most 4"):
        service.generate_all([a_request() for _ in range(5)], INFO)
    await until_idle(service)


async def test_events_of_several_requests_carry_their_index(service: EngineService, engine: ScriptedEngine) -> None:
    replies = service.generate_all([a_request(), a_request()], INFO)
    engine.play([*begun(), step("b")], request=1)
    engine.play(complete("a"), request=0)
    engine.play([finished()], request=1)
    got = [(index, type(event)) async for index, event in replies]
    assert got.count((0, Finished)) == got.count((1, Finished)) == 1
    assert got.index((1, StepDecoded)) < got.index((0, StepDecoded))


async def test_one_that_fails_takes_the_others_with_it(
    service: EngineService, engine: ScriptedEngine, recorder: Recorder
) -> None:
    replies = service.generate_all([a_request(), a_request()], INFO)
    engine.play([*begun(), Failed("", ContextFullError.for_prompt(9, 8))], request=0)
    with pytest.raises(ContextFullError):
        async for _ in replies:
            pass
    await until_idle(service)
    assert engine.cancelled == [engine.requests[1].request_id]
    assert recorder.outcomes == [Outcome.FAILED, Outcome.CANCELLED]


async def test_leaving_early_cancels_and_the_place_is_free_when_the_engine_says_so(
    service: EngineService, engine: ScriptedEngine, recorder: Recorder
) -> None:
    engine.confirms_cancels = False
    async with service.generate(a_request(), INFO) as reply:
        engine.play([*begun(), step("a")])
        async for event in reply:
            if isinstance(event, StepDecoded):
                break
    assert engine.cancelled == [engine.requests[0].request_id]
    assert len(service.open_requests) == 1
    engine.play([Cancelled("", (), metrics())])
    await until_idle(service)
    assert recorder.outcomes == [Outcome.CANCELLED]


async def test_a_reply_that_nobody_began_to_read_is_cancelled_too(
    service: EngineService, engine: ScriptedEngine
) -> None:
    reply = service.generate(a_request(), INFO)
    await reply.aclose()
    await reply.aclose()
    assert engine.cancelled == [engine.requests[0].request_id]
    await until_idle(service)
    assert [event async for event in reply] == []


async def test_a_request_that_takes_too_long_ends(engine: ScriptedEngine) -> None:
    service = EngineService(engine, request_timeout_s=0.05)
    await service.start(PAIR)
    recorder = Recorder()
    service.observers.append(recorder)
    reply = service.generate(a_request(), INFO)
    engine.play([*begun(), step("a")])
    got: list[RequestEvent] = []

    async def read() -> None:
        async for event in reply:
            got.append(event)  # noqa: PERF401 - what came before the error counts

    with pytest.raises(RequestTimeoutError, match=r"longer than 0\.05 s"):
        await read()
    assert isinstance(got[-1], StepDecoded)
    await until_idle(service)
    assert recorder.outcomes == [Outcome.TIMED_OUT]
    assert engine.cancelled == [engine.requests[0].request_id]


async def test_one_that_was_in_time_has_no_timer_left(engine: ScriptedEngine) -> None:
    service = EngineService(engine, request_timeout_s=0.05)
    await service.start(PAIR)
    engine.replies.append(complete("a"))
    assert [event async for event in service.generate(a_request(), INFO)]
    await asyncio.sleep(0.1)
    assert engine.cancelled == []


async def test_an_engine_that_cannot_take_a_request_fails_it(service: EngineService, engine: ScriptedEngine) -> None:
    engine.refuses_submit = EngineError("The engine was closed.")
    with pytest.raises(EngineError, match="was closed"):
        await service.generate(a_request(), INFO).started(1.0)
    assert not service.open_requests


class TestStarted:
    async def test_it_waits_for_the_turn(self, service: EngineService, engine: ScriptedEngine) -> None:
        reply = service.generate(a_request(), INFO)
        asyncio.get_running_loop().call_later(0.02, engine.play, complete("a"))
        async with asyncio.timeout(5):
            await reply.started(60.0)
        assert isinstance([event async for event in reply][-1], Finished)

    async def test_it_waits_no_longer_than_it_is_told(self, service: EngineService, engine: ScriptedEngine) -> None:
        async with service.generate(a_request(), INFO) as reply, asyncio.timeout(5):
            await reply.started(0.01)

    async def test_it_raises_what_the_request_failed_with(self, service: EngineService, engine: ScriptedEngine) -> None:
        engine.replies.append([begun()[0], Failed("", UsageError("No."))])
        with pytest.raises(UsageError, match=r"No\."):
            await service.generate(a_request(), INFO).started(60.0)


class TestLoading:
    async def test_nothing_is_let_in_before_the_pair_is_loaded(self, engine: ScriptedEngine) -> None:
        engine.load_events = (Loading("Loading the target", 0.25),)
        service = EngineService(engine)
        starting = asyncio.create_task(service.start(PAIR))
        while service.loading is None:
            await asyncio.sleep(0.001)
        assert service.state is ServiceState.LOADING
        with pytest.raises(StillLoadingError, match="Loading the target, 25%"):
            service.generate(a_request(), INFO)
        with pytest.raises(StillLoadingError):
            await service.ask(Tokenize("a"))
        engine.report_load(LOADED)
        assert await starting is LOADED
        assert service.state is ServiceState.READY

    async def test_a_pair_that_cannot_be_loaded_is_the_starters_error(self, engine: ScriptedEngine) -> None:
        engine.load_events = (LoadFailed(ModelFileError("No such file.")),)
        service = EngineService(engine)
        with pytest.raises(ModelFileError):
            await service.start(PAIR)
        assert service.state is ServiceState.FAILED

    async def test_an_engine_that_loads_again_is_loading_and_takes_requests(
        self, service: EngineService, engine: ScriptedEngine
    ) -> None:
        engine.report_load(Loading("Loading the target", 0.5))
        reply = service.generate(a_request(), INFO)
        await reply.started(0.01)
        assert service.state is ServiceState.LOADING
        engine.report_load(LOADED)
        engine.play(complete("a"))
        assert [event async for event in reply]
        assert service.state is ServiceState.READY


class TestQuestions:
    async def test_an_answer(self, service: EngineService) -> None:
        assert await service.ask(Tokenize("ab")) == (97, 98)

    async def test_a_refusal(self, service: EngineService, engine: ScriptedEngine) -> None:
        def refuse(_: object) -> None:
            raise UsageError("No.")

        engine.answers = refuse
        with pytest.raises(UsageError, match=r"No\."):
            await service.ask(Tokenize("ab"))

    async def test_only_so_many_are_open_at_once(self, service: EngineService) -> None:
        asked = await asyncio.gather(*(service.ask(Tokenize("a")) for _ in range(70)), return_exceptions=True)
        assert Counter(map(type, asked)) == {tuple: 64, BusyError: 6}
        assert await service.ask(Tokenize("a")) == (97,)


class TestEnd:
    async def test_replies_that_run_may_finish(
        self, service: EngineService, engine: ScriptedEngine, recorder: Recorder
    ) -> None:
        reply = service.generate(a_request(), INFO)
        stopping = asyncio.create_task(service.stop(10.0))
        await asyncio.sleep(0)
        assert service.state is ServiceState.STOPPING
        with pytest.raises(ShuttingDownError):
            service.generate(a_request(), INFO)
        engine.play(complete("a"))
        assert isinstance([event async for event in reply][-1], Finished)
        await asyncio.wait_for(stopping, 5)
        assert engine.n_closes == 1
        assert recorder.outcomes == [Outcome.REFUSED, Outcome.FINISHED]

    async def test_what_does_not_finish_is_ended(
        self, service: EngineService, engine: ScriptedEngine, recorder: Recorder
    ) -> None:
        running, waiting = service.generate(a_request(), INFO), service.generate(a_request(), INFO)
        engine.play([*begun(), step("a")], request=0)
        await asyncio.wait_for(service.stop(0.01), 5)
        for reply in (running, waiting):
            with pytest.raises(ShuttingDownError):
                async for _ in reply:
                    pass
        assert recorder.outcomes == [Outcome.SHUT_DOWN] * 2


def test_retry_after_is_finite_without_any_request() -> None:
    assert math.isfinite(EngineService(ScriptedEngine()).retry_after_s)
