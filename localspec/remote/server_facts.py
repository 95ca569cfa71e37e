"""What a server says of itself before the first reply: who it is, its model, its context."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from localspec.errors import (
    EndpointAnswerError,
    EndpointError,
    EndpointRefusedError,
    EndpointUnreachableError,
    LocalspecError,
    UsageError,
)
from localspec.printable import one_line
from localspec.remote.connection import Connection

__all__ = ["ServerFacts", "ServerKind", "ask_server"]

_MOST_NAMES: Final = 12  # listed in an error
_LONGEST_NAME: Final = 300
_MAX_CTX: Final = 2**31 - 1
_LOOK_AGAIN_S: Final = 1.0


class ServerKind(Enum):
    """Whose fields it understands, beside OpenAI's."""

    LOCALSPEC = auto()
    LLAMA_CPP = auto()
    VLLM = auto()
    OTHER = auto()


_KINDS: Final = {"localspec": ServerKind.LOCALSPEC, "llamacpp": ServerKind.LLAMA_CPP, "vllm": ServerKind.VLLM}


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """`model` is the name to ask for. None: the server does not say."""

    kind: ServerKind
    model: str
    n_ctx: int | None = None
    draft_name: str | None = None


async def ask_server(
    connection: Connection, model: str | None, *, patience_s: float, on_wait: Callable[[], None]
) -> ServerFacts:
    """Who answers, and as which model; None: the only one that there is.

    A server that still loads its model is asked again, for `patience_s` at most; `on_wait` is called each time.

    Raises:
        UsageError: the server offers several models, or does not say which.
        EndpointError: it cannot be asked.
    """
    deadline = asyncio.get_running_loop().time() + patience_s
    while (offered := await _models_when_loaded(connection, is_needed=model is None)) is None:
        if asyncio.get_running_loop().time() > deadline:
            raise EndpointUnreachableError(
                f"{connection.endpoint.url} still loads its model, after {patience_s:.0f} s.", hint="Try again later."
            )
        on_wait()
        await asyncio.sleep(_LOOK_AGAIN_S)
    entry = _chosen(offered, model, connection.endpoint.url)
    props = await _quietly(connection, "/props")
    meta = _section(entry, "meta")
    settings = _section(props, "default_generation_settings")
    n_ctx = (meta.get("n_ctx"), entry.get("max_model_len"), entry.get("context_length"), settings.get("n_ctx"))
    draft = _section(entry, "speculation").get("draft_model")  # localspec's
    return ServerFacts(
        _kind(entry, props),
        model if model is not None else str(entry["id"]),
        next((n for n in n_ctx if isinstance(n, int) and 0 < n <= _MAX_CTX), None),
        draft if _is_name(draft) else None,
    )


async def _models_when_loaded(connection: Connection, *, is_needed: bool) -> list[dict[str, Any]] | None:
    """The models that a server offers; None: it still loads them, which llama.cpp and localspec say by status 503."""
    try:
        offered = await _models(connection, is_needed=is_needed)
    except EndpointRefusedError as error:
        if _is_loading(error):
            return None
        raise
    try:
        await connection.json(f"{connection.endpoint.root}/health")
    except EndpointRefusedError as error:
        return None if _is_loading(error) else offered
    except EndpointError:  # not every server has it
        pass
    return offered


def _is_loading(error: EndpointRefusedError) -> bool:
    return error.status == 503 and "loading" in error.message.lower()


async def _models(connection: Connection, *, is_needed: bool) -> list[dict[str, Any]]:
    url = f"{connection.endpoint.url}/models"
    try:
        answer = await connection.json(url)
    except EndpointRefusedError as error:
        if error.status in {404, 405, 501} and not is_needed:
            return []  # some servers have no such list
        raise
    entries = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(entries, list):
        raise EndpointAnswerError(
            f"{url} answers with no list of models.",
            hint="Is it an OpenAI-style server? Its address usually ends with /v1.",
        )
    return [each for each in entries if isinstance(each, dict) and _is_name(each.get("id"))]


def _chosen(offered: list[dict[str, Any]], model: str | None, url: str) -> dict[str, Any]:
    if model is not None:
        return next((each for each in offered if model in _names_of(each)), {})
    if len(offered) == 1:
        return offered[0]
    if not offered:
        raise UsageError(f"{url} does not say which models it has.", hint="Name one with --model.")
    names = [one_line(each["id"]) for each in offered]
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    raise UsageError(
        f"{url} has {len(names)} models: {', '.join(names[:_MOST_NAMES])}{more}.", hint="Choose one with --model."
    )


def _names_of(entry: dict[str, Any]) -> Iterator[Any]:
    yield entry["id"]
    aliases = entry.get("aliases")
    yield from aliases if isinstance(aliases, list) else ()


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME


def _kind(entry: dict[str, Any], props: dict[str, Any]) -> ServerKind:
    kind = _KINDS.get(str(entry.get("owned_by")), ServerKind.OTHER)
    is_llama_cpp = "default_generation_settings" in props and "build_info" in props
    return ServerKind.LLAMA_CPP if kind is ServerKind.OTHER and is_llama_cpp else kind


async def _quietly(connection: Connection, path: str) -> dict[str, Any]:
    """What only some servers have."""
    try:
        answer = await connection.json(f"{connection.endpoint.root}{path}")
    except LocalspecError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _section(answer: dict[str, Any], name: str) -> dict[str, Any]:
    section = answer.get(name)
    return section if isinstance(section, dict) else {}
