"""Where a server is, and with which key it is asked."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from localspec.config import ENDPOINT_KEY_VARIABLE
from localspec.errors import UsageError
from localspec.printable import one_line

__all__ = ["Endpoint", "endpoint_at", "endpoint_key"]

_OPENAI_KEY_VARIABLE: Final = "OPENAI_API_KEY"
_EXAMPLE: Final = "http://127.0.0.1:8080/v1"
_MOST_SHOWN: Final = 200
_VERSION: Final = re.compile(r"v\d\w*")
# What people copy from examples of requests.
_ROUTES: Final = ("/chat/completions", "/completions", "/models", "/responses")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An OpenAI-style server. `url` ends with its version (`/v1`) and carries no credentials; `key` is never shown."""

    url: str
    key: str | None = field(default=None, repr=False)

    @property
    def root(self) -> str:
        """Where llama.cpp's own addresses are, such as `/props`."""
        head, _, last = self.url.rpartition("/")
        return head if _VERSION.fullmatch(last) else self.url

    @property
    def is_loopback(self) -> bool:
        """Whether it is on this machine."""
        host = (urlsplit(self.url).hostname or "").rstrip(".")
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return host == "localhost" or host.endswith(".localhost")
        return address.is_loopback or address.is_unspecified

    @property
    def is_private(self) -> bool:
        """Whether nobody in between can read what is sent."""
        return self.is_loopback or self.url.startswith("https:")


def endpoint_at(text: str, key: str | None = None) -> Endpoint:
    """The server at an address as a user writes it, with or without `/v1`.

    Raises:
        UsageError: it is no address of HTTP, or holds credentials.
    """
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port  # a port that is none raises only here
    except ValueError as error:
        raise _no_address(text, f"it is no URL ({error})") from None
    if parts.username is not None or parts.password is not None:
        # Nothing of it is repeated: where the password ends is a matter of opinion.
        raise UsageError(
            "--endpoint holds a name or a password, which every user of this machine can read.",
            hint=f"Take it out of the URL. A key is read from the environment: {ENDPOINT_KEY_VARIABLE}.",
        )
    if parts.scheme not in {"http", "https"} or not host:
        raise _no_address(text, "it should begin with http:// or https:// and a host")
    if parts.query or parts.fragment:
        raise _no_address(text, "it should have no ? and no #")
    if not text.isprintable() or any(character.isspace() for character in text) or "\\" in text:
        raise _no_address(text, "it has spaces or signs that no URL has")
    path = parts.path.rstrip("/")
    for route in _ROUTES:
        path = path.removesuffix(route)
    path = path.rstrip("/")
    if not any(map(_VERSION.fullmatch, path.split("/"))):
        path += "/v1"
    shown_host = f"[{host}]" if ":" in host else host
    return Endpoint(f"{parts.scheme}://{shown_host}{'' if port is None else f':{port}'}{path}", key)


def endpoint_key(environ: Mapping[str, str], endpoint: Endpoint, variable: str | None = None) -> str | None:
    """The key for a server, from the variable that was named, or else from LOCALSPEC_ENDPOINT_KEY or OPENAI_API_KEY.

    The last is meant for somebody else: it is not taken where it would cross a network in the clear.

    Raises:
        UsageError: the named variable is not set, or a key cannot be sent.
    """
    if variable is not None and not environ.get(variable):
        raise UsageError(
            f"--api-key-env names {one_line(variable)[:_MOST_SHOWN]}, which is not set.",
            hint="It takes the name of a variable of the environment, not the key itself.",
        )
    names = [variable] if variable else [ENDPOINT_KEY_VARIABLE, *([_OPENAI_KEY_VARIABLE] * endpoint.is_private)]
    for name in names:
        key = environ.get(name, "").strip()
        if key and not (key.isascii() and key.isprintable() and " " not in key):
            raise UsageError(
                f"The key in {one_line(name)} holds a space, a line end or a sign beyond ASCII.",
                hint="Set the variable to the key alone.",
            )
        if key:
            return key
    return None


def _no_address(text: str, reason: str) -> UsageError:
    shown = one_line(text)[:_MOST_SHOWN]
    if "@" in shown:  # perhaps a password in an address that cannot be taken apart
        shown = "what was given"
    return UsageError(f"--endpoint is {shown}; {one_line(reason)}.", hint=f"Such as {_EXAMPLE}")
