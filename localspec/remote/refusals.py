"""What a server says in place of an answer: its status and its error object, as an error that helps."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

from localspec.config import ENDPOINT_KEY_VARIABLE
from localspec.errors import ContextFullError, EndpointRefusedError, LocalspecError
from localspec.printable import one_line
from localspec.remote.endpoint import Endpoint

__all__ = ["error_in", "error_of", "refusal"]

_MOST_SHOWN: Final = 300
_LONGEST_WAIT_S: Final = 86_400.0
# How llama-server, OpenAI and vLLM say that a prompt is too long.
_CONTEXT_SIGNS: Final = re.compile(
    r"exceed_context_size|context_length_exceeded|maximum context length|exceeds? the available context", re.IGNORECASE
)

_KEY_IS_MISSING: Final = (
    f"It wants a key: put it into {ENDPOINT_KEY_VARIABLE}, or name its variable with --api-key-env."
)
_KEY_IS_WRONG: Final = f"Check the key ({ENDPOINT_KEY_VARIABLE}, or the variable of --api-key-env) and what it allows."
_MODEL_IS_WRONG: Final = "Name a model that it has with --model."
_ADDRESS_IS_WRONG: Final = "Check the address: it usually ends with /v1."
_OBJECTS: Final = "Change what it objects to, or start a new chat."
_IN_TROUBLE: Final = "Try again; if it happens again, the server's own log has the details."
_HINTS: Final = {
    407: "The proxy wants a name and password: HTTPS_PROXY=http://name:password@host:port",
    408: "It took too long: send the prompt again, or a shorter one.",
    413: "The chat is too long for it: start a new one.",
    504: "It took too long: send the prompt again, or a shorter one.",
}


def error_in(answer: Any) -> Any:
    """The error object of an answer, or its text; None where it has none.

    The forms of OpenAI (`error` with `message`), of Ollama (`error` is the text), of FastAPI (`detail`), and of old
    versions of vLLM (`object` is "error").
    """
    if not isinstance(answer, dict):
        return None
    if answer.get("error"):
        return answer["error"]
    if answer.get("object") == "error":
        return answer
    return answer.get("detail")


def error_of(body: str) -> Any:
    """The error of an answer that is one, by its status or its name: its error object, or whatever else it holds."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        text = body.strip()
        return None if text.startswith("<") else text  # a web page is nothing to show
    return error_in(answer) or answer


def refusal(
    endpoint: Endpoint, error: Any, *, status: int | None = None, headers: Mapping[str, str] | None = None
) -> LocalspecError:
    """The error for what `error_in` found. `status` None: it came in the middle of a reply that had begun well.

    What the server says is shortened, without control characters, and without the key, which some repeat.
    """
    headers = headers or {}
    code = status if status not in {None, 200} else _code_in(error)
    said = _words(error, endpoint.key)
    if code in {None, 400, 413, 422} and _CONTEXT_SIGNS.search(f"{said} {_kind(error)}"):
        return _context_full(endpoint, error, said)
    when = "breaks off with an error" if status is None else f"answers with status {status}{_phrase(status)}"
    message = f"{endpoint.url} {when}{f': {said}' if said else ''}"
    if not message.endswith((".", "!", "?")):
        message += "."
    return EndpointRefusedError(message, status=status, hint=_hint(endpoint, code, said, headers))


def _hint(endpoint: Endpoint, code: int | None, said: str, headers: Mapping[str, str]) -> str:
    if code in {401, 403}:
        return _KEY_IS_WRONG if endpoint.key is not None else _KEY_IS_MISSING
    if code in {404, 405}:
        return _MODEL_IS_WRONG if "model" in said.lower() else _ADDRESS_IS_WRONG
    if code in {429, 503}:
        wait_s = _wait_s(headers)
        return f"Try again in {wait_s:.0f} s." if wait_s else "It is busy: try again in a moment."
    if code is not None and 300 <= code < 400:
        target = _without_credentials(headers.get("location", ""))
        return f"It points elsewhere: give that address{f', {target}' if target else ''}."
    return _HINTS.get(code or 0, _OBJECTS if code is not None and code < 500 else _IN_TROUBLE)


def _context_full(endpoint: Endpoint, error: Any, said: str) -> LocalspecError:
    n_tokens, n_ctx = (error.get(name) if isinstance(error, dict) else None for name in ("n_prompt_tokens", "n_ctx"))
    return ContextFullError(
        f"The chat is too long for {endpoint.url}: {said or 'its context is full'}",
        n_tokens=n_tokens if isinstance(n_tokens, int) else 0,
        n_ctx=n_ctx if isinstance(n_ctx, int) else 0,
        hint="Shorten the prompt, or start a new chat.",
    )


def _words(error: Any, key: str | None) -> str:
    if isinstance(error, dict):
        error = error.get("message") or error.get("type") or error
    if not error:
        return ""
    text = error if isinstance(error, str) else json.dumps(error, default=str)
    if key:
        text = text.replace(key, "…")
    text = one_line(text[: 10 * _MOST_SHOWN])
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 1]}…"


def _kind(error: Any) -> str:
    return f"{error.get('type')} {error.get('code')}" if isinstance(error, dict) else ""


def _code_in(error: Any) -> int | None:
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) and 300 <= code < 600 else None


def _phrase(status: int) -> str:
    try:
        return f" ({HTTPStatus(status).phrase})"
    except ValueError:
        return ""


def _wait_s(headers: Mapping[str, str]) -> float | None:
    try:
        wait_s = float(headers.get("retry-after", ""))
    except ValueError:  # it may also be a date
        return None
    return max(1.0, wait_s) if math.isfinite(wait_s) and wait_s <= _LONGEST_WAIT_S else None


def _without_credentials(address: str) -> str:
    try:
        parts = urlsplit(address)
        shown = address if "@" not in parts.netloc else ""
    except ValueError:
        return ""
    return one_line(shown.partition("?")[0])[:_MOST_SHOWN]
