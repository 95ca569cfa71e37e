"""What measuring asks of an engine."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Protocol

from localspec.engine.events import RequestEvent
from localspec.engine.requests import GenerateRequest


class StreamingEngine(Protocol):
    """Runs one request after another: `EngineClient` does."""

    def stream(self, request: GenerateRequest) -> Iterator[RequestEvent]:
        """The events of a request up to its end; leaving them early cancels it.

        Raises:
            LocalspecError: the request failed.
        """


def events_of(engine: StreamingEngine, request: GenerateRequest) -> Generator[RequestEvent, None, None]:
    """The stream as a generator, whose `close` cancels the request at once."""
    yield from engine.stream(request)
