"""Tells when acceptance stays low in a cohort, and when its replies stop or begin to draft again.

Both are told once per change, and no more often than every so many seconds for a cohort: a log that repeats itself is
not read. What changed meanwhile is told when the pause is over, if it still holds.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from localspec.engine.requests import Mode
from localspec.server.cohorts import AcceptanceWindow, Cohort

DEFAULT_THRESHOLD: Final = 0.55
# Acceptance has recovered when it is this much above the threshold: at the threshold itself it would go to and fro.
_MARGIN: Final = 0.03
# A policy that has switched drafting off still probes now and then; one that drafts again does so in most steps.
_OFF_BELOW: Final = 1 / 16
_ON_FROM: Final = 1 / 4


class Change(StrEnum):
    """What can be told of a cohort."""

    LOW = "low"
    RECOVERED = "recovered"
    SWITCHED_OFF = "switched off"
    SWITCHED_ON = "switched on"


@dataclass(frozen=True, slots=True)
class Notice:
    """Something to tell, and the sentence that tells it."""

    change: Change
    cohort: Cohort
    text: str


class _Signal:
    """A condition that is told when it changes, at most once in `quiet_s` seconds."""

    def __init__(self, quiet_s: float) -> None:
        self._quiet_s = quiet_s
        self._told = False
        self._told_at: float | None = None

    def is_news(self, holds: bool, now: float) -> bool:
        """Whether to tell now that it holds, or no longer does."""
        if holds is self._told or (self._told_at is not None and now - self._told_at < self._quiet_s):
            return False
        self._told, self._told_at = holds, now
        return True


class _Watched:
    """What is known of one cohort."""

    def __init__(self, n_steps: int, quiet_s: float) -> None:
        self.is_low = False
        self.low = _Signal(quiet_s)
        self.drafts: deque[bool] = deque(maxlen=n_steps)  # whether the latest steps had one
        self.n_with_draft = 0
        self.is_off = False
        self.off = _Signal(quiet_s)

    def note_draft(self, has_draft: bool) -> None:
        """Whether a step had a draft."""
        if len(self.drafts) == self.drafts.maxlen:
            self.n_with_draft -= self.drafts[0]
        self.drafts.append(has_draft)
        self.n_with_draft += has_draft


class AcceptanceWatch:
    """Follows the steps of all cohorts.

    Acceptance is low when less than `threshold` of a full window of drafted tokens were accepted. Drafting is off when
    nearly none of the last `n_steps` steps had a draft, in modes where a draft model could have made one; where drafts
    are copied, steps without one only mean that nothing repeats. `quiet_s`: the pause between two notices of one kind
    and cohort.
    """

    def __init__(self, threshold: float = DEFAULT_THRESHOLD, *, n_steps: int = 64, quiet_s: float = 60.0) -> None:
        self._threshold = threshold
        self._n_steps = n_steps
        self._quiet_s = quiet_s
        self._watched: dict[Cohort, _Watched] = {}

    def acceptance(self, cohort: Cohort, window: AcceptanceWindow, now: float) -> Notice | None:
        """What there is to tell after a draft, which `window` has in it. `now` is in seconds."""
        rate = window.rate
        if rate is None or not window.is_full:
            return None
        watched = self._of(cohort)
        if rate < self._threshold:
            watched.is_low = True
        elif rate >= min(1.0, self._threshold + _MARGIN):
            watched.is_low = False
        if not watched.low.is_news(watched.is_low, now):
            return None
        share = f"{rate:.0%} of the last {window.n_drafted} drafted tokens were accepted ({cohort})"
        if watched.is_low:
            text = f"Acceptance is low: {share}; the threshold is {self._threshold:.0%}."
            return Notice(Change.LOW, cohort, text)
        return Notice(Change.RECOVERED, cohort, f"Acceptance has recovered: {share}.")

    def drafting(self, cohort: Cohort, has_draft: bool, now: float) -> Notice | None:
        """What there is to tell after a step that could have had a draft."""
        if cohort.mode not in (Mode.AUTO, Mode.DRAFT):
            return None
        watched = self._of(cohort)
        watched.note_draft(has_draft)
        n_steps, n_with_draft = len(watched.drafts), watched.n_with_draft
        if n_with_draft >= _ON_FROM * self._n_steps:
            watched.is_off = False
        elif n_steps == self._n_steps and n_with_draft < _OFF_BELOW * self._n_steps:
            watched.is_off = True
        if not watched.off.is_news(watched.is_off, now):
            return None
        count = f"{n_with_draft} of the last {n_steps} steps had a draft ({cohort})"
        if watched.is_off:
            return Notice(Change.SWITCHED_OFF, cohort, f"Speculation was switched off, since it does not pay: {count}.")
        return Notice(Change.SWITCHED_ON, cohort, f"Speculation was switched on again: {count}.")

    def is_off(self, cohort: Cohort) -> bool:
        """Whether a cohort has stopped drafting."""
        return cohort in self._watched and self._watched[cohort].is_off

    def _of(self, cohort: Cohort) -> _Watched:
        if cohort not in self._watched:
            self._watched[cohort] = _Watched(self._n_steps, self._quiet_s)
        return self._watched[cohort]
