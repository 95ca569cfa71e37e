"""Where the endpoint listens, and how it ends: the app under uvicorn, in this process, with one worker."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
from collections.abc import Callable, Generator, Sequence
from types import FrameType
from typing import Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from localspec.errors import UsageError
from localspec.server.service import EngineService
from localspec.server.settings import ServerSettings

__all__ = ["INTERRUPTED", "Endpoint", "bind", "bound_port"]

INTERRUPTED: Final = 130
_NOT_HERE: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
# Clients keep connections for some time; whoever closes first risks that a request is on its way.
_KEEP_ALIVE_S: Final = 75
# For the head of a request, from the opening of a connection or its own first byte on.
_HEAD_TIMEOUT_S: Final = 30
# What streams that are ended have left to send their last event.
_LAST_WORDS_S: Final = 5


def bind(host: str, port: int) -> list[socket.socket]:
    """Sockets for each address of `host`, not listening yet. `port` 0: a free one, the same for all of them.

    Raises:
        UsageError: the host is none of this machine, or the port is taken or not allowed.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise UsageError(
            f"The host {host} has no address.", hint="Use 127.0.0.1 for this machine alone, 0.0.0.0 for the network."
        ) from error
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    for family, kind, protocol, _, address in dict.fromkeys(found):
        listener = None
        try:
            listener = socket.socket(family, kind, protocol)
            sockets.append(listener)
            if os.name == "posix":  # a start right after an end; elsewhere two programs could share the port
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind((address[0], port or bound_port(sockets), *address[2:]))
        except OSError as error:
            if error.errno in _NOT_HERE:  # "localhost" has an address of IPv6 also where there is none
                missing = error
                if listener is not None:
                    sockets.remove(listener)
                    listener.close()
                continue
            for opened in sockets:
                opened.close()
            raise _no_place(host, port, error) from error
    if not sockets:
        assert missing is not None
        raise _no_place(host, port, missing) from missing
    return sockets


def bound_port(sockets: Sequence[socket.socket]) -> int:
    """The port of sockets that were bound together; 0 while the first is not."""
    port: int = sockets[0].getsockname()[1]
    return port


def _no_place(host: str, port: int, error: OSError) -> UsageError:
    if error.errno == errno.EADDRINUSE:
        return UsageError(
            f"Port {port} of {host} is taken: another server runs there, perhaps localspec's own.",
            hint=f"End that one, or choose another port, such as: --port {port + 1 if port < 65535 else 8081}",
        )
    if error.errno == errno.EACCES:
        return UsageError(f"Port {port} is reserved for the system.", hint="Choose one from 1024 on, such as 8080.")
    if error.errno in _NOT_HERE:
        return UsageError(
            f"{host} is no address of this machine.",
            hint="Use 127.0.0.1 for this machine alone, 0.0.0.0 for the network.",
        )
    return UsageError(
        f"{host}:{port} cannot be used: {error.strerror or error}.", hint="Choose another --host, --port."
    )


class _ImpatientProtocol(H11Protocol):
    """Closes connections whose request does not come; uvicorn itself waits for one as long as it takes."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        super().connection_lost(exc)

    def _watch(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            self._stop_watching()
        elif self._timer is None:
            self._timer = self.loop.call_later(_HEAD_TIMEOUT_S, self.transport.abort)

    def _stop_watching(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Endpoint(uvicorn.Server):
    """The app on its sockets until a signal comes, or `should_exit` is set.

    Then nobody is let in any more; replies that run have `settings.shutdown_s` to finish, and those that do not are
    ended with an error as their last event. A second Ctrl-C ends the process at once; the engine follows it.
    """

    def __init__(
        self,
        app: ASGIApp,
        service: EngineService,
        settings: ServerSettings,
        *,
        logs_requests: bool,
        on_stopping: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=_ImpatientProtocol,
                ws="none",
                loop="asyncio",
                log_config=None,
                log_level="info" if logs_requests else "error",
                access_log=logs_requests,
                proxy_headers=False,
                server_header=False,
                h11_max_incomplete_event_size=settings.max_header_bytes,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=round(settings.shutdown_s) + _LAST_WORDS_S,
            )
        )
        self._service = service
        self._shutdown_s = settings.shutdown_s
        self._on_stopping = on_stopping
        self._signal: int | None = None

    @property
    def exit_code(self) -> int:
        """Of the process: who asked it to end by SIGTERM got what was asked for."""
        return INTERRUPTED if self._signal == signal.SIGINT else 0

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let running replies finish, or end them."""
        self._on_stopping()
        ending = asyncio.create_task(self._service.stop(self._shutdown_s))
        await super().shutdown(sockets)
        await ending

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Nothing: `signals` does it, from before the models are loaded, and does not raise them again afterwards."""
        yield

    @contextlib.contextmanager
    def signals(self) -> Generator[None, None, None]:
        """Ctrl-C and SIGTERM end the endpoint while this is entered. Only on the main thread."""
        before = {each: signal.signal(each, self._on_signal) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self._signal is not None and number == signal.SIGINT:
            os._exit(INTERRUPTED)
        self._signal = self._signal or number
        self.should_exit = True
