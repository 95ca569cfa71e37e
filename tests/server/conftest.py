"""Endpoints to test: over a scripted engine, without a socket, and with the tiny pair, over a real one."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field

import pytest

from localspec.engine.client import EngineClient
from localspec.engine.requests import ModelSpec, PairSpec, SamplingParams
from localspec.server.app import create_app
from localspec.server.listening import Endpoint, bind, bound_port
from localspec.server.security import protected
from localspec.server.service import EngineService
from localspec.server.settings import ServerSettings
from tests.native_fixtures import TinyModels
from tests.server.http_client import HttpClient
from tests.server.scripted_engine import PAIR, ScriptedEngine


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    """A scripted engine."""
    scripted = ScriptedEngine()
    yield scripted
    scripted.close()


@pytest.fixture
def settings() -> ServerSettings:
    """Settings of the endpoint over the scripted engine: two replies run, and two more wait."""
    return ServerSettings(n_parallel=2, n_queue=2, keep_alive_s=0.05)


@pytest.fixture
async def service(engine: ScriptedEngine, settings: ServerSettings) -> AsyncIterator[EngineService]:
    """The service over the scripted engine, loaded."""
    started = EngineService(
        engine,
        n_parallel=settings.n_parallel,
        n_queue=settings.n_queue,
        request_timeout_s=settings.request_timeout_s,
    )
    await started.start(PAIR)
    yield started
    await started.stop(0)


@pytest.fixture
def client(service: EngineService, settings: ServerSettings) -> HttpClient:
    """A client of the whole application over the scripted engine."""
    return HttpClient(protected(create_app(service, settings), settings))


@dataclass
class Served:
    """An endpoint that runs in a thread. `stop` ends it as a signal would."""

    settings: ServerSettings
    engine: EngineClient
    pair: PairSpec
    url: str = ""
    service: EngineService | None = None
    is_ready: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        sockets = bind("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{bound_port(sockets)}"
        self.thread = threading.Thread(target=lambda: asyncio.run(self._run(sockets)), name="served", daemon=True)
        self.thread.start()
        deadline = time.monotonic() + 60
        while not self.is_ready.wait(0.1):
            assert self.thread.is_alive(), "the endpoint does not start"
            assert time.monotonic() < deadline, "the endpoint takes too long to start"

    async def _run(self, sockets: list) -> None:
        self.service = EngineService(
            self.engine,
            n_parallel=self.settings.n_parallel,
            n_queue=self.settings.n_queue,
            request_timeout_s=self.settings.request_timeout_s,
        )
        app = protected(create_app(self.service, self.settings), self.settings)
        self.endpoint = Endpoint(app, self.service, self.settings, logs_requests=False)
        serving = asyncio.create_task(self.endpoint.serve(sockets=sockets))
        await self.service.start(self.pair)
        self.is_ready.set()
        await serving

    def stop(self) -> None:
        self.endpoint.should_exit = True
        self.thread.join(60)
        assert not self.thread.is_alive()


@pytest.fixture(scope="module")
def serve(tiny_models: TinyModels) -> Iterator[Callable[..., Served]]:
    """Starts endpoints with the tiny pair and these settings, `serve(n_parallel=2)`; ended after the module's tests."""
    started: list[Served] = []

    def start(*, n_ctx: int = 512, **changes: object) -> Served:
        settings = ServerSettings(**{"sampling": SamplingParams(seed=1), "shutdown_s": 1.0, **changes})
        target, draft = ModelSpec(tiny_models.target), ModelSpec(tiny_models.draft)
        pair = PairSpec("tiny", target, draft, n_ctx=n_ctx, n_threads=1, n_slots=settings.n_parallel)
        started.append(Served(settings, EngineClient(), pair))
        return started[-1]

    yield start
    for served in started:
        served.stop()
