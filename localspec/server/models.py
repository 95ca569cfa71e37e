"""GET /v1/models: the one model that is served, with the numbers that editors size their prompts by."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.exceptions import HTTPException

from localspec.engine.events import Loaded
from localspec.server.service import EngineService
from localspec.server.settings import ServerSettings
from localspec.server.state import Service, Settings, model_name

__all__ = ["router"]

router = APIRouter(tags=["models"])


@router.get("/v1/models")
@router.get("/models")
async def list_models(service: Service, settings: Settings) -> dict[str, Any]:
    """OpenAI's list, and the one of llama-server, which some clients read."""
    card = _card(service, settings)
    capabilities = ["completion"]
    if card["capabilities"]["embeddings"]:
        capabilities.append("embedding")
    native = {
        "name": card["id"],
        "model": card["id"],
        "type": "model",
        "capabilities": capabilities,
        "details": {"format": "gguf"},
    }
    return {"object": "list", "data": [card], "models": [native]}


@router.get("/v1/models/{model_id:path}")
@router.get("/models/{model_id:path}")
async def get_model(model_id: str, service: Service, settings: Settings) -> dict[str, Any]:
    """The model, by its id.

    Raises:
        HTTPException: another id.
    """
    card = _card(service, settings)
    if model_id != card["id"]:
        raise HTTPException(404, f"The model {model_id[:200]!r} is not served here; {card['id']!r} is")
    return card


def _card(service: EngineService, settings: ServerSettings) -> dict[str, Any]:
    loaded = service.require_loaded()
    return {
        "id": model_name(service, settings),
        "object": "model",
        "created": service.loaded_at,
        "owned_by": "localspec",
        "meta": _meta(loaded),
        "capabilities": {
            "infill": bool(loaded.about and loaded.about.fills_in),
            "embeddings": bool(loaded.about and loaded.about.embeds),
            "chat_template": loaded.has_chat_template,
        },
        "speculation": {
            "mode": settings.mode.value,
            "draft_model": loaded.draft_name,
            "num_speculative_tokens": settings.num_speculative_tokens,
            "note": loaded.speculation_note,
        },
    }


def _meta(loaded: Loaded) -> dict[str, int]:
    """By llama-server's names; sizes in bytes."""
    meta = {"n_vocab": loaded.n_vocab, "n_ctx": loaded.n_ctx}
    if loaded.about is not None:
        meta |= {
            "n_ctx_train": loaded.about.n_ctx_train,
            "n_embd": loaded.about.n_embd,
            "n_params": loaded.about.n_parameters,
            "size": loaded.about.weights_bytes,
        }
    return meta
