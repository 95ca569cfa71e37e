"""When a completion in an editor has enough lines: those that belong to the place where the cursor is."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from typing import Final

from localspec.engine.events import TextSpan
from localspec.engine.requests import LineLimits
from localspec.speculative.rejection import Origin

__all__ = ["LineWatch"]

_TAB_COLUMNS: Final = 4
# A line break and the white space after it, up to the first sign of the line or the end of the text.
_LINE_START: Final = re.compile(r"\n[ \t]*(?=([^ \t\n])|\n|$)")


class LineWatch:
    """Ends a reply by its lines. `now` is a clock in seconds; the reply's time begins with its first text."""

    def __init__(self, limits: LineLimits, now: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._now = now
        self._started: float | None = None
        self._has_line = False
        self._held = ""  # a line break and the white space after it, while more of that may come
        self._origin = Origin.TARGET
        self.is_over = False
        """The reply has ended: nothing more is released."""

    def push(self, spans: Iterable[TextSpan]) -> list[TextSpan]:
        """What of the text belongs to the reply. A line break waits for the first sign of its line."""
        released = []
        for span in spans:
            if self.is_over:
                break
            if self._started is None:
                self._started = self._now()
            self._origin = span.origin
            text = self._release(self._held + span.text)
            if text:
                released.append(TextSpan(text, span.origin))
        late_s = self._limits.time_s
        if late_s is not None and self._has_line and self._started is not None:
            self.is_over = self.is_over or self._now() - self._started >= late_s
        return released

    def flush(self) -> list[TextSpan]:
        """The end of the reply: what was held back."""
        held, self._held = self._held, ""
        return [TextSpan(held, self._origin)] if held and not self.is_over else []

    def _release(self, text: str) -> str:
        self._held = ""
        for start in _LINE_START.finditer(text):
            self._has_line = True
            if start[1] is None and start.end() == len(text):  # what follows may still be white space
                self._held = text[start.start() :]
                return text[: start.start()]
            indent = len(start[0][1:].expandtabs(_TAB_COLUMNS))
            if start[1] is not None and indent < self._limits.min_indent:
                self.is_over = True
                return text[: start.start()]
        return text
