"""/v1/embeddings: vectors of length 1, by a model that was made for that."""

from __future__ import annotations

import base64
import struct
from typing import Annotated, Any, Final, Literal, cast

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import Discriminator, Field, Tag

from localspec.engine.questions import Embed, Embedding
from localspec.engine.requests import MixedPrompt, RawPrompt
from localspec.errors import ContextFullError, UsageError
from localspec.server.bodies import RequestBody
from localspec.server.chat_request import Label
from localspec.server.errors import NotServedError, RefusedFieldError
from localspec.server.service import EngineService
from localspec.server.state import Service, Settings, model_name
from localspec.server.streaming import CLIENT_GONE

__all__ = ["EmbeddingRequest", "router"]

router = APIRouter(tags=["OpenAI"])

# OpenAI's bounds.
_MAX_TEXTS: Final = 2048
_Token = Annotated[int, Field(ge=0, le=2**31 - 1)]
_Text = Annotated[str, Field(min_length=1)]
_Tokens = Annotated[list[_Token], Field(min_length=1)]


def _form(value: object) -> str:
    """Which form of input is meant: an error is about that one. The brackets keep it out of the field's name."""
    if isinstance(value, str):
        return "[text]"
    first = value[0] if isinstance(value, list) and value else None
    return "[tokens]" if isinstance(first, int) else "[token lists]" if isinstance(first, list) else "[texts]"


_Input = Annotated[
    Annotated[_Text, Tag("[text]")]
    | Annotated[list[_Text], Field(min_length=1, max_length=_MAX_TEXTS), Tag("[texts]")]
    | Annotated[_Tokens, Tag("[tokens]")]
    | Annotated[list[_Tokens], Field(min_length=1, max_length=_MAX_TEXTS), Tag("[token lists]")],
    Discriminator(_form),
]


class EmbeddingRequest(RequestBody):
    """OpenAI's request. `input`: a text, a list of texts, the tokens of one text, or a list of such."""

    model: Label | None = None
    input: _Input
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(ge=1)] | None = None
    user: Label | None = None

    def prompts(self) -> list[RawPrompt | MixedPrompt]:
        """Each text. Special tokens count, as in the tokenizers that such models were trained with."""
        given = self.input
        if isinstance(given, str):
            return [RawPrompt(given, parse_special=True)]
        if isinstance(given[0], int):
            return [MixedPrompt(tuple(given))]
        return [
            RawPrompt(each, parse_special=True) if isinstance(each, str) else MixedPrompt(tuple(each)) for each in given
        ]


@router.post("/v1/embeddings")
@router.post("/embeddings", include_in_schema=False)
async def create_embeddings(body: EmbeddingRequest, request: Request, service: Service, settings: Settings) -> Response:
    """Embeddings of one or more texts."""
    loaded = service.require_loaded()
    if loaded.about is None or not loaded.about.embeds:
        raise _not_made_for_it(model_name(service, settings))
    n_embd = loaded.about.n_embd
    if body.dimensions not in (None, n_embd):
        raise RefusedFieldError(
            f"dimensions is {body.dimensions}; this model has {n_embd} and cannot give others.", param="dimensions"
        )
    embeddings = await _embed(request, service, body.prompts())
    if embeddings is None:
        return Response(status_code=CLIENT_GONE)
    n_tokens = sum(embedding.n_tokens for embedding in embeddings)
    return JSONResponse(
        {
            "object": "list",
            "data": [
                {"object": "embedding", "index": index, "embedding": _encoded(embedding, body.encoding_format)}
                for index, embedding in enumerate(embeddings)
            ],
            "model": model_name(service, settings),
            "usage": {"prompt_tokens": n_tokens, "total_tokens": n_tokens},
        }
    )


async def _embed(
    request: Request, service: EngineService, prompts: list[RawPrompt | MixedPrompt]
) -> list[Embedding] | None:
    """One question for each text: between two of them, replies that run go on. None: the client has gone."""
    embeddings: list[Embedding] = []
    for index, prompt in enumerate(prompts):
        if await request.is_disconnected():
            return None
        try:
            answer = await service.ask(Embed((prompt,)))
        except (ContextFullError, UsageError) as error:
            param = "input" if len(prompts) == 1 else f"input.{index}"
            code = "context_length_exceeded" if isinstance(error, ContextFullError) else "invalid_value"
            raise RefusedFieldError(error.message, param=param, code=code, hint=error.hint) from error
        embeddings.extend(cast(tuple[Embedding, ...], answer))
    return embeddings


def _encoded(embedding: Embedding, encoding: str) -> Any:
    """A list of numbers, or the bytes of little-endian 32-bit floats in base 64."""
    if encoding == "base64":
        return base64.b64encode(struct.pack(f"<{len(embedding.values)}f", *embedding.values)).decode("ascii")
    return list(embedding.values)


def _not_made_for_it(model: str) -> NotServedError:
    return NotServedError(
        f"{model} was not made for embeddings: its file names no pooling of tokens. Serve a model that was, such as "
        "Qwen3-Embedding, with another `localspec serve` on a --port of its own.",
        param="model",
        code="embeddings_not_supported",
    )
