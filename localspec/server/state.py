"""What every route needs, as parameters that FastAPI fills in:

async def route(body: ChatRequest, service: Service, settings: Settings) -> Response: ...
"""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Request

from localspec.server.observation import Observation
from localspec.server.service import EngineService
from localspec.server.settings import ServerSettings

__all__ = ["Observed", "Service", "Settings", "model_name"]


# `async`, though nothing is awaited: FastAPI gives other functions a thread each time.
async def _service(request: Request) -> EngineService:
    return cast(EngineService, request.app.state.service)


async def _settings(request: Request) -> ServerSettings:
    return cast(ServerSettings, request.app.state.settings)


async def _observation(request: Request) -> Observation:
    return cast(Observation, request.app.state.observation)


Service = Annotated[EngineService, Depends(_service)]
Settings = Annotated[ServerSettings, Depends(_settings)]
Observed = Annotated[Observation, Depends(_observation)]


def model_name(service: EngineService, settings: ServerSettings) -> str:
    """The id that the model is served by.

    Raises:
        StillLoadingError: none is loaded yet.
    """
    return settings.model_alias or service.require_loaded().target_name
