"""A server of the test's own, an engine that asks it, and nothing of the user's proxies and keys."""

from __future__ import annotations

import os
import queue
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from localspec.engine.events import (
    Cancelled,
    Failed,
    Finished,
    Loaded,
    LoadEvent,
    LoadFailed,
    RequestEvent,
    StepDecoded,
)
from localspec.engine.requests import ChatPrompt, GenerateRequest, Message
from localspec.errors import LocalspecError
from localspec.remote.connection import Patience
from localspec.remote.endpoint import Endpoint
from localspec.remote.engine import RemoteEngine, stand_in
from tests.remote.server import FakeServer

PATIENCE = Patience(connect_s=5.0, question_s=5.0, silence_s=5.0)


@pytest.fixture(autouse=True)
def _own_world(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in set(os.environ) - {"LOCALSPEC_HOME"}:
        if name.startswith(("LOCALSPEC_", "OPENAI_", "SSL_CERT")) or name.upper().endswith("_PROXY"):
            monkeypatch.delenv(name)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer().running() as server:
        yield server


@dataclass
class Client:
    """An engine, and what the tests do with it over and over."""

    engine: RemoteEngine
    events: queue.SimpleQueue[RequestEvent] = field(default_factory=queue.SimpleQueue)

    def load(self) -> Loaded:
        return self.engine.load_and_wait(stand_in(self.engine.endpoint))

    def load_error(self) -> LocalspecError:
        events: queue.SimpleQueue[LoadEvent] = queue.SimpleQueue()
        self.engine.load(stand_in(self.engine.endpoint), events.put)
        while not isinstance(event := events.get(timeout=10), LoadFailed):
            assert not isinstance(event, Loaded)
        return event.error

    def submit(self, prompt: str = "hi", **options: Any) -> GenerateRequest:
        request = GenerateRequest(ChatPrompt((Message("user", prompt),)), **options)
        self.engine.submit(request, self.events.put)
        return request

    def next(self) -> RequestEvent:
        return self.events.get(timeout=10)

    def rest(self) -> list[RequestEvent]:
        """Events up to the last, after which none comes."""
        events = [self.next()]
        while not isinstance(events[-1], Finished | Cancelled | Failed):
            events.append(self.next())
        return events

    def ask(self, prompt: str = "hi", **options: Any) -> list[RequestEvent]:
        self.submit(prompt, **options)
        return self.rest()

    def error(self) -> LocalspecError:
        """Of a reply that fails."""
        last = self.ask()[-1]
        assert isinstance(last, Failed), last
        return last.error


def text_of(events: list[RequestEvent], *, reasoning: bool = False) -> str:
    """What a reply says, or what was thought before it."""
    steps = [event for event in events if isinstance(event, StepDecoded)]
    return "".join(span.text for step in steps for span in step.spans if span.is_reasoning == reasoning)


@pytest.fixture
def client_of(server: FakeServer) -> Iterator[Callable[..., Client]]:
    """Another user of the same server, or of another address."""
    clients: list[Client] = []

    def make(url: str = "", key: str | None = None, **options: Any) -> Client:
        options.setdefault("patience", PATIENCE)
        clients.append(Client(RemoteEngine(Endpoint(url or server.url, key), **options)))
        return clients[-1]

    yield make
    for client in clients:
        client.engine.close()


@pytest.fixture
def client(client_of: Callable[..., Client]) -> Client:
    """One that knows its server."""
    client = client_of()
    client.load()
    return client
