"""A server of models on this machine for the tests: OpenAI's protocol as several speak it, and faults on demand."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LLAMA_MODEL = {"id": "tiny.gguf", "owned_by": "llamacpp", "meta": {"n_ctx": 512, "n_ctx_train": 2048}}


@dataclass
class Answer:
    """What is sent for one request: status and headers, then the pieces, with a pause before each.

    `resets`: the connection ends with a reset after the pieces; `holds`: it stays open and silent until `go_on`, or
    until the client leaves. `raw`: the pieces are all that is sent, headers included.
    """

    pieces: Sequence[bytes] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "text/event-stream"})
    pause_s: float = 0.0
    resets: bool = False
    holds: bool = False
    raw: bool = False


def event(data: Any) -> bytes:
    """One server-sent event."""
    return f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()


def chunk(text: str | None = None, *, reason: str | None = None, **more: Any) -> dict[str, Any]:
    """A chunk of a reply; `delta` may be given in `more`."""
    delta = more.pop("delta", {} if text is None else {"content": text})
    return {
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
        **more,
    }


def reply(*texts: str, usage: dict[str, Any] | None = None, **last: Any) -> Answer:
    """A reply that goes well; `usage` and `last` come in the chunk before its end, as OpenAI sends them."""
    chunks = [chunk(text) for text in texts] + [chunk(reason="stop")]
    if usage is not None or last:
        chunks.append({"choices": [], "usage": usage, **last})
    return Answer([*map(event, chunks), event("[DONE]")])


def json_answer(body: Any, status: int = 200, **headers: str) -> Answer:
    """One JSON document."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer([json.dumps(body).encode()], status, {"Content-Type": "application/json"} | names)


def refusal(status: int, message: str, **more: Any) -> Answer:
    """An error object of OpenAI's."""
    return json_answer({"error": {"message": message, "type": "invalid_request_error", "param": None, **more}}, status)


@dataclass
class Seen:
    """A request that arrived."""

    path: str
    headers: dict[str, str]
    body: Any


class FakeServer:
    """Start with `running()`. `answers` are taken one after another by chats; other addresses have one each."""

    def __init__(self) -> None:
        self.models: list[dict[str, Any]] = [{"id": "a-model", "owned_by": "somebody"}]
        self.pages: dict[str, list[Answer]] = {}  # of other addresses, the last stays
        self.answers: list[Answer] = []
        self.seen: list[Seen] = []
        self.go_on = threading.Event()
        self.left = threading.Event()  # a client has ended a connection that was held
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.fake = self

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    @property
    def chats(self) -> list[Seen]:
        return [each for each in self.seen if each.path == "/v1/chat/completions"]

    @contextmanager
    def running(self) -> Iterator[FakeServer]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.go_on.set()
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def speaks_llama_cpp(self) -> None:
        """It is a llama-server from here on."""
        self.models = [LLAMA_MODEL]
        self.pages["/health"] = [json_answer({"status": "ok"})]
        self.pages["/props"] = [json_answer({"default_generation_settings": {"n_ctx": 512}, "build_info": "b1"})]

    def speaks_localspec(self, draft: str | None = "a draft") -> None:
        """It is `localspec serve` from here on."""
        self.speaks_llama_cpp()
        speculation = {"mode": "auto", "draft_model": draft}
        self.models = [{"id": "ours", "owned_by": "localspec", "meta": {"n_ctx": 512}, "speculation": speculation}]

    def answer_to(self, path: str) -> Answer:
        if path in self.pages:
            answers = self.pages[path]
            return answers.pop(0) if len(answers) > 1 else answers[0]
        if path == "/v1/models":
            return json_answer({"object": "list", "data": self.models})
        if path == "/v1/chat/completions":
            return self.answers.pop(0) if self.answers else reply("Hello", " there")
        return refusal(404, "Not Found")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    fake: FakeServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that leave early are what many tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is http.server's
        pass

    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self._answer(json.loads(body))

    def _answer(self, body: Any) -> None:
        fake = self.server.fake
        fake.seen.append(Seen(self.path, {name.lower(): value for name, value in self.headers.items()}, body))
        answer = fake.answer_to(self.path)
        self.close_connection = True
        if not answer.raw:
            self.send_response(answer.status)
            for name, value in ({"Connection": "close"} | answer.headers).items():
                self.send_header(name, value)
            self.end_headers()
        for piece in answer.pieces:
            if answer.pause_s:
                time.sleep(answer.pause_s)
            self.wfile.write(piece)
            self.wfile.flush()
        if answer.holds:
            self._hold(fake)
        if answer.resets:
            time.sleep(0.05)  # a reset would also drop what is still on its way
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

    def _hold(self, fake: FakeServer) -> None:
        self.connection.settimeout(0.01)
        while not fake.go_on.is_set():
            with suppress(TimeoutError):
                if not self.connection.recv(1):
                    fake.left.set()
                    return
