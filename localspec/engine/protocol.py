"""What crosses the pipe between a front end and the engine process: pickled dataclasses, one after another.

Both ends are ours and of one version; what the engine reads from model files never becomes a pickle of its own making.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import BinaryIO

from localspec.engine.events import LoadEvent, RequestEvent, SwapEvent
from localspec.engine.questions import AnswerEvent, Question
from localspec.engine.requests import GenerateRequest, ModelSpec, PairSpec


@dataclass(frozen=True, slots=True)
class Load:
    """Load a pair, in place of the one before. `load_id` comes back with its events."""

    load_id: int
    pair: PairSpec


@dataclass(frozen=True, slots=True)
class SwapDraft:
    """Exchange the draft model of the loaded pair, once the replies that were asked for before it have ended."""

    load_id: int
    draft: ModelSpec | None


@dataclass(frozen=True, slots=True)
class CancelSwap:
    """Keep the draft model that is loaded; nothing happens when that exchange has ended."""

    load_id: int


@dataclass(frozen=True, slots=True)
class Submit:
    """Queue a request."""

    request: GenerateRequest


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop a request."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Ask:
    """Answer a question between two steps. `ask_id` comes back with the answer."""

    ask_id: int
    question: Question


@dataclass(frozen=True, slots=True)
class Close:
    """End the process in order."""


@dataclass(frozen=True, slots=True)
class LoadReport:
    """An event of the load, or of the exchange of the draft model, `load_id`."""

    load_id: int
    event: LoadEvent | SwapEvent


@dataclass(frozen=True, slots=True)
class AnswerReport:
    """The answer to the question `ask_id`."""

    ask_id: int
    event: AnswerEvent


Command = Load | SwapDraft | CancelSwap | Submit | Cancel | Ask | Close
Report = LoadReport | AnswerReport | RequestEvent


def send(stream: BinaryIO, message: Command | Report) -> None:
    """Write one message.

    Raises:
        OSError: the other side is gone.
    """
    stream.write(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))
    stream.flush()


def receive(stream: BinaryIO) -> Command | Report:
    """Read one message.

    Raises:
        EOFError: the other side is gone, or died in the middle of a message.
    """
    try:
        return pickle.load(stream)  # type: ignore[no-any-return]  # noqa: S301 - from our own process
    except Exception as error:
        raise EOFError("No further message can be read.") from error
