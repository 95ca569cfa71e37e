"""Whatever happens, in any order: every request has exactly one outcome, and nothing of it stays behind."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.engine.events import Failed, RequestEvent
from localspec.engine.requests import GenerateRequest, RawPrompt
from localspec.errors import BusyError, EngineDiedError, UsageError
from localspec.server.replies import Reply
from localspec.server.service import EngineService, Outcome, RequestInfo
from tests.server.scripted_engine import PAIR, ScriptedEngine, finished, step

_EVENTS = {
    "step": step("a"),
    "finish": finished(),
    "fail": Failed("", UsageError("No.")),
    "die": Failed("", EngineDiedError("It stopped.")),
}


class _Play:
    """A service, its engine, and everybody who asked."""

    def __init__(self, rng: random.Random) -> None:
        self.engine = ScriptedEngine()
        self.service = EngineService(self.engine, n_parallel=2, n_queue=1, request_timeout_s=5)
        self.service.observers.append(self)
        self.outcomes: list[Outcome] = []
        self.replies: list[Reply] = []
        self.n_asked = 0
        self._rng = rng

    def observe(self, info: RequestInfo, event: RequestEvent) -> None:
        pass

    def ended(self, info: RequestInfo, outcome: Outcome, elapsed_s: float) -> None:
        self.outcomes.append(outcome)

    async def act(self, action: str) -> None:
        if action == "ask":
            request = GenerateRequest(RawPrompt("Once"))
            self.n_asked += 1
            with contextlib.suppress(BusyError):
                self.replies.append(self.service.generate(request, RequestInfo.of("/test", request)))
        elif action == "leave":
            if self.replies:
                await self._rng.choice(self.replies).aclose()
        elif still_open := self.engine.open_indices:
            for index in still_open if action == "die" else [self._rng.choice(still_open)]:
                self.engine.play([_EVENTS[action]], request=index)
        if self._rng.random() < 0.3:
            await asyncio.sleep(0.001)

    async def run(self, actions: Sequence[str]) -> None:
        await self.service.start(PAIR)
        for action in actions:
            await self.act(action)
        for reply in self.replies:
            await reply.aclose()
        async with asyncio.timeout(10):
            while self.service.open_requests:
                await asyncio.sleep(0.001)
        await self.service.stop(0)


@given(st.lists(st.sampled_from(["ask", "ask", "leave", *_EVENTS]), max_size=40), st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_every_request_has_exactly_one_outcome(actions: list[str], seed: int) -> None:
    play = _Play(random.Random(seed))
    asyncio.run(play.run(actions))
    assert len(play.outcomes) == play.n_asked
    assert len(play.engine.requests) == play.n_asked - play.outcomes.count(Outcome.REFUSED)
    assert play.engine.open_indices == []
