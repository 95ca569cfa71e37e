"""llama.cpp's `/tokenize` and `/detokenize`: what the model makes of text, and back."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final, cast

from fastapi import APIRouter
from pydantic import AfterValidator, BaseModel, Field, WithJsonSchema

from localspec.engine.questions import Detokenize, Tokenize
from localspec.engine.requests import RawPrompt
from localspec.server.bodies import RequestBody
from localspec.server.errors import RefusedFieldError
from localspec.server.native_prompts import TextOrTokens, parse_text_or_tokens
from localspec.server.service import EngineService
from localspec.server.state import Service

__all__ = ["check_tokens", "router", "text_of_tokens"]

router = APIRouter(tags=["llama.cpp"])

# Tokenizing stops the replies that run for as long as it takes: a second or so at these sizes.
_MAX_CHARACTERS: Final = 1 << 20
_MAX_TOKENS: Final = 1 << 20
_MAX_TEXTS: Final = 256
# Each different token is a question of its own.
_MAX_PIECES: Final = 16_384
_PIECES_AT_ONCE: Final = 16


def _content(value: Any) -> TextOrTokens:
    content = parse_text_or_tokens(value)
    texts = [content.text] if isinstance(content, RawPrompt) else [p for p in content.parts if isinstance(p, str)]
    if sum(map(len, texts)) > _MAX_CHARACTERS:
        raise ValueError(f"it may have at most {_MAX_CHARACTERS} characters")
    if len(texts) > _MAX_TEXTS:
        raise ValueError(f"it may have at most {_MAX_TEXTS} texts")
    return content


_PART_SCHEMA: Final = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]}


class TokenizeBody(RequestBody):
    """`add_special`: with what the model wants around a text; `with_pieces`: tokens with the text of each."""

    content: Annotated[
        Any,
        AfterValidator(_content),
        WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": _PART_SCHEMA}]}),
    ]
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False
    model: str | None = None


class TokenPiece(BaseModel):
    """A token and its text; its bytes, where these alone are no text."""

    id: int
    piece: str | list[int]


class TokenizeAnswer(BaseModel):
    """The tokens, as ids or with their pieces."""

    tokens: list[int] | list[TokenPiece]


class DetokenizeBody(RequestBody):
    """Tokens of the model that is served."""

    tokens: Annotated[list[Annotated[int, Field(ge=0, le=2**31 - 1)]], Field(max_length=_MAX_TOKENS)]
    model: str | None = None


class DetokenizeAnswer(BaseModel):
    """The text; bytes that are none become U+FFFD."""

    content: str


@router.post("/tokenize")
async def tokenize(body: TokenizeBody, service: Service) -> TokenizeAnswer:
    """The tokens of a text, or of an array of texts and token ids."""
    content = cast(TextOrTokens, body.content)
    parts = (content.text,) if isinstance(content, RawPrompt) else content.parts
    check_tokens(service, "content", [part for part in parts if isinstance(part, int)])
    tokens: list[int] = []
    for index, part in enumerate(parts):
        if isinstance(part, int):
            tokens.append(part)
        else:
            question = Tokenize(part, add_special=body.add_special and index == 0, parse_special=body.parse_special)
            tokens.extend(cast(tuple[int, ...], await service.ask(question)))
    if not body.with_pieces:
        return TokenizeAnswer(tokens=tokens)
    pieces = await _pieces(service, tokens)
    return TokenizeAnswer(tokens=[TokenPiece(id=token, piece=pieces[token]) for token in tokens])


@router.post("/detokenize")
async def detokenize(body: DetokenizeBody, service: Service) -> DetokenizeAnswer:
    """The text that tokens stand for, special tokens written out."""
    check_tokens(service, "tokens", body.tokens)
    return DetokenizeAnswer(content=await text_of_tokens(service, body.tokens))


def check_tokens(service: EngineService, param: str, tokens: list[int]) -> None:
    """Refuse ids that the model does not have.

    Raises:
        RefusedFieldError: names the first of them.
        StillLoadingError: there is no model yet.
    """
    n_vocab = service.require_loaded().n_vocab
    unknown = next((token for token in tokens if token >= n_vocab), None)
    if unknown is not None:
        raise RefusedFieldError(
            f"{param} has the token {unknown}; the model's tokens are 0 to {n_vocab - 1}.", param=param
        )


async def text_of_tokens(service: EngineService, tokens: list[int]) -> str:
    """The text of tokens that the model has."""
    return cast(bytes, await service.ask(Detokenize(tuple(tokens)))).decode("utf-8", "replace")


async def _pieces(service: EngineService, tokens: list[int]) -> dict[int, str | list[int]]:
    distinct = sorted(set(tokens))
    if len(distinct) > _MAX_PIECES:
        raise RefusedFieldError(
            f"content has {len(distinct)} different tokens; with_pieces is for at most {_MAX_PIECES}.",
            param="with_pieces",
            hint="Ask for the tokens alone, or for parts of the text.",
        )
    pieces: dict[int, str | list[int]] = {}
    for start in range(0, len(distinct), _PIECES_AT_ONCE):
        some = distinct[start : start + _PIECES_AT_ONCE]
        answers = await asyncio.gather(*(service.ask(Detokenize((token,))) for token in some))
        pieces.update((token, _piece(cast(bytes, answer))) for token, answer in zip(some, answers, strict=True))
    return pieces


def _piece(piece: bytes) -> str | list[int]:
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError:
        return list(piece)
