"""Five hundred clients over real sockets, most of them rude, and an engine that is killed again and again.

The seed is printed; LOCALSPEC_SOAK_SEED repeats what the clients do, not what the clock does.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import astuple, dataclass, field
from typing import Any, Final

import httpx2
import psutil
import pytest

from localspec.engine.client import RequestListener
from localspec.engine.events import Cancelled, Failed, Finished, RequestEvent, TerminalEvent
from localspec.engine.requests import GenerateRequest
from localspec.errors import ContextFullError, EngineDiedError
from localspec.server.replies import Replies
from localspec.server.service import RequestInfo
from tests.server.conftest import Served
from tests.server.soak_client import N_CTX, Leave, Plan, Seen, ask, asking, plan_of

pytestmark = [pytest.mark.native, pytest.mark.slow]

N_REQUESTS: Final = 500
N_PARALLEL: Final = 4
N_QUEUE: Final = 8
N_CLIENTS: Final = 12  # at once; some of them are refused
N_KILLS: Final = 6
# The engine is killed up to here, and then watched over the same life.
LAST_KILL: Final = N_REQUESTS * 6 // 10
# What may be resident in addition: allocators keep some of what they once had. A request of this soak that was kept,
# with its events, would take some 10 kB, and its place in a KV cache more.
SERVER_GROWTH: Final = 8 << 20
ENGINE_GROWTH: Final = 8 << 20


@dataclass
class Record:
    """What went into the engine, and how it ended, seen from outside of the service."""

    admitted: dict[str, GenerateRequest] = field(default_factory=dict)
    ends: defaultdict[str, list[TerminalEvent]] = field(default_factory=lambda: defaultdict(list))
    n_asked: int = 0  # of the service, in replies
    n_before: Counter[str] = field(default_factory=Counter)  # by outcome, when the record began

    def watch(self, served: Served) -> None:
        """Stand between the endpoint, its service and its engine."""
        assert served.service is not None
        submit, generate_all = served.engine.submit, served.service.generate_all

        def submit_and_record(request: GenerateRequest, listener: RequestListener) -> None:
            def on_event(event: RequestEvent) -> None:
                if isinstance(event, Finished | Cancelled | Failed):
                    self.ends[event.request_id].append(event)
                listener(event)

            assert request.request_id not in self.admitted
            self.admitted[request.request_id] = request
            submit(request, on_event)

        def count_and_generate(requests: Sequence[GenerateRequest], info: RequestInfo) -> Replies:
            self.n_asked += len(requests)
            return generate_all(requests, info)

        served.engine.submit = submit_and_record  # type: ignore[method-assign]
        served.service.generate_all = count_and_generate  # type: ignore[method-assign]

    def ends_of(self, plan: Plan) -> list[TerminalEvent]:
        """How the requests of one client ended; each has ended exactly once."""
        ids = [name for name, request in self.admitted.items() if plan.marker in repr(request.prompt)]
        assert all(len(self.ends[name]) == 1 for name in ids)
        return [self.ends[name][0] for name in ids]


@dataclass(frozen=True)
class Footprint:
    """What is held."""

    server_bytes: int
    engine_bytes: int
    engine_id: int | None

    @classmethod
    def of(cls, served: Served) -> Footprint:
        engine_id = served.engine.process_id
        assert engine_id is not None
        return cls(psutil.Process().memory_info().rss, psutil.Process(engine_id).memory_info().rss, engine_id)


@dataclass(frozen=True)
class Handles:
    """What is open: descriptors, threads of the engine's client, tasks of the endpoint, child processes."""

    n_files: int
    n_engine_threads: int
    n_tasks: int
    n_children: int

    @classmethod
    def of(cls, served: Served) -> Handles:
        assert served.service is not None
        assert served.service._loop is not None
        process = psutil.Process()
        return cls(
            process.num_fds() if hasattr(process, "num_fds") else process.num_handles(),
            sum(thread.name.startswith("engine-") for thread in threading.enumerate()),
            len(asyncio.all_tasks(served.service._loop)),
            len(process.children()),
        )

    def exceed(self, before: Handles) -> bool:
        """Whether there are more of any kind than before."""
        return any(now > then for now, then in zip(astuple(self), astuple(before), strict=True))


@pytest.fixture
def seed() -> int:
    chosen = int(os.environ.get("LOCALSPEC_SOAK_SEED") or random.randrange(1 << 32))
    print(f"LOCALSPEC_SOAK_SEED={chosen}")
    return chosen


async def test_five_hundred_clients_and_a_dying_engine(serve: Callable[..., Served], seed: int) -> None:
    served = serve(n_ctx=N_CTX, n_parallel=N_PARALLEL, n_queue=N_QUEUE, keep_alive_s=0.05, request_timeout_s=60)
    chance = random.Random(seed)
    plans = [plan_of(number, chance) for number in range(N_REQUESTS)]
    soak = Soak(served, sorted(chance.sample(range(10, LAST_KILL), N_KILLS)))
    async with httpx2.AsyncClient(base_url=served.url, timeout=30) as http:
        await every_place_can_be_taken(served, http)  # and everything is there that stays
        await asyncio.sleep(0.3)  # for connections that are being closed
        before = Handles.of(served)
        await soak.run(plans)
        await until(lambda: not Handles.of(served).exceed(before), what=lambda: f"{before} -> {Handles.of(served)}")
        await every_place_can_be_taken(served, http)
    assert soak.n_kills == N_KILLS
    assert soak.footprints[-1].engine_id == soak.footprints[1].engine_id
    assert soak.footprints[-1].server_bytes - soak.footprints[0].server_bytes < SERVER_GROWTH
    assert soak.footprints[-1].engine_bytes - soak.footprints[1].engine_bytes < ENGINE_GROWTH
    await soak.every_request_has_one_outcome()
    await soak.revives()


@dataclass
class Soak:
    """The clients, the killing, and what came of them."""

    served: Served
    kills_at: list[int]  # after so many clients
    record: Record = field(default_factory=Record)
    seen: dict[int, Seen] = field(default_factory=dict)
    footprints: list[Footprint] = field(default_factory=list)  # after a third, after the last third began, at the end
    n_kills: int = 0

    async def run(self, plans: list[Plan]) -> None:
        """All clients, `N_CLIENTS` at a time."""
        self.record.n_before = await outcomes(self.served)
        self.record.watch(self.served)
        self.plans = plans
        for first, last in ((0, N_REQUESTS // 3), (N_REQUESTS // 3, N_REQUESTS * 3 // 4), (N_REQUESTS * 3 // 4, None)):
            waiting = iter(plans[first:last])
            async with asyncio.timeout(120):
                await asyncio.gather(*(self._client(waiting) for _ in range(N_CLIENTS)))
                await until(lambda: not self.served.service.open_requests)
                await self._answers()  # the engine is there to be looked at
            self.footprints.append(Footprint.of(self.served))

    async def _client(self, plans: Any) -> None:
        for plan in plans:
            if self.kills_at and plan.number >= self.kills_at[0]:
                self.kills_at.pop(0)
                await self._kill()
            seen = self.seen[plan.number] = await ask(port_of(self.served), plan)
            if seen.status == 429:
                await asyncio.sleep(0.2)

    async def _answers(self) -> None:
        """The next request after whatever happened is answered, if need be by a new engine."""
        body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 5}
        async with asking(port_of(self.served), "/v1/chat/completions", body) as reader:
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ")

    async def _kill(self) -> None:
        """In the middle of something: of replies, or of a load after another kill."""
        while (process_id := self.served.engine.process_id) is None or not self.served.service.open_requests:
            await asyncio.sleep(0.001)
        psutil.Process(process_id).kill()
        self.n_kills += 1

    async def revives(self) -> None:
        """An engine that died while nobody asked is started again by who does."""
        process_id = self.served.engine.process_id
        assert process_id is not None
        psutil.Process(process_id).kill()
        await until(lambda: self.served.engine.process_id is None)
        await self._answers()
        assert self.served.engine.process_id not in (None, process_id)

    async def every_request_has_one_outcome(self) -> None:
        """By the engine's ends, by the server's count and by what the clients saw."""
        ends = Counter(type(end).__name__.lower() for each in self.record.ends.values() for end in each)
        n_admitted = len(self.record.admitted)
        assert ends.total() == n_admitted
        n_refused = self.record.n_asked - n_admitted
        assert await outcomes(self.served) - self.record.n_before == Counter(refused=n_refused) + ends
        for plan in self.plans:
            check(plan, self.seen[plan.number], self.record.ends_of(plan))
        kinds = Counter(
            type(end.error) for each in self.record.ends.values() for end in each if isinstance(end, Failed)
        )
        assert set(kinds) <= {ContextFullError, EngineDiedError}
        assert kinds[EngineDiedError] >= N_KILLS
        # All of it really happened.
        assert min(ends["finished"], ends["cancelled"], ends["failed"], n_refused) > 5, (ends, n_refused)


def check(plan: Plan, seen: Seen, ends: list[TerminalEvent]) -> None:
    """What a client saw is what became of its requests."""
    what = f"{plan} {seen} {ends}"[:3000]
    if plan.leave is Leave.IN_THE_REQUEST:
        assert not ends, what
        return
    assert len(ends) in (0, plan.n_choices), what
    if seen.left:
        return
    if seen.status == 429:
        assert (seen.error, ends) == ("queue_full", []), what
        assert re.search(rb"\r\nretry-after: [1-9]\d*", seen.headers), what
        return
    assert len(ends) == plan.n_choices, what
    errors = [end.error for end in ends if isinstance(end, Failed)]
    if seen.error is None:
        assert seen.status == 200, what
        assert all(isinstance(end, Finished) for end in ends), what
    elif seen.error in ("context_length_exceeded", "invalid_prompt"):  # as /v1/responses calls it in a stream
        assert any(isinstance(error, ContextFullError) for error in errors), what
    else:
        assert seen.error in ("engine_died", "server_error"), what
        assert any(isinstance(error, EngineDiedError) for error in errors), what
        assert seen.status == (200 if plan.is_streamed and seen.status == 200 else 500), what


# --- the endpoint, seen from outside -------------------------------------------------------------------------------


def port_of(served: Served) -> int:
    return int(served.url.rpartition(":")[2])


async def until(holds: Callable[[], bool], what: Callable[[], str] = str, seconds: float = 20.0) -> None:
    """Wait for it. `what`: the state of things, should it not come."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, what()
        await asyncio.sleep(0.002)


async def metric(http: httpx2.AsyncClient, name: str) -> dict[str, float]:
    """The values of a metric, by its labels."""
    text = (await http.get("/metrics")).raise_for_status().text
    return {
        labels: float(value)
        for labels, value in re.findall(rf"^localspec:{name}(?:\{{(.*)\}})? (\S+)$", text, re.MULTILINE)
    }


async def outcomes(served: Served) -> Counter[str]:
    """How many requests have ended in which way."""
    counts: Counter[str] = Counter()
    async with httpx2.AsyncClient(base_url=served.url, timeout=30) as http:
        for labels, value in (await metric(http, "requests_total")).items():
            found = re.search('outcome="(.*?)"', labels)
            assert found is not None
            counts[found[1]] += int(value)
    return counts


async def every_place_can_be_taken(served: Served, http: httpx2.AsyncClient) -> None:
    """`N_PARALLEL` replies run at once while `N_QUEUE` requests wait, one more is refused; then all places are free."""
    assert served.service is not None
    # As long as all that run at once find room for.
    body = {"prompt": "Once", "n_predict": N_CTX // N_PARALLEL - 100, "stream": True, "ignore_eos": True}
    engine = psutil.Process(served.engine.process_id)
    engine.suspend()  # so that nothing ends meanwhile
    try:
        async with AsyncExitStack() as connections:
            for _ in range(N_PARALLEL + N_QUEUE):
                await connections.enter_async_context(asking(port_of(served), "/completion", body))
            await until(lambda: len(served.service.open_requests) == N_PARALLEL + N_QUEUE)
            refused = await http.post("/completion", json=body)
            assert refused.status_code == 429
            assert int(refused.headers["retry-after"]) >= 1
            engine.resume()
            async with asyncio.timeout(20):
                while await busy_slots(http) != [True] * N_PARALLEL:
                    assert served.service.open_requests
    finally:
        engine.resume()
    await until(lambda: not served.service.open_requests)
    assert await busy_slots(http) == [False] * N_PARALLEL
    assert await metric(http, "requests_processing") == await metric(http, "requests_deferred") == {"": 0}


async def busy_slots(http: httpx2.AsyncClient) -> list[bool]:
    """Whether a request runs in each slot."""
    slots = (await http.get("/slots")).raise_for_status().json()
    assert all(("id_task" in slot) <= slot["is_processing"] for slot in slots)
    return [slot["is_processing"] for slot in slots]
