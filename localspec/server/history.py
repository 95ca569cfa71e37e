"""The last minutes of the server, for its status page: a fixed number of intervals, whatever goes on."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from localspec.engine.events import Step
from localspec.speculative.drafter import DraftSource

INTERVAL_S: Final = 10.0
N_INTERVALS: Final = 90
_RECENT_S: Final = 5.0
# Before so much time has passed, a rate would mostly show how the first steps happened to fall.
_SHORTEST_S: Final = 0.25


@dataclass(slots=True)
class Interval:
    """What the steps of all requests did in one interval: tokens, and steps by the source of their draft."""

    n_tokens: int = 0
    n_drafted: int = 0
    n_accepted: int = 0
    n_model_steps: int = 0
    n_copy_steps: int = 0
    n_plain_steps: int = 0

    def add(self, step: Step) -> None:
        """A step of some request."""
        self.n_tokens += len(step.tokens)
        self.n_drafted += step.n_draft
        self.n_accepted += step.n_accepted
        if not step.n_draft:
            self.n_plain_steps += 1
        elif step.source is DraftSource.LOOKUP:
            self.n_copy_steps += 1
        else:
            self.n_model_steps += 1


class History:
    """The latest `n_intervals` intervals of `interval_s` seconds each. Times are of any clock that does not go back."""

    def __init__(self, interval_s: float = INTERVAL_S, n_intervals: int = N_INTERVALS) -> None:
        self.interval_s = interval_s
        self._n_intervals = n_intervals
        self._intervals: deque[tuple[int, Interval]] = deque(maxlen=n_intervals)  # with its number, oldest first

    def add(self, step: Step, now: float) -> None:
        """A step ended at `now`."""
        number = self._number(now)
        if not self._intervals or self._intervals[-1][0] < number:
            self._intervals.append((number, Interval()))
        self._intervals[-1][1].add(step)

    def intervals(self, now: float) -> list[Interval]:
        """Exactly `n_intervals` of them, the oldest first; the last is the one that goes on."""
        by_number = dict(self._intervals)
        last = self._number(now)
        return [by_number.get(number, Interval()) for number in range(last - self._n_intervals + 1, last + 1)]

    def _number(self, now: float) -> int:
        return int(now // self.interval_s)


class RecentSpeed:
    """Tokens per second over the last few seconds, all requests together.

    After a pause it is counted from the first emission on, whose own tokens belong to the time before it.
    """

    def __init__(self, window_s: float = _RECENT_S) -> None:
        self._window_s = window_s
        self._emissions: deque[tuple[float, int]] = deque()
        self._n_tokens = 0
        self._began_at: float | None = None

    def add(self, n_tokens: int, now: float) -> None:
        """A step released `n_tokens` at `now`."""
        self._forget(now)
        if self._began_at is None:
            self._began_at, n_tokens = now, 0
        self._emissions.append((now, n_tokens))
        self._n_tokens += n_tokens

    def tokens_per_second(self, now: float) -> float | None:
        """None where nothing was generated lately, or it has only begun."""
        self._forget(now)
        if self._began_at is None:
            return None
        span_s = min(self._window_s, now - self._began_at)
        return self._n_tokens / span_s if span_s >= _SHORTEST_S else None

    def _forget(self, now: float) -> None:
        while self._emissions and self._emissions[0][0] <= now - self._window_s:
            self._n_tokens -= self._emissions.popleft()[1]
        if not self._emissions:
            self._began_at = None
