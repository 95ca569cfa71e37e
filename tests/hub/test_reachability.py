"""Whether a Hub answers: servers on this machine that do, do not, or take their time."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from localspec.hub.reachability import reachable

TIMEOUT_S = 30.0


@pytest.fixture(autouse=True)
def without_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Starts a server that answers every HEAD with one status, after a while; returns its address."""
    servers: list[ThreadingHTTPServer] = []

    def start(status: int, delay_s: float = 0.0) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                time.sleep(delay_s)
                self.send_response(status)
                if status == 302:
                    self.send_header("location", "http://127.0.0.1:9/elsewhere")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        server.block_on_close = False
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("status", [200, 302, 401, 404, 429])
def test_any_answer_of_a_server_counts(serve: Callable[..., str], status: int):
    assert reachable(serve(status), TIMEOUT_S) is None


@pytest.mark.parametrize(("status", "word"), [(500, "500"), (503, "503"), (407, "proxy")])
def test_a_server_or_proxy_in_trouble_does_not(serve: Callable[..., str], status: int, word: str):
    reason = reachable(serve(status), TIMEOUT_S)
    assert reason is not None
    assert word in reason


def test_the_environment_names_the_hub(serve: Callable[..., str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_ENDPOINT", serve(503))
    reason = reachable(None, TIMEOUT_S)
    assert reason is not None
    assert "503" in reason
    assert reachable(serve(200), TIMEOUT_S) is None


def test_a_slow_one_is_not_waited_for(serve: Callable[..., str]):
    started = time.monotonic()
    reason = reachable(serve(200, delay_s=20.0), 0.3)
    assert reason is not None
    assert time.monotonic() - started < 10


def test_nobody_there():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        reason = reachable(f"http://127.0.0.1:{unused.getsockname()[1]}", TIMEOUT_S)
    assert reason
    assert "\n" not in reason


@pytest.mark.parametrize("endpoint", ["not an address", "ftp://example.org", "https://"])
def test_what_is_no_address_is_said(endpoint: str):
    reason = reachable(endpoint, TIMEOUT_S)
    assert reason is not None
    assert "address" in reason
