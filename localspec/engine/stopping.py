"""Stop strings: text is held back while it may still turn out to be the start of one."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace

from localspec.engine.events import TextSpan

__all__ = ["StopStrings"]


class StopStrings:
    """Ends a reply before the first place in its text where a stop string (none of them empty) begins.

    The reply does not depend on how its text was cut into spans. Where two stop strings begin at the same place, the
    shorter counts: it is complete first. One that lies inside an earlier, longer one which may still come waits for it,
    or else the reply would end with the start of the longer one.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self.matched: str | None = None
        """The stop string that ended the reply; None until then."""
        self._stops = sorted(stops, key=len)  # an alternation takes the first that fits: the shortest
        self._pattern = re.compile("|".join(map(re.escape, self._stops)))
        self._longest = len(self._stops[-1]) if stops else 0
        self._held: deque[TextSpan] = deque()
        self._text = ""  # of the held spans

    def push(self, spans: Iterable[TextSpan]) -> tuple[TextSpan, ...]:
        """Add text; returns the spans, cut where needed, that can no longer be part of a stop string.

        After a match nothing is released, whatever is pushed.
        """
        if not self._stops:
            return tuple(spans)
        if self.matched is not None:
            return ()
        for span in spans:
            self._held.append(span)
            self._text += span.text
        match = self._pattern.search(self._text)
        end = match.start() if match else len(self._text)
        # Only the last `_longest - 1` characters can begin a stop string that is not complete yet.
        for start in range(max(0, len(self._text) - self._longest + 1), end):
            if any(stop.startswith(self._text[start:]) for stop in self._stops):
                return self._release(start)
        released = self._release(end)
        if match:
            self._end(match.group())
        return released

    def flush(self) -> tuple[TextSpan, ...]:
        """The end of the reply: what was held back, up to a stop string that only waited for a longer one."""
        match = self._pattern.search(self._text) if self._text else None
        released = self._release(match.start() if match else len(self._text))
        if match:
            self._end(match.group())
        return released

    def _release(self, n_chars: int) -> tuple[TextSpan, ...]:
        self._text = self._text[n_chars:]
        released = []
        while n_chars > 0:
            span = self._held.popleft()
            if len(span.text) > n_chars:
                self._held.appendleft(replace(span, text=span.text[n_chars:]))
                span = replace(span, text=span.text[:n_chars])
            n_chars -= len(span.text)
            if span.text:
                released.append(span)
        return tuple(released)

    def _end(self, stop: str) -> None:
        self.matched = stop
        self._held.clear()
        self._text = ""
