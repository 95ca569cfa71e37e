"""`POST /infill`: code between what stands before and after the cursor, as llama.vim and llama.vscode ask for it."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from localspec.engine.requests import ExtraFile, InfillPrompt
from localspec.server.bodies import RequestBody
from localspec.server.errors import NotServedError
from localspec.server.native_completion import answer_natively
from localspec.server.native_requests import NativeFields
from localspec.server.state import Service, Settings

__all__ = ["router"]

router = APIRouter(tags=["llama.cpp"])

_MAX_FILES: Final = 1024
_MAX_NAME_CHARACTERS: Final = 4096
# What llama.cpp calls a piece of context that has no name.
_UNNAMED: Final = "tmp"


class ExtraContext(RequestBody):
    """A piece of another file. `time`: when the editor saw it, for itself."""

    text: str
    filename: Annotated[str, Field(max_length=_MAX_NAME_CHARACTERS)] = _UNNAMED
    time: Any = None


class InfillBody(NativeFields):
    """llama.cpp's options, and the surroundings of a gap. `prompt`: text after the prefix that the reply goes on from.

    `n_predict` 0 only reads them into the cache, so that the next completion begins sooner.
    """

    input_prefix: str
    input_suffix: str
    prompt: str = ""
    input_extra: Annotated[tuple[ExtraContext, ...], Field(max_length=_MAX_FILES, strict=False)] = ()


@router.post("/infill", response_model=None)
async def infill(request: Request, body: InfillBody, service: Service, settings: Settings) -> Response:
    """One object for a result, an array for several; or a stream of objects, as from `/completion`."""
    loaded = service.require_loaded()
    if loaded.about is not None and not loaded.about.fills_in:
        raise NotServedError(
            f"Infill is not supported by this model: {loaded.target_name} has no fill-in-the-middle tokens.",
            hint="Serve a model for code that has them, such as Qwen2.5-Coder.",
        )
    extra = tuple(ExtraFile(piece.filename, piece.text) for piece in body.input_extra)
    prompt = InfillPrompt(body.input_prefix, body.input_suffix, body.prompt, extra)
    requests = await body.requests([prompt], service, settings)
    return await answer_natively(request, body, requests, [body.prompt], service, settings)
