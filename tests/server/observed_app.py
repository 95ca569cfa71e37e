"""The routes that show what was observed, over a scripted engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fastapi import FastAPI

from localspec.engine.events import RequestEvent
from localspec.engine.requests import GenerateRequest, RawPrompt, SamplingParams
from localspec.server import metrics, status_page
from localspec.server.observation import Observation
from localspec.server.service import EngineService, RequestInfo
from localspec.server.settings import ServerSettings
from tests.server.http_client import HttpClient
from tests.server.scripted_engine import PAIR, ScriptedEngine

GREEDY = SamplingParams(temperature=0.0)


@dataclass
class Observed:
    """A service that is observed, and a client of its routes."""

    app: FastAPI
    client: HttpClient
    service: EngineService
    observation: Observation
    engine: ScriptedEngine

    async def reply(self, events: Iterable[RequestEvent], endpoint: str = "/v1/completions") -> None:
        """A request to `endpoint` that the engine answers with `events`, read to its end."""
        self.engine.replies.append(events)
        request = GenerateRequest(RawPrompt("a"), GREEDY)
        async with self.service.generate(request, RequestInfo.of(endpoint, request)) as reply:
            async for _ in reply:
                pass

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds that the engine's thread brings about."""
        async with asyncio.timeout(10):
            while not holds():
                await asyncio.sleep(0.002)


@asynccontextmanager
async def observed(
    engine: ScriptedEngine | None = None, *, n_parallel: int = 2, n_queue: int = 2, starts: bool = True
) -> AsyncIterator[Observed]:
    """All of it, started and stopped."""
    engine = engine or ScriptedEngine()
    service = EngineService(engine, n_parallel=n_parallel, n_queue=n_queue)
    app = FastAPI()
    app.state.service, app.state.settings = service, ServerSettings()
    app.state.observation = Observation(service)
    for module in (metrics, status_page):
        app.include_router(module.router)
    if starts:
        await service.start(PAIR)
    yield Observed(app, HttpClient(app), service, app.state.observation, engine)
    await service.stop(0.0)
