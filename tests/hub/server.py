"""A Hub on this machine for the tests: the parts of its file protocol that localspec uses, and faults on demand.

Two servers, as on the real Hub: one with the API and the addresses of files, which redirects, and a storage, on another
port and so of another origin. Every request and every byte of a file that is sent is counted.
"""

from __future__ import annotations

import hashlib
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "c0ffee" * 6 + "beef"
_PIECE_BYTES = 64 * 1024


class Body(Protocol):
    """The content of a file: of any size, made when it is asked for."""

    size: int

    def read(self, first: int, end: int) -> bytes: ...


@dataclass
class Bytes:
    """A file in memory."""

    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)

    def read(self, first: int, end: int) -> bytes:
        return self.data[first:end]


@dataclass
class Padded:
    """A file that begins with `head`, and is zeros from there on."""

    head: bytes
    size: int

    def read(self, first: int, end: int) -> bytes:
        piece = self.head[first:end]
        return piece + bytes(min(end, self.size) - first - len(piece))


@dataclass
class Fault:
    """How one answer goes wrong. What is None or False goes right.

    `status`, `headers`, `body`: another answer altogether. Of an answer with a file: `cut_after` bytes of its body the
    connection ends; `stall_after` bytes the server waits for `go_on`; `ignores_range`: all of it, with status 200;
    `flips`: one bit is wrong; `n_extra` bytes too many; `claims`: other headers; `pause_s` before each piece.
    """

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    cut_after: int | None = None
    stall_after: int | None = None
    ignores_range: bool = False
    flips: bool = False
    n_extra: int = 0
    claims: dict[str, str] = field(default_factory=dict)
    pause_s: float = 0.0


@dataclass
class Seen:
    """A request that arrived. `origin`: "hub" or "storage"."""

    origin: str
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]


@dataclass
class Repo:
    """A repository: its files, and how access to it is refused, if it is."""

    files: dict[str, Body]
    refusal: Fault | None = None
    plain_git: bool = False  # small files outside of LFS: no SHA-256
    siblings: list[dict[str, Any]] | None = None  # instead of those of the files
    hashes: dict[str, str] = field(default_factory=dict)


class FakeHub:
    """Start with `running()`. Faults are taken one after another, by the origin that they concern."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.found: Any = []  # what a search finds
        self.faults: dict[str, list[Fault]] = {"api": [], "hub": [], "storage": []}
        self.seen: list[Seen] = []
        self._n_sent: dict[str, int] = {}
        self.n_at_once = 0
        self.go_on = threading.Event()
        self.needs_token: str | None = None
        self._n_active = 0
        self._lock = threading.Lock()
        self._hub = _Server(("127.0.0.1", 0), _HubHandler, self)
        self._storage = _Server(("127.0.0.1", 0), _StorageHandler, self)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._hub.server_port}"

    @property
    def storage(self) -> str:
        return f"http://127.0.0.1:{self._storage.server_port}"

    @contextmanager
    def running(self) -> Iterator[FakeHub]:
        servers = [self._hub, self._storage]
        threads = [threading.Thread(target=each.serve_forever, args=(0.02,), daemon=True) for each in servers]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self.go_on.set()
            for server in servers:
                server.shutdown()
                server.end_connections()
                server.server_close()
            for thread in threads:
                thread.join()

    def add(self, repo: str, **files: bytes | Body) -> Repo:
        """A repository with files; names by keyword, `_gguf` at the end standing for the extension."""
        return self.add_files(repo, {name.replace("_gguf", ".gguf"): body for name, body in files.items()})

    def add_files(self, repo: str, files: dict[str, bytes | Body]) -> Repo:
        bodies = {name: Bytes(body) if isinstance(body, bytes) else body for name, body in files.items()}
        self.repos[repo] = Repo(bodies)
        return self.repos[repo]

    def asked(self, origin: str, of: str = "") -> list[Seen]:
        """The requests to one origin whose path holds a text."""
        return [each for each in self.seen if each.origin == origin and of in each.path]

    def hash_of(self, repo: Repo, name: str) -> str:
        body = repo.files[name]
        if name not in repo.hashes:
            is_small = body.size < 1 << 26
            repo.hashes[name] = hashlib.sha256(body.read(0, body.size) if is_small else name.encode()).hexdigest()
        return repo.hashes[name]

    def take(self, origin: str) -> Fault:
        with self._lock:
            return self.faults[origin].pop(0) if self.faults[origin] else Fault()

    @property
    def n_sent(self) -> dict[str, int]:
        """Bytes by file. Who has read an answer may be ahead of the thread that counts it: so once all have ended."""
        deadline = time.monotonic() + 1.0
        while self._n_active and time.monotonic() < deadline:
            time.sleep(0.005)
        with self._lock:
            return dict(self._n_sent)

    def count(self, name: str, n_bytes: int) -> None:
        with self._lock:
            self._n_sent[name] = self._n_sent.get(name, 0) + n_bytes

    @contextmanager
    def busy(self) -> Iterator[None]:
        with self._lock:
            self._n_active += 1
            self.n_at_once = max(self.n_at_once, self._n_active)
        try:
            yield
        finally:
            with self._lock:
                self._n_active -= 1


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], hub: FakeHub) -> None:
        super().__init__(address, handler)
        self.hub = hub
        self._connections: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        """Clients keep theirs open, and their threads would wait for more."""
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that leave early are what many tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    origin = ""
    server: _Server

    @property
    def hub(self) -> FakeHub:
        return self.server.hub

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is http.server's
        pass

    def do_GET(self) -> None:
        self._note()
        self.answer(with_body=True)

    def do_HEAD(self) -> None:
        self._note()
        self.answer(with_body=False)

    def answer(self, *, with_body: bool) -> None:
        raise NotImplementedError

    def _note(self) -> None:
        parts = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        seen = Seen(self.origin, self.command, unquote(parts.path), parse_qs(parts.query), headers)
        self.hub.seen.append(seen)

    def say(self, status: int, headers: dict[str, str], body: bytes, *, with_body: bool = True) -> None:
        self.send_response(status)
        lengths = {"Content-Length": str(len(body))} | headers
        for name, value in lengths.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def refused(self, fault: Fault) -> bool:
        if fault.status is None:
            return False
        self.say(fault.status, fault.headers, fault.body)
        return True


class _HubHandler(_Handler):
    origin = "hub"

    def answer(self, *, with_body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        if path.startswith("/api/"):
            self._api(path.removeprefix("/api/models").strip("/"))
            return
        owner, name, _, commit, file = path.strip("/").split("/", 4)
        repo = self._repo(f"{owner}/{name}")
        if repo is None or self.refused(self.hub.take("hub")):
            return
        if file not in repo.files or commit not in {COMMIT, "main"}:
            self.say(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}, b"Entry not found")
            return
        digest = self.hub.hash_of(repo, file)
        headers = {
            "Location": f"{self.hub.storage}/{owner}/{name}/{file}?signature=1",
            "X-Repo-Commit": COMMIT,
            "X-Linked-Size": str(repo.files[file].size),
            "X-Linked-Etag": f'"{digest}"',
        }
        self.say(302, headers, b"Found. Redirecting.", with_body=with_body)

    def _api(self, name: str) -> None:
        if self.refused(self.hub.take("api")):
            return
        if not name:
            self._json(self.hub.found)
            return
        repo = self._repo(name)
        if repo is None:
            return
        siblings = repo.siblings
        if siblings is None:
            siblings = [self._sibling(repo, file) for file in repo.files]
        self._json({"id": name, "sha": COMMIT, "siblings": siblings, "tags": ["gguf"]})

    def _sibling(self, repo: Repo, file: str) -> dict[str, Any]:
        body = repo.files[file]
        if repo.plain_git:
            content = body.read(0, body.size)
            return {"rfilename": file, "size": body.size, "blobId": git_id(content)}
        lfs = {"sha256": self.hub.hash_of(repo, file), "size": body.size, "pointerSize": 135}
        return {"rfilename": file, "size": body.size, "blobId": "1" * 40, "lfs": lfs}

    def _json(self, answer: Any) -> None:
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.say(200, {"Content-Type": "application/json"}, body)

    def _repo(self, name: str) -> Repo | None:
        repo = self.hub.repos.get(name)
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if repo is None:
            status, headers = (404 if token else 401), {"X-Error-Code": "RepoNotFound"}
            self.say(status, headers, b'{"error":"Repository not found"}')
            return None
        if repo.refusal is not None and token != self.hub.needs_token:
            self.refused(repo.refusal)
            return None
        return repo


class _StorageHandler(_Handler):
    origin = "storage"

    def answer(self, *, with_body: bool) -> None:
        owner, name, file = unquote(urlsplit(self.path).path).strip("/").split("/", 2)
        fault = self.hub.take("storage")
        if self.refused(fault):
            return
        body = self.hub.repos[f"{owner}/{name}"].files[file]
        first, end, status = 0, body.size, 200
        wanted = self.headers.get("Range", "")
        if wanted and not fault.ignores_range:
            start, _, last = wanted.removeprefix("bytes=").partition("-")
            first, end, status = int(start), min(int(last) + 1 if last else body.size, body.size), 206
        headers = {"Content-Length": str(end - first + fault.n_extra), "Content-Type": "application/octet-stream"}
        if status == 206:
            headers["Content-Range"] = f"bytes {first}-{end - 1}/{body.size}"
        self.send_response(status)
        for key, value in (headers | fault.claims).items():
            self.send_header(key, value)
        self.end_headers()
        if with_body:
            with self.hub.busy():
                self._send(file, body, first, end, fault)

    def _send(self, file: str, body: Body, first: int, end: int, fault: Fault) -> None:
        at = first
        while at < end:
            limit = min(end, at + _PIECE_BYTES)
            for stop in (fault.cut_after, fault.stall_after):
                if stop is not None:
                    limit = min(limit, first + stop)
            if fault.pause_s:
                time.sleep(fault.pause_s)
            piece = body.read(at, limit)
            if fault.flips and at == first and piece:
                piece = bytes([piece[0] ^ 1]) + piece[1:]
            self.wfile.write(piece)
            self.hub.count(file, len(piece))
            at = limit
            if fault.cut_after is not None and at - first >= fault.cut_after:
                self._cut()
                return
            if fault.stall_after is not None and at - first >= fault.stall_after:
                self.hub.go_on.wait(60)
                fault.stall_after = None
        self.wfile.write(bytes(fault.n_extra))

    def _cut(self) -> None:
        """End the connection as a router does that forgets it: with a reset."""
        self.wfile.flush()
        time.sleep(0.05)  # a reset would also drop what is still on its way
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()


def git_id(content: bytes) -> str:
    """git's id of a file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
