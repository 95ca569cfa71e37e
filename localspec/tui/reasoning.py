"""What a model thinks before it replies, where a server tells it apart from the reply: set as a quote above it."""

from __future__ import annotations

from collections.abc import Iterable

from localspec.engine.events import TextSpan


class ReasoningQuote:
    """Puts spans together as Markdown, while they come."""

    def __init__(self) -> None:
        self._is_open = False
        self._has_text = False

    def markdown(self, spans: Iterable[TextSpan]) -> str:
        """The text to add."""
        added: list[str] = []
        for span in spans:
            if span.is_reasoning != self._is_open and span.text:
                self._is_open = span.is_reasoning
                gap = "\n\n" if self._has_text else ""
                added.append(f"{gap}> " if span.is_reasoning else gap)
            added.append(span.text.replace("\n", "\n> ") if span.is_reasoning else span.text)
            self._has_text = self._has_text or bool(span.text)
        return "".join(added)
