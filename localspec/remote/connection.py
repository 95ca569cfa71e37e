"""Requests to one server over HTTP, bounded in time and size; every way to fail is an `EndpointError`."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

import httpx2

from localspec.errors import EndpointAnswerError, EndpointError, EndpointUnreachableError
from localspec.printable import one_line
from localspec.remote.endpoint import Endpoint
from localspec.remote.event_stream import StreamEvent, stream_events
from localspec.remote.refusals import error_in, error_of, refusal

__all__ = ["Connection", "Patience"]

_MAX_ANSWER_BYTES: Final = 8 << 20  # a list of thousands of models
_MAX_REFUSAL_BYTES: Final = 64 << 10
_MAX_REPLY_BYTES: Final = 256 << 20  # of a whole stream, with all that stands around the text
_MOST_SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait. `silence_s`: between two pieces of a reply; a long prompt may take minutes to read."""

    connect_s: float = 10.0
    question_s: float = 15.0
    silence_s: float = 600.0
    refusal_s: float = 5.0


class Connection:
    """Asks one server. For one event loop; make it where that runs.

    Raises:
        EndpointUnreachableError: the proxy or the certificates of the environment cannot be used.
    """

    def __init__(self, endpoint: Endpoint, patience: Patience) -> None:
        self.endpoint = endpoint
        self._patience = patience
        headers = {"user-agent": f"localspec/{version('localspec')}", "accept-encoding": "identity"}
        if endpoint.key is not None:
            headers["authorization"] = f"Bearer {endpoint.key}"
        timeout = httpx2.Timeout(patience.silence_s, connect=patience.connect_s)
        try:
            # Redirects are not followed: the key is for the server that was named.
            self._client = httpx2.AsyncClient(
                headers=headers,
                timeout=timeout,
                follow_redirects=False,
                trust_env=not endpoint.is_loopback,  # a proxy elsewhere would look for the server on its own machine
                verify=httpx2.create_ssl_context(),
                # One that was kept might be closed by the server just when the next prompt goes out.
                limits=httpx2.Limits(max_keepalive_connections=0),
            )
        except (ImportError, ValueError, OSError, httpx2.InvalidURL) as error:
            raise EndpointUnreachableError(
                f"The proxy or the certificates that the environment names cannot be used: {_reason(error)}.",
                hint="Check HTTPS_PROXY, HTTP_PROXY, ALL_PROXY (http:// only), SSL_CERT_FILE and SSL_CERT_DIR.",
            ) from error

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def json(self, url: str) -> Any:
        """The answer to a GET.

        Raises:
            LocalspecError: there is none that can be used.
        """
        with self._failures(self._patience.question_s):
            async with asyncio.timeout(self._patience.question_s), self._asked("GET", url, None, {}) as response:
                body = await _start_of(response, _MAX_ANSWER_BYTES + 1)
        if len(body) > _MAX_ANSWER_BYTES:
            raise EndpointAnswerError(
                f"{url} answers with more than {_MAX_ANSWER_BYTES >> 20} MiB.", hint="Check the address."
            )
        return self._parsed(body, url)

    @asynccontextmanager
    async def events(self, path: str, body: Mapping[str, Any]) -> AsyncIterator[AsyncGenerator[StreamEvent]]:
        """The events that answer a POST. Leaving the context closes the stream.

        Raises:
            LocalspecError: there is no such stream, or it breaks off.
        """
        url = f"{self.endpoint.url}{path}"
        content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        with self._failures(self._patience.silence_s):
            async with self._asked("POST", url, content, headers) as response:
                kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
                if kind != "text/event-stream":
                    raise await self._no_stream(response, kind)
                yield stream_events(self._pieces(response), self.endpoint.url)

    @asynccontextmanager
    async def _asked(
        self, method: str, url: str, content: bytes | None, headers: Mapping[str, str]
    ) -> AsyncIterator[httpx2.Response]:
        """An answer of success whose body is still to be read."""
        async with self._client.stream(method, url, content=content, headers=headers) as response:
            encoding = response.headers.get("content-encoding", "identity").strip().lower()
            if encoding != "identity":  # unpacked it could be of any size
                raise EndpointAnswerError(
                    f"{self.endpoint.url} answers in the encoding {one_line(encoding[:40])}, unasked.",
                    hint="Turn compression off in the server, or in the proxy before it.",
                )
            if response.status_code != 200:
                try:
                    async with asyncio.timeout(self._patience.refusal_s):
                        body = await _start_of(response, _MAX_REFUSAL_BYTES)
                except (TimeoutError, httpx2.HTTPError):
                    body = b""
                text = body.decode("utf-8", "replace")
                raise refusal(self.endpoint, error_of(text), status=response.status_code, headers=response.headers)
            yield response

    async def _no_stream(self, response: httpx2.Response, kind: str) -> Exception:
        body = await _start_of(response, _MAX_REFUSAL_BYTES)
        with suppress(ValueError, RecursionError):
            if error := error_in(json.loads(body)):
                return refusal(self.endpoint, error, status=response.status_code)
        what = "a web page" if body.lstrip()[:1] == b"<" else one_line(kind[:60]) or "something without a type"
        return EndpointAnswerError(
            f"{self.endpoint.url} answers with {what} where a stream of events was asked for.",
            hint="The server, or a proxy before it, cannot stream; or the address is of something else.",
        )

    async def _pieces(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        n_bytes = 0
        with self._failures(self._patience.silence_s):
            async for piece in response.aiter_raw():
                n_bytes += len(piece)
                if n_bytes > _MAX_REPLY_BYTES:
                    raise EndpointAnswerError(
                        f"{self.endpoint.url} has streamed more than {_MAX_REPLY_BYTES >> 20} MiB for one reply.",
                        hint="Limit the reply with --max-tokens.",
                    )
                yield piece

    def _parsed(self, body: bytes, url: str) -> Any:
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            what = "a web page" if body.lstrip()[:1] == b"<" else "no JSON"
            raise EndpointAnswerError(
                f"{url} answers with {what}.", hint="Is it an OpenAI-style server? Its address usually ends with /v1."
            ) from error

    @contextmanager
    def _failures(self, limit_s: float) -> Iterator[None]:
        """Turn what the HTTP library raises into errors that name the server."""
        try:
            yield
        except (TimeoutError, httpx2.TimeoutException) as error:
            waited_s = self._patience.connect_s if isinstance(error, httpx2.ConnectTimeout) else limit_s
            raise EndpointUnreachableError(
                f"{self.endpoint.url} has not answered for {waited_s:g} s.",
                hint="Check whether the server runs, and is not busy with something else.",
            ) from error
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> EndpointError:
        url, reason = self.endpoint.url, _reason(error)
        causes = list(_causes(error))
        if isinstance(error, httpx2.ProxyError):
            hint = "Check the proxy: the variables HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY."
        elif any(isinstance(each, ssl.SSLCertVerificationError) for each in causes):
            hint = "A certificate of your own network is named with SSL_CERT_FILE."
        elif any(isinstance(each, ssl.SSLError) for each in causes):
            hint = "Perhaps it speaks http:// and not https://"
        elif any(isinstance(each, socket.gaierror) for each in causes):
            hint = "Nobody knows the name of that host: check the address and the network."
        elif any(isinstance(each, ConnectionRefusedError) for each in causes):
            hint = "Nothing listens there: start the server, or check host and port."
        elif isinstance(error, httpx2.RemoteProtocolError | httpx2.ReadError | httpx2.WriteError):
            reason = (
                "it closed the connection in the middle" if isinstance(error, httpx2.RemoteProtocolError) else reason
            )
            return EndpointUnreachableError(
                f"{url} has broken off: {reason}.", hint="Try again; if it happens again, look at the server's log."
            )
        elif isinstance(error, httpx2.InvalidURL):
            hint = "Check the address."
        else:
            hint = "Check the address and the network."
        return EndpointUnreachableError(f"{url} cannot be reached: {reason}.", hint=hint)


async def _start_of(response: httpx2.Response, n_bytes: int) -> bytes:
    body = bytearray()
    async for piece in response.aiter_raw():
        body += piece
        if len(body) >= n_bytes:
            break
    return bytes(body[:n_bytes])


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what it came from, the groups of several attempts included."""
    waiting, seen = [error], set[int]()
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting += each.exceptions if isinstance(each, BaseExceptionGroup) else ()
        waiting += [cause for cause in (each.__cause__, each.__context__) if cause is not None]


def _reason(error: BaseException) -> str:
    """The innermost words that the system has for it."""
    told = [each for each in _causes(error) if isinstance(each, OSError) and each.strerror]
    innermost = told[-1] if told else None
    if isinstance(innermost, ConnectionError) and innermost.errno:
        text = os.strerror(innermost.errno)  # asyncio has words of its own
    else:
        text = str(error if innermost is None else innermost.strerror)
    return one_line(text)[:_MOST_SHOWN].rstrip(".") or type(error).__name__
