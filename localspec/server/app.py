"""The endpoint as an ASGI application: routes and error objects over one `EngineService`.

Routes get what they need as parameters of the types `Service`, `Settings` and `Observed` of `localspec.server.state`.
Keys, hosts and bodies are checked in front of it: see `protected` in `localspec.server.security`.
"""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.routing import APIRoute

import localspec
from localspec.server import (
    apply_template,
    chat,
    completions,
    embeddings,
    infill,
    metrics,
    models,
    native_completion,
    props,
    responses,
    status_page,
    tokens,
)
from localspec.server.errors import add_error_handlers
from localspec.server.observation import Observation
from localspec.server.service import EngineService
from localspec.server.settings import ServerSettings

__all__ = ["create_app"]

_OPENAI = (models, chat, completions, responses, embeddings)
_LLAMA_CPP = (native_completion, infill, tokens, apply_template, props)
_OPERATION = (metrics, status_page)


def create_app(service: EngineService, settings: ServerSettings) -> FastAPI:
    """The application. The caller starts and stops the service; until it is loaded, requests get a 503."""
    app = FastAPI(
        title="localspec",
        version=localspec.__version__,
        summary="A local model with speculative decoding, for clients of OpenAI and llama.cpp.",
        generate_unique_id_function=_operation_id,
    )
    app.state.service = service
    app.state.settings = settings
    app.state.observation = Observation(service, threshold=settings.acceptance_threshold)
    add_error_handlers(app)
    for module in (*_OPENAI, *_LLAMA_CPP, *_OPERATION):
        app.include_router(module.router)
    return app


def _operation_id(route: APIRoute) -> str:
    """One function may serve several paths and methods, and each is an operation."""
    return "_".join([*sorted(route.methods or ()), route.name, *route.path_format.strip("/").split("/")]).lower()
