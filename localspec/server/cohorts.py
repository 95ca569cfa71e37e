"""How many drafted tokens are accepted, by the kind of request: endpoint, temperature band and mode.

One rate over everything hides what goes wrong: greedy code and stories at temperature 1 have little in common. There
are few cohorts, whatever clients send: every part of one is from a closed list.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from localspec.engine.events import Step
from localspec.engine.requests import Mode
from localspec.speculative.drafter import DraftSource

# Labels of temperatures, with the highest that belongs to each.
_BANDS: Final = (("0", 0.0), ("0-0.5", 0.5), ("0.5-1", 1.0))
TEMPERATURE_BANDS: Final = (*(label for label, _ in _BANDS), "above 1")

# A route that nobody foresaw still counts, under this name.
OTHER_ENDPOINT: Final = "other"
GENERATING_ENDPOINTS: Final = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/infill",
    "/completion",
)


def temperature_band(temperature: float) -> str:
    """The label of a temperature (at least 0): "0" is greedy, "0-0.5" ends with 0.5, and so on."""
    return next((label for label, highest in _BANDS if temperature <= highest), TEMPERATURE_BANDS[-1])


def endpoint_label(endpoint: str) -> str:
    """The endpoint by its full path, or "other" for one that is not among those that generate."""
    return next((each for each in (endpoint, f"/v1{endpoint}") if each in GENERATING_ENDPOINTS), OTHER_ENDPOINT)


@dataclass(frozen=True, slots=True, order=True)
class Cohort:
    """Requests of one kind. `mode` is the one that runs, which may be another than the one asked for."""

    endpoint: str
    temperature: str
    mode: Mode

    def __str__(self) -> str:
        return f"{self.endpoint}, temperature {self.temperature}, mode {self.mode}"


class AcceptanceWindow:
    """Accepted and drafted tokens of the latest drafts: as few of them as hold `n_tokens` drafted tokens."""

    def __init__(self, n_tokens: int) -> None:
        self._n_tokens = n_tokens
        self._drafts: deque[tuple[int, int]] = deque()
        self.n_drafted = 0
        self.n_accepted = 0

    def add(self, n_drafted: int, n_accepted: int) -> None:
        """A draft of `n_drafted` tokens (at least 1) was judged."""
        self._drafts.append((n_drafted, n_accepted))
        self.n_drafted += n_drafted
        self.n_accepted += n_accepted
        while self.n_drafted - self._drafts[0][0] >= self._n_tokens:
            oldest_drafted, oldest_accepted = self._drafts.popleft()
            self.n_drafted -= oldest_drafted
            self.n_accepted -= oldest_accepted

    @property
    def is_full(self) -> bool:
        """Whether it holds as many drafted tokens as it was made for."""
        return self.n_drafted >= self._n_tokens

    @property
    def rate(self) -> float | None:
        """Accepted / drafted; None before the first draft."""
        return self.n_accepted / self.n_drafted if self.n_drafted else None


class CohortRecord:
    """The totals of one cohort since the start, and its latest drafts."""

    def __init__(self, window_tokens: int) -> None:
        self.n_requests = 0
        self.n_tokens = 0
        self.n_steps = 0
        self.n_drafts = 0
        self.n_copies = 0  # of the drafts: those copied from the text so far
        self.n_drafted = 0
        self.n_accepted = 0
        self.window = AcceptanceWindow(window_tokens)

    def add(self, step: Step) -> None:
        """A step of one of its requests."""
        self.n_steps += 1
        self.n_tokens += len(step.tokens)
        if step.n_draft:
            self.n_drafts += 1
            self.n_copies += step.source is DraftSource.LOOKUP
            self.n_drafted += step.n_draft
            self.n_accepted += step.n_accepted
            self.window.add(step.n_draft, step.n_accepted)


class CohortTable:
    """A record per cohort that has had a request. `window_tokens`: drafted tokens that their windows hold."""

    def __init__(self, window_tokens: int) -> None:
        self._window_tokens = window_tokens
        self._records: dict[Cohort, CohortRecord] = {}

    def __getitem__(self, cohort: Cohort) -> CohortRecord:
        if cohort not in self._records:
            self._records[cohort] = CohortRecord(self._window_tokens)
        return self._records[cohort]

    def __iter__(self) -> Iterator[tuple[Cohort, CohortRecord]]:
        """Cohorts in order of their names."""
        return iter(sorted(self._records.items(), key=lambda item: item[0]))
