"""Prompts sent before, and the way back to the one being written."""

from __future__ import annotations


class PromptHistory:
    """Walks through earlier prompts. The text that stood in the input when the walk began is kept at its end."""

    def __init__(self) -> None:
        self._sent: list[str] = []
        self._position = 0  # len(_sent): the text being written
        self._written = ""

    def add(self, prompt: str) -> None:
        """Remember a prompt; the walk is over. One that repeats the last is kept once."""
        if not self._sent or self._sent[-1] != prompt:
            self._sent.append(prompt)
        self._position = len(self._sent)
        self._written = ""

    def older(self, current: str) -> str | None:
        """The prompt before the one shown; None at the oldest."""
        if self._position == 0:
            return None
        if self._position == len(self._sent):
            self._written = current
        self._position -= 1
        return self._sent[self._position]

    def newer(self) -> str | None:
        """The prompt after the one shown, at last the text being written; None when that is shown."""
        if self._position == len(self._sent):
            return None
        self._position += 1
        return self._written if self._position == len(self._sent) else self._sent[self._position]
