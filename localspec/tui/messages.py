"""Textual messages of the chat."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.message import Message

if TYPE_CHECKING:
    from localspec.pairing.chosen import ChosenPair


class EngineReported(Message, bubble=False):
    """Events of the engine wait in the bridge."""


class PromptSent(Message):
    """The user sent a prompt."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class PairsAsked(Message):
    """The user wants to choose models."""


class ReplyEnded(Message):
    """No reply is open any more."""


class DownloadsChanged(Message, bubble=False):
    """The downloads stand otherwise than before."""


class PairChosen(Message):
    """The user wants a pair: what is missing of it is to be fetched, and then it is to be loaded."""

    def __init__(self, pair: ChosenPair) -> None:
        super().__init__()
        self.pair = pair
