"""Textual messages of the chat."""

from __future__ import annotations

from textual.message import Message


class EngineReported(Message, bubble=False):
    """Events of the engine wait in the bridge."""


class PromptSent(Message):
    """The user sent a prompt."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
