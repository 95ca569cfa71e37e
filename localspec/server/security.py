"""Who may ask: API keys, and the Host and Origin of a request. Pure ASGI, in front of everything else.

A page in a browser can send requests to this machine, and a name that its owner points here (DNS rebinding) makes them
look like the page's own. So only names of this machine are taken as Host, and an Origin from elsewhere is refused
unless it was allowed. Programs send no Origin, and notice none of this.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from localspec.errors import UsageError
from localspec.server.refusal import Refusal
from localspec.server.request_body import RequestBodyMiddleware
from localspec.server.settings import ServerSettings

__all__ = ["ANY_ORIGIN", "AccessRules", "SecurityMiddleware", "access_rules", "is_loopback", "protected"]

ANY_ORIGIN: Final = "*"
# As in llama-server: whoever watches a server needs no key.
OPEN_PATHS: Final = frozenset({"/health", "/v1/health"})
MAX_HEADERS: Final = 100
_PREFLIGHT_MAX_AGE_S: Final = 600
_METHODS: Final = "GET, HEAD, POST, OPTIONS"
_EXPOSED_HEADERS: Final = "Retry-After"

_HOST: Final = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(?P<port>\d{1,5}))?")
_ORIGIN: Final = re.compile(rf"(?P<scheme>[a-z][a-z0-9+.-]*)://{_HOST.pattern}")
_HEADER_NAMES: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~, -]{1,2000}")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class AccessRules:
    """Who may ask a server that listens on `host`. Without `api_keys` everybody who reaches it.

    `host_names` are further names that it answers to. `origins`: pages that may use it, as browsers write them
    (https://example.org); "*" is any, and needs a key.

    Raises:
        UsageError: a key, a name or an origin cannot be one, or "*" without a key.
    """

    host: str
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    host_names: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for key in self.api_keys:
            if not key or not key.isascii() or not key.isprintable() or key != key.strip():
                raise UsageError(
                    "An API key is empty, or has characters that cannot be sent.",
                    hint="Use letters, digits and signs of ASCII, such as: openssl rand -hex 32",
                )
        for name in self.host_names:
            if not _HOST.fullmatch(name.lower()):
                raise UsageError(f"{name!r} is not the name of a host.", hint="As in: models.example.org")
        for origin in self.origins:
            if origin != ANY_ORIGIN and not _ORIGIN.fullmatch(_plain(origin)):
                raise UsageError(
                    f"{origin!r} is not an origin.",
                    hint="An origin is scheme, host and port without a path, as in: http://localhost:3000",
                )
        if ANY_ORIGIN in self.origins and not self.api_keys:
            raise UsageError(
                "Any page in a browser may use the server, and it asks for no key.",
                hint="Set an API key, or name the origins instead of *.",
            )


def is_loopback(host: str) -> bool:
    """Whether this host is the machine itself, so that nobody else reaches what listens there."""
    name = host.lower().strip("[]").rstrip(".")
    address = _address(name)
    return address.is_loopback if address is not None else name == "localhost" or name.endswith(".localhost")


def access_rules(settings: ServerSettings) -> AccessRules:
    """Who may ask this endpoint.

    Raises:
        UsageError: as `AccessRules`.
    """
    return AccessRules(settings.host, settings.api_keys, settings.allowed_hosts, settings.allowed_origins)


def protected(app: ASGIApp, settings: ServerSettings) -> ASGIApp:
    """The app behind everything that stands between it and the network.

    Raises:
        UsageError: as `AccessRules`.
    """
    reading = RequestBodyMiddleware(app, max_bytes=settings.max_body_bytes, timeout_s=settings.body_timeout_s)
    return SecurityMiddleware(reading, access_rules(settings), max_header_bytes=settings.max_header_bytes)


class SecurityMiddleware:
    """Answers what is refused by itself, and puts CORS headers on what is allowed."""

    def __init__(self, app: ASGIApp, rules: AccessRules, *, max_header_bytes: int) -> None:
        self._app = app
        self._max_header_bytes = max_header_bytes
        self._key_digests = [_digest(key) for key in rules.api_keys]
        self._origins = frozenset(map(_plain, rules.origins))
        self._takes_addresses = not is_loopback(rules.host)
        self._names = frozenset(_names_of(rules))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, answer a preflight, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        if refusal := self._refusal_of_sender(scope, headers, origin):
            await refusal.answer(scope, receive, send)
            return
        answer = _marked(send, origin if origin is not None and self._is_allowed(origin) else None, self._origins)
        if origin is not None and scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            await _answer_preflight(headers, answer)
        elif scope["path"] not in OPEN_PATHS and not self._has_key(headers):
            await _no_key(headers).answer(scope, receive, answer)
        else:
            await self._app(scope, receive, answer)

    # --- where a request comes from ----------------------------------------------------------------------------------

    def _refusal_of_sender(self, scope: Scope, headers: Headers, origin: str | None) -> Refusal | None:
        raw = scope["headers"]
        if len(raw) > MAX_HEADERS or sum(len(name) + len(value) for name, value in raw) > self._max_header_bytes:
            return Refusal(431, "The request has too many headers, or too long ones.", "headers_too_large")
        host = _HOST.fullmatch(headers.get("host", "").lower())
        if host is None or not self._answers_to(host["name"].strip("[]").rstrip(".")):
            return Refusal(
                403,
                "The host in the request is no name of this server. Use its address, or allow the name with "
                "--allowed-host.",
                "host_not_allowed",
            )
        if origin is not None:
            is_from_elsewhere = not (_is_same(origin, host) or self._is_allowed(origin))
        else:
            is_from_elsewhere = headers.get("sec-fetch-site") == "cross-site"
        if is_from_elsewhere:
            return Refusal(
                403,
                "A page from elsewhere may not use this server. Its origin can be allowed with --cors-origin.",
                "origin_not_allowed",
            )
        return None

    def _answers_to(self, name: str) -> bool:
        address = _address(name)
        if address is not None:  # nobody can point an address elsewhere
            return self._takes_addresses or address.is_loopback
        return name in self._names or is_loopback(name)

    def _is_allowed(self, origin: str) -> bool:
        if origin == "null":  # sandboxed frames and local files: anybody's
            return False
        return ANY_ORIGIN in self._origins or _plain(origin) in self._origins

    # --- keys --------------------------------------------------------------------------------------------------------

    def _has_key(self, headers: Headers) -> bool:
        if not self._key_digests:
            return True
        # Digests are of one length, and all of them are compared: the time tells nothing about a key.
        given = [_digest(key) for key in _keys_in(headers)]
        return sum(hmac.compare_digest(one, known) for one in given for known in self._key_digests) > 0


def _keys_in(headers: Headers) -> Iterable[str]:
    """What the request gives as keys: as a bearer, as some editors do, and as a browser sends a password."""
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        yield credentials.strip()
    elif scheme.lower() == "basic":
        try:
            yield base64.b64decode(credentials.strip(), validate=True).decode("utf-8").partition(":")[2]
        except (binascii.Error, UnicodeDecodeError, ValueError):
            return
    if "x-api-key" in headers:
        yield headers["x-api-key"].strip()


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def _no_key(headers: Headers) -> Refusal:
    # A person in a browser is asked for it, so that the status page can be seen; programs are not.
    is_person = "text/html" in headers.get("accept", "")
    challenge = 'Basic realm="localspec, the API key is the password"' if is_person else "Bearer"
    is_given = "authorization" in headers or "x-api-key" in headers
    return Refusal(
        401,
        "The API key is wrong." if is_given else "An API key is needed. Send it as: Authorization: Bearer KEY.",
        "invalid_api_key",
        {"WWW-Authenticate": challenge},
    )


# --- CORS ------------------------------------------------------------------------------------------------------------


def _marked(send: Send, origin: str | None, origins: frozenset[str]) -> Send:
    """Answers that a browser may hand to the page, where it is allowed to see them, and never guesses a type for."""

    async def marked(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=list(message.get("headers", ())))
            headers["X-Content-Type-Options"] = "nosniff"
            headers["X-Frame-Options"] = "DENY"
            if origins:
                headers.add_vary_header("Origin")
            if origin is not None:
                headers["Access-Control-Allow-Origin"] = origin
                headers["Access-Control-Expose-Headers"] = _EXPOSED_HEADERS
            message = {**message, "headers": headers.raw}
        await send(message)

    return marked


async def _answer_preflight(headers: Headers, send: Send) -> None:
    """What a page may send, to a browser that asks before it does."""
    answer = MutableHeaders()
    answer["Access-Control-Allow-Methods"] = _METHODS
    answer["Access-Control-Max-Age"] = str(_PREFLIGHT_MAX_AGE_S)
    names = headers.get("access-control-request-headers", "")
    if _HEADER_NAMES.fullmatch(names):
        answer["Access-Control-Allow-Headers"] = names
    if headers.get("access-control-request-private-network") == "true":
        answer["Access-Control-Allow-Private-Network"] = "true"
    await send({"type": "http.response.start", "status": 204, "headers": answer.raw})
    await send({"type": "http.response.body", "body": b""})


# --- names -----------------------------------------------------------------------------------------------------------


def _names_of(rules: AccessRules) -> Iterable[str]:
    yield from (name.lower().rstrip(".") for name in rules.host_names)
    if not is_loopback(rules.host):
        yield rules.host.lower()
        here = socket.gethostname().lower()
        yield from (here, f"{here}.local")


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _plain(origin: str) -> str:
    return origin.lower().removesuffix("/")


def _is_same(origin: str, host: re.Match[str]) -> bool:
    """Whether a page was loaded from the very host and port that it sends to."""
    parts = _ORIGIN.fullmatch(_plain(origin))
    if parts is None or parts["scheme"] not in _DEFAULT_PORTS:
        return False
    default = _DEFAULT_PORTS[parts["scheme"]]
    return parts["name"] == host["name"] and int(parts["port"] or default) == int(host["port"] or default)
