"""llama.cpp's endpoints over a scripted engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from localspec.engine.events import Loaded
from localspec.engine.requests import GenerateRequest
from localspec.server.app import create_app
from localspec.server.service import EngineService
from localspec.server.settings import ServerSettings
from tests.server.http_client import Exchange, HttpClient
from tests.server.scripted_engine import FACTS, LOADED, PAIR, ScriptedEngine

# A model that can fill in.
FILLS_IN: Loaded = replace(LOADED, about=replace(FACTS, fills_in=True))


@dataclass
class NativeEndpoint:
    """The endpoint and the engine behind it."""

    engine: ScriptedEngine
    service: EngineService
    client: HttpClient

    async def post(self, path: str, body: Any = None, **more: Any) -> Exchange:
        return await self.client.post(path, body, **more)

    async def get(self, path: str) -> Exchange:
        return await self.client.get(path)

    @property
    def asked(self) -> GenerateRequest:
        """The request that the engine got last."""
        return self.engine.requests[-1]


@asynccontextmanager
async def native_endpoint(
    loaded: Loaded = FILLS_IN, *, settings: ServerSettings | None = None, is_loading: bool = False, **engine: Any
) -> AsyncIterator[NativeEndpoint]:
    """An endpoint that has loaded the pair, unless it `is_loading`."""
    settings = settings or ServerSettings()
    scripted = ScriptedEngine(load_events=() if is_loading else (loaded,), **engine)
    service = EngineService(scripted, n_parallel=settings.n_parallel, n_queue=settings.n_queue)
    app = create_app(service, settings)
    try:
        if not is_loading:
            await service.start(PAIR)
        yield NativeEndpoint(scripted, service, HttpClient(app))
    finally:
        scripted.close()
