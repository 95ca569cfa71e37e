"""The engine as a front end sees it: submit, cancel, events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from localspec.engine.events import LoadEvent, RequestEvent
from localspec.engine.requests import GenerateRequest, PairSpec

RequestListener = Callable[[RequestEvent], None]
LoadListener = Callable[[LoadEvent], None]


class Engine(Protocol):
    """What every front end talks to. Listeners are called from a thread of the engine's own, in order."""

    def load(self, pair: PairSpec, listener: LoadListener) -> None:
        """Start loading a pair, replacing the one before; returns at once."""

    def submit(self, request: GenerateRequest, listener: RequestListener) -> None:
        """Queue a request; returns at once. The listener gets exactly one terminal event."""

    def cancel(self, request_id: str) -> None:
        """Stop a request within one step. Unknown and ended requests are ignored."""

    def close(self) -> None:
        """End the engine; open requests get `Cancelled` or `Failed` first. May be called twice."""

    @property
    def process_id(self) -> int | None:
        """The process that holds the models, for memory figures; None while there is none."""
