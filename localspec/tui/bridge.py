"""From the engine's thread to the screen: events wait in a queue, and one message says so, however many there are.

A screen that keeps up gets one message per step. One that lags (a slow terminal, a long layout) finds several events
when it comes to look, and `drain` merges them, so it draws once for all of them.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from localspec.engine.events import (
    Loaded,
    LoadEvent,
    Loading,
    Prefilling,
    RequestEvent,
    Step,
    StepDecoded,
    SwapFailed,
    TextSpan,
)
from localspec.engine.metrics import RequestMetrics
from localspec.engine.requests import PairSpec
from localspec.tui.messages import EngineReported


@dataclass(frozen=True, slots=True)
class Decoded:
    """Consecutive steps of one request: their text, what each did if that is known, and the metrics after the last."""

    request_id: str
    spans: tuple[TextSpan, ...]
    steps: tuple[Step, ...]
    metrics: RequestMetrics


@dataclass(frozen=True, slots=True)
class Swapped:
    """The draft model was exchanged: `pair` is what is loaded now."""

    loaded: Loaded
    pair: PairSpec


EngineEvent = RequestEvent | LoadEvent | Swapped | SwapFailed
LoadReport = LoadEvent | Swapped | SwapFailed
Report = EngineEvent | Decoded  # never a StepDecoded after `merge`


class EngineBridge:
    """Takes events on any thread; `post` hands a message to the UI's loop and must be safe to call from any thread."""

    def __init__(self, post: Callable[[EngineReported], object]) -> None:
        self._post = post
        self._lock = threading.Lock()
        self._waiting: list[EngineEvent] = []
        self._announced = False

    def deliver(self, event: EngineEvent) -> None:
        """The engine's listener: keep the event, and wake the UI unless it is awake already."""
        with self._lock:
            self._waiting.append(event)
            if self._announced:
                return
            self._announced = True
        with contextlib.suppress(RuntimeError):  # the loop is closed: the chat has ended, nobody looks
            self._post(EngineReported())

    def drain(self) -> list[Report]:
        """Everything that waits, merged; called on the UI's thread for each message."""
        with self._lock:
            events, self._waiting = self._waiting, []
            self._announced = False
        return merge(events)


def merge(events: Iterable[EngineEvent]) -> list[Report]:
    """Join runs of steps of one request; of runs of progress keep the last. Order and text are preserved."""
    runs: list[list[EngineEvent]] = []
    for event in events:
        if runs and _continues(runs[-1][-1], event):
            runs[-1].append(event)
        else:
            runs.append([event])
    return [_joined(run) for run in runs]


def _continues(last: EngineEvent, event: EngineEvent) -> bool:
    if isinstance(last, Loading):
        return isinstance(event, Loading)
    if isinstance(last, Prefilling | StepDecoded):
        return type(event) is type(last) and event.request_id == last.request_id
    return False


def _joined(run: list[EngineEvent]) -> Report:
    last = run[-1]
    if not isinstance(last, StepDecoded):
        return last
    steps = [event for event in run if isinstance(event, StepDecoded)]
    return Decoded(
        last.request_id,
        spans=tuple(span for event in steps for span in event.spans),
        steps=tuple(event.step for event in steps if event.step.tokens),
        metrics=last.metrics,
    )
