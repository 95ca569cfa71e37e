"""Errors as OpenAI's clients read them: {"error": {"message", "type", "param", "code"}}, by status, also in a stream.

A message names what is wrong in the request, and never a path or a line of this program.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.responses import Response

from localspec.errors import (
    BusyError,
    ChatTemplateError,
    ContextFullError,
    EngineDiedError,
    LocalspecError,
    RequestTimeoutError,
    ShuttingDownError,
    StillLoadingError,
    UnavailableError,
    UnsupportedModelError,
    UsageError,
)
from localspec.printable import printable, shown_value

__all__ = [
    "ErrorBody",
    "NotServedError",
    "RefusedFieldError",
    "add_error_handlers",
    "error_body",
    "error_response",
    "error_status",
]

logger = logging.getLogger(__name__)

ErrorBody = dict[str, dict[str, str | None]]


class RefusedFieldError(UsageError):
    """A field of the request, `param`, is not supported, or has a value that cannot be used."""

    def __init__(self, message: str, *, param: str, code: str = "invalid_value", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.param = param
        self.code = code


class NotServedError(UsageError):
    """What another server or another model may do, and this endpoint does not; `param`: the field that asks for it.

    400 and not 501: OpenAI's clients send again what failed with 5xx.
    """

    def __init__(self, message: str, *, param: str | None = None, code: str = "not_supported", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.param = param
        self.code = code


# (status, type, code) by class; the first that fits.
_KINDS: Final[tuple[tuple[type[LocalspecError], int, str, str | None], ...]] = (
    (ContextFullError, 400, "invalid_request_error", "context_length_exceeded"),
    (ChatTemplateError, 400, "invalid_request_error", "chat_template_failed"),
    (UnsupportedModelError, 400, "invalid_request_error", "model_not_capable"),
    (NotServedError, 400, "not_supported_error", None),
    (UsageError, 400, "invalid_request_error", None),
    (BusyError, 429, "rate_limit_error", "queue_full"),
    (RequestTimeoutError, 504, "timeout_error", "request_timeout"),
    (StillLoadingError, 503, "unavailable_error", "loading"),
    (ShuttingDownError, 503, "unavailable_error", "shutting_down"),
    (UnavailableError, 503, "unavailable_error", None),
    (EngineDiedError, 500, "server_error", "engine_died"),
    (LocalspecError, 500, "server_error", None),
)
_CODES_OF_STATUS: Final = {401: "invalid_api_key", 404: "not_found", 405: "method_not_allowed"}
_MAX_NAME_CHARACTERS: Final = 200


def error_status(error: LocalspecError) -> int:
    """The HTTP status of an error."""
    return _kind(error)[0]


def error_body(error: LocalspecError) -> ErrorBody:
    """The error object; the hint is part of its message."""
    _, kind, code = _kind(error)
    param = error.param if isinstance(error, RefusedFieldError | NotServedError) else None
    if isinstance(error, RefusedFieldError | NotServedError):
        code = error.code
    # What happened inside the engine may name files.
    message = error.message if kind != "server_error" else _INTERNAL[isinstance(error, EngineDiedError)]
    hint = error.hint if kind != "server_error" else ""
    return _body(" ".join(part for part in (message, hint) if part), kind, param=param, code=code)


_INTERNAL: Final = {
    True: "The engine stopped; it is started again with the next request. The log of the endpoint says more.",
    False: "The engine failed on this request. The log of the endpoint says more.",
}


def error_response(error: LocalspecError) -> JSONResponse:
    """The error as a response, with `Retry-After` where another attempt may succeed."""
    headers: dict[str, str] = {}
    if isinstance(error, BusyError):
        headers["Retry-After"] = str(math.ceil(error.retry_after_s))
    elif isinstance(error, StillLoadingError):
        headers["Retry-After"] = "2"
    elif error_status(error) in (500, 504):
        # OpenAI's clients repeat what failed with 5xx; the same request would take as long, or fail, again.
        headers["x-should-retry"] = "false"
    return JSONResponse(error_body(error), error_status(error), headers)


def _kind(error: LocalspecError) -> tuple[int, str, str | None]:
    for cls, status, kind, code in _KINDS:
        if isinstance(error, cls):
            return status, kind, code
    raise AssertionError("the last entry fits every error") from error


def _body(message: str, kind: str, *, param: str | None = None, code: str | None = None) -> ErrorBody:
    # What a client sent is shown back to it; a lone surrogate in it could not be sent.
    shown_param = None if param is None else printable(param)
    return {"error": {"message": printable(message), "type": kind, "param": shown_param, "code": code}}


def add_error_handlers(app: FastAPI) -> None:
    """Make every error of the app an error object."""
    app.add_exception_handler(LocalspecError, _on_localspec_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(Exception, _on_any_error)


async def _on_localspec_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, LocalspecError)
    if error_status(error) == 500:
        logger.error("A request failed: %s %s", error.message, error.hint)
    return error_response(error)


async def _on_validation_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return JSONResponse(_validation_body(error.errors()), 400)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind = "invalid_request_error" if error.status_code < 500 else "server_error"
    message = str(error.detail)
    if error.status_code in (404, 405):
        message = f"{request.method} {request.url.path[:_MAX_NAME_CHARACTERS]}: {message}."
    body = _body(message, kind, code=_CODES_OF_STATUS.get(error.status_code))
    return JSONResponse(body, error.status_code, dict(error.headers or {}))


async def _on_any_error(_request: Request, _error: Exception) -> Response:
    """Starlette raises it again after this, for the server's log."""
    body = _body("The endpoint failed on this request; its log says more.", "server_error")
    return JSONResponse(body, 500, {"x-should-retry": "false"})


def _validation_body(problems: Sequence[Any]) -> ErrorBody:
    """Of the first problem; one that names an unknown field goes before others, which may follow from it."""
    problem = next((each for each in problems if each["type"] == "extra_forbidden"), problems[0])
    kind = "invalid_request_error"
    given, names_last = problem["type"], problem["type"] in ("extra_forbidden", "missing")
    param = ".".join(_path(problem["loc"][1:], names_last=names_last)) or None
    if given == "json_invalid":
        return _body(f"The body is not JSON: {problem['ctx']['error']}.", kind, code="invalid_json")
    if given == "extra_forbidden":
        return _body(f"{param} is not supported.", kind, param=param, code="unknown_parameter")
    if given == "missing":
        if param is None:
            return _body("The request has no body.", kind, code="missing_body")
        return _body(f"{param} is missing.", kind, param=param, code="missing_required_parameter")
    if param is None and isinstance(problem["input"], bytes):
        return _body("Send the body as JSON, with Content-Type: application/json.", kind, code="invalid_content_type")
    value, reason = problem["input"], problem["msg"].removeprefix("Value error, ").replace("Input should", "it should")
    if given == "union_tag_invalid":
        name = problem["ctx"]["discriminator"].strip("'")
        param, value = f"{param}.{name}", value[name]
        reason = f"it should be one of {problem['ctx']['expected_tags']}"
    code = "invalid_type" if given.endswith("_type") else "invalid_value"
    return _body(f"{param or 'The body'} is {shown_value(value)}; {reason}.", kind, param=param, code=code)


def _path(location: Sequence[str | int], *, names_last: bool) -> list[str]:
    """The fields on the way to a value. Pydantic also names the branches of unions that it tried.

    `names_last`: the last part is what a client called a field.
    """
    path = []
    before: str | int = ""
    for place, part in enumerate(location):
        if names_last and place == len(location) - 1:
            is_branch = False
        elif isinstance(before, int) and part in _ROLES:
            is_branch = True
        else:
            is_branch = isinstance(part, str) and ("[" in part or part.startswith("constrained-") or part in _TYPES)
        if not is_branch:
            path.append(str(part)[:_MAX_NAME_CHARACTERS])
        before = part
    return path


_TYPES: Final = frozenset({"str", "int", "float", "bool"})
_ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool"})
