"""What a client asks of the server before it sends anything: `/health`, `/props`, `/slots`, by llama.cpp's shapes.

What llama-server can be switched on to do, and this endpoint does not do, is refused by name: changing
properties, LoRA adapters, saving and restoring slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, cast

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse

from localspec import __version__
from localspec.engine.questions import AskUsage, EngineUsage, SlotUsage
from localspec.engine.requests import GenerateRequest, Mode, RawPrompt
from localspec.errors import LocalspecError, ShuttingDownError, StillLoadingError, UnavailableError
from localspec.server.errors import NotServedError, error_body, error_response
from localspec.server.generation_settings import generation_settings, sampling_settings
from localspec.server.service import EngineService, OpenRequest, ServiceState
from localspec.server.state import Service, Settings, model_name

__all__ = ["router"]

router = APIRouter(tags=["llama.cpp"])

BUILD_INFO: Final = f"localspec {__version__}"


@router.get("/health")
@router.get("/v1/health", include_in_schema=False)
async def health(service: Service) -> JSONResponse:
    """200 when replies can be asked for; 503 while the models load, and after they could not be loaded."""
    if service.state is ServiceState.READY:
        return JSONResponse({"status": "ok"})
    if service.state is ServiceState.FAILED and service.load_error is not None:
        return JSONResponse(error_body(service.load_error), 503)
    if service.state is ServiceState.STOPPING:
        return error_response(ShuttingDownError("The endpoint is shutting down."))
    return error_response(_still_loading(service))


def _still_loading(service: EngineService) -> LocalspecError:
    try:
        service.require_loaded()
    except StillLoadingError as error:
        return error
    return StillLoadingError("The engine is loading the models again.")


@router.get("/props")
async def props(service: Service, settings: Settings) -> dict[str, Any]:
    """The model, the context and what a request gets that does not say."""
    loaded = service.require_loaded()
    about = loaded.about
    template = (about.chat_template if about else None) or ""
    defaults = GenerateRequest(
        RawPrompt(""),
        settings.sampling,
        mode=settings.mode,
        num_speculative_tokens=settings.num_speculative_tokens,
        fixed_length=settings.fixed_length,
        max_tokens=settings.max_tokens,
    )
    takes_tools = "tools" in template
    return {
        "default_generation_settings": {"params": generation_settings(defaults), "n_ctx": loaded.n_ctx},
        "total_slots": settings.n_parallel,
        "model_alias": model_name(service, settings),
        # The name only: where models lie on this machine is nobody's business.
        "model_path": about.path.name if about else loaded.target_name,
        "modalities": {"vision": False, "video": False, "audio": False},
        "endpoint_slots": True,
        "endpoint_props": False,
        "endpoint_metrics": True,
        "chat_template": template,
        "chat_template_caps": {"supports_tools": takes_tools, "supports_tool_calls": takes_tools},
        "bos_token": about.bos if about else "",
        "eos_token": about.eos if about else "",
        "build_info": BUILD_INFO,
        "is_sleeping": False,
        "localspec": {
            "draft": loaded.draft_name,
            "speculation_note": loaded.speculation_note,
            "fills_in": about.fills_in if about else False,
            "embeds": about.embeds if about else False,
        },
    }


@router.post("/props", include_in_schema=False)
async def change_props() -> None:
    """Refused, as by a llama-server without --props."""
    raise NotServedError("This endpoint does not change its properties.", hint="Start it with other options.")


@router.get("/slots")
async def slots(
    service: Service,
    settings: Settings,
    fail_on_no_slot: Annotated[str | None, Query(description="Anything: 503 when no slot is free.")] = None,
) -> list[dict[str, Any]]:
    """Each slot and the request that runs in it, if one does. Never a word of a prompt or a reply."""
    loaded = service.require_loaded()
    used = await _used_slots(service)
    if fail_on_no_slot and all(slot.request_id is not None for slot in used):
        raise UnavailableError("No slot is free.", hint="Ask again when a reply has ended.")
    running = {opened.request.request_id: opened for opened in service.open_requests}
    speculates = settings.mode is not Mode.PLAIN and not loaded.speculation_note
    return [
        {
            "id": number,
            "n_ctx": loaded.n_ctx,
            "speculative": speculates,
            "is_processing": slot.request_id is not None,
            "n_cached": slot.n_cells,
            **_task(running.get(slot.request_id or "")),
        }
        for number, slot in enumerate(used)
    ]


async def _used_slots(service: EngineService) -> Sequence[SlotUsage]:
    if service.process_id is None:  # a question would start the engine again, which is for requests to do
        return [SlotUsage(0, None)] * service.n_parallel
    return cast(EngineUsage, await service.ask(AskUsage())).slots


def _task(opened: OpenRequest | None) -> dict[str, Any]:
    if opened is None:
        return {}
    request, metrics = opened.request, opened.metrics
    n_decoded = metrics.n_tokens if metrics else 0
    return {
        "id_task": request.request_id,
        "speculative": request.mode is not Mode.PLAIN,
        "n_prompt_tokens": metrics.n_prompt_tokens if metrics else 0,
        "n_prompt_tokens_cache": metrics.n_cached_tokens if metrics else 0,
        "params": sampling_settings(request.sampling),
        "next_token": [
            {
                "has_next_token": True,
                "n_remain": -1 if request.max_tokens is None else max(0, request.max_tokens - n_decoded),
                "n_decoded": n_decoded,
            }
        ],
    }


@router.get("/lora-adapters", include_in_schema=False)
async def lora_adapters() -> list[Any]:
    """There are none."""
    return []


@router.post("/lora-adapters", include_in_schema=False)
async def change_lora_adapters() -> None:
    """Refused: a draft model and LoRA adapters of the target would not fit together."""
    raise NotServedError("This endpoint has no LoRA adapters.", hint="Merge the adapter into the model's file.")


@router.post("/slots/{slot}", include_in_schema=False)
async def act_on_slot(slot: str) -> None:
    """Refused, as by a llama-server without --slot-save-path."""
    del slot
    raise NotServedError(
        "This endpoint does not save, restore or erase slots.",
        hint="The cache of a prompt is kept as long as there is room for it.",
    )
