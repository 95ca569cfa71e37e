"""What may be sent: JSON in UTF-8, of a bounded size and depth, that arrives in time. Pure ASGI, behind the keys.

A body is read as a whole before the routes see it, so that none of them has to wait for it, count it, or meet text
that cannot be encoded or nests too deeply to be walked.
"""

from __future__ import annotations

import asyncio
import re
from itertools import accumulate
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from localspec.server.refusal import Refusal

__all__ = ["MAX_NESTING", "RequestBodyMiddleware"]

MAX_NESTING: Final = 100
_WITHOUT_BODY: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_MAX_DIGITS: Final = 18
_CLOSE: Final = {"Connection": "close"}

# A string that does not end goes to the end of the text: tried once, not from each of its quotes.
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.?)*+"?', re.DOTALL)
_OPENING, _CLOSING = b"[{", b"]}"
_DEPTH_CHANGES: Final = bytes.maketrans(_OPENING + _CLOSING, b"\x01\x01\xff\xff")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(_OPENING + _CLOSING))
# Escapes from left to right, so that the backslash before one is never taken for its own.
_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


class RequestBodyMiddleware:
    """Reads bodies of up to `max_bytes`, for up to `timeout_s`, and answers what is wrong with one by itself."""

    def __init__(self, app: ASGIApp, *, max_bytes: int, timeout_s: float) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body and pass it on whole, or refuse it."""
        if scope["type"] != "http" or scope["method"] in _WITHOUT_BODY:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        body: bytes | Refusal | None = self._refusal_of_headers(headers)
        if body is None:
            try:
                async with asyncio.timeout(self._timeout_s):
                    body = await self._read(receive)
            except TimeoutError:
                body = Refusal(408, f"The body took longer than {self._timeout_s:g} s.", "body_timeout", _CLOSE)
        if body is None:  # the client has gone
            return
        refusal = body if isinstance(body, Refusal) else _refusal_of_text(body)
        if refusal is not None:
            await refusal.answer(scope, receive, send)
        else:
            assert isinstance(body, bytes)
            await self._app(scope, _replayed(body, receive), send)

    def _refusal_of_headers(self, headers: Headers) -> Refusal | None:
        length = headers.get("content-length", "")
        if length.isdecimal() and (len(length) > _MAX_DIGITS or int(length) > self._max_bytes):
            return self._too_large()
        if length.strip("0") == "" and "transfer-encoding" not in headers:
            return None  # nothing is sent
        media_type, _, parameters = headers.get("content-type", "").partition(";")
        charset = parameters.lower().replace('"', "").replace(" ", "")
        if media_type.strip().lower() != "application/json" or (
            "charset=" in charset and charset not in {"charset=utf-8", "charset=utf8"}
        ):
            return Refusal(
                415, "Send the body as JSON in UTF-8, with Content-Type: application/json.", "invalid_content_type"
            )
        if headers.get("content-encoding", "identity").lower() != "identity":
            return Refusal(415, "Send the body as it is: compressed ones are not read.", "invalid_content_encoding")
        return None

    async def _read(self, receive: Receive) -> bytes | Refusal | None:
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            body += message.get("body", b"")
            if len(body) > self._max_bytes:
                return self._too_large()
            if not message.get("more_body", False):
                return bytes(body)

    def _too_large(self) -> Refusal:
        # No "Connection: close": what is still on its way is read and dropped, so that the answer arrives.
        return Refusal(413, f"The body is larger than {self._max_bytes} bytes.", "body_too_large")


def _refusal_of_text(body: bytes) -> Refusal | None:
    if b"\0" in body:
        return Refusal(400, "The body is not JSON: it holds NUL bytes.", "invalid_json")
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        return Refusal(400, f"The body is not UTF-8: byte {error.start} cannot be read.", "invalid_json")
    if _depth(body) > MAX_NESTING:
        return Refusal(400, f"The body nests deeper than {MAX_NESTING} levels.", "invalid_json")
    if b"\\ud" in body.lower() and any(match["lone"] for match in _ESCAPE.finditer(body)):
        return Refusal(400, "The body has half of a surrogate pair, which is no character.", "invalid_json")
    return None


def _depth(body: bytes) -> int:
    """The most brackets that are open at once, outside of strings."""
    changes = _STRING.sub(b"", body).translate(_DEPTH_CHANGES, _NO_BRACKETS)
    return max(accumulate(memoryview(changes).cast("b")), default=0)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body in one piece; after that, what really comes: that the client has gone."""
    is_read = False

    async def replayed() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed
