"""What the server has seen of its requests: the one record that /metrics, the status page and the log read from.

It follows every request by the events of the engine, on the event loop's thread. Times that clients feel (waiting, the
first tokens, gaps) are taken when events arrive here; those of the parts of a step are the engine's own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry

from localspec.engine.events import (
    Cancelled,
    Failed,
    Finished,
    FinishReason,
    Loaded,
    Prefilling,
    Queued,
    RequestEvent,
    StepDecoded,
)
from localspec.engine.metrics import RequestMetrics
from localspec.server.acceptance_watch import DEFAULT_THRESHOLD, AcceptanceWatch, Change, Notice
from localspec.server.cohorts import Cohort, CohortTable, endpoint_label, temperature_band
from localspec.server.histograms import Histograms
from localspec.server.history import History, RecentSpeed
from localspec.server.service import EngineService, Outcome, RequestInfo
from localspec.server.totals import FailureKind, Totals
from localspec.server.usage import UsageReader

logger = logging.getLogger("localspec.server")

# Drafted tokens over which the acceptance of a cohort is judged.
WINDOW_TOKENS: Final = 500


@dataclass(slots=True)
class _Followed:
    """A request that has not ended."""

    cohort: Cohort
    submitted_at: float
    has_begun: bool = False
    n_prompt_read: int = 0
    n_cached: int = 0
    last_step_at: float | None = None
    last_had_draft: bool = False
    metrics: RequestMetrics | None = None  # of the last step


class Observation:
    """Observes all requests of a service. `threshold` and `window_tokens`: see `AcceptanceWatch`; `now` in seconds."""

    def __init__(
        self,
        service: EngineService,
        *,
        threshold: float = DEFAULT_THRESHOLD,
        window_tokens: int = WINDOW_TOKENS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.service = service
        self.registry = CollectorRegistry()
        self.histograms = Histograms(self.registry)
        self.now = now
        self.began_at = now()
        self.cohorts = CohortTable(window_tokens)
        self.watch = AcceptanceWatch(threshold)
        self.history = History()
        self.speed = RecentSpeed()
        self.usage = UsageReader(service)
        self._totals = Totals()
        self._followed: dict[str, _Followed] = {}
        self._loaded: Loaded | None = service.loaded
        service.observers.append(self)

    @property
    def n_running(self) -> int:
        """Requests that the engine works on."""
        return sum(each.has_begun for each in self._followed.values())

    @property
    def totals(self) -> Totals:
        """The sums up to now."""
        self._note_restart()
        return self._totals

    def _note_restart(self) -> None:
        """An engine that was started again has told of its pair anew."""
        loaded = self.service.loaded
        if loaded is not self._loaded:
            self._totals.n_restarts += self._loaded is not None
            self._loaded = loaded

    # --- Observer ----------------------------------------------------------------------------------------------------

    def observe(self, info: RequestInfo, event: RequestEvent) -> None:
        """An event of a request."""
        self._note_restart()
        followed = self._followed.get(event.request_id) or self._follow(info, event)
        match event:
            case Queued():
                pass
            case Prefilling():
                self._began(followed)
                self._read(followed, event.n_cached, event.n_done)
            case StepDecoded():
                self._began(followed)
                self._decoded(followed, event)
            case Finished() | Cancelled() | Failed():
                self._ended(followed, event)

    def ended(self, info: RequestInfo, outcome: Outcome, elapsed_s: float) -> None:
        """A request has its outcome, `elapsed_s` after it came."""
        endpoint = endpoint_label(info.endpoint)
        self._totals.outcomes[endpoint, outcome] += 1
        if outcome is not Outcome.REFUSED:
            self.histograms.request_s.labels(endpoint).observe(elapsed_s)

    # --- one request -------------------------------------------------------------------------------------------------

    def _follow(self, info: RequestInfo, event: RequestEvent) -> _Followed:
        mode = info.mode
        if isinstance(event, Queued):
            mode = event.mode
            if event.mode_note:
                self._totals.fallbacks[info.mode, mode] += 1
        cohort = Cohort(endpoint_label(info.endpoint), temperature_band(info.sampling.temperature), mode)
        self.cohorts[cohort].n_requests += 1
        opened = (each for each in self.service.open_requests if each.request.request_id == event.request_id)
        submitted_at = next((each.submitted_at for each in opened), self.now())
        followed = self._followed[event.request_id] = _Followed(cohort, submitted_at)
        return followed

    def _began(self, followed: _Followed) -> None:
        if not followed.has_begun:
            followed.has_begun = True
            self.histograms.queue_s.observe(max(0.0, self.now() - followed.submitted_at))

    def _read(self, followed: _Followed, n_cached: int, n_done: int) -> None:
        """`n_done` tokens of the prompt are in the cache now; `n_cached` of them were there before.

        A reply that had to pause reads again what it had: that is no progress, and is not counted.
        """
        n_read = max(followed.n_prompt_read, n_done - n_cached)
        self._totals.n_cached_tokens += n_cached - followed.n_cached
        self._totals.n_prompt_tokens += n_read - followed.n_prompt_read
        followed.n_cached, followed.n_prompt_read = n_cached, n_read

    def _decoded(self, followed: _Followed, event: StepDecoded) -> None:
        now, step, metrics = self.now(), event.step, event.metrics
        self._totals.add(step)
        self._totals.add_seconds(followed.metrics, metrics)
        self._read(followed, metrics.n_cached_tokens, metrics.n_prompt_tokens)
        if followed.last_step_at is None:
            waited_s = max(0.0, now - followed.submitted_at)
            self.histograms.first_tokens_s.labels(followed.cohort.endpoint).observe(waited_s)
        else:
            self.histograms.emission_gap_s.observe(now - followed.last_step_at)
            self._tell(self.watch.drafting(followed.cohort, followed.last_had_draft, now))
        record = self.cohorts[followed.cohort]
        record.add(step)
        self.history.add(step, now)
        self.speed.add(len(step.tokens), now)
        if step.n_draft:
            self._tell(self.watch.acceptance(followed.cohort, record.window, now))
        followed.metrics, followed.last_step_at, followed.last_had_draft = metrics, now, step.n_draft > 0

    def _ended(self, followed: _Followed, event: Finished | Cancelled | Failed) -> None:
        del self._followed[event.request_id]
        if isinstance(event, Failed):
            self._totals.failures[FailureKind.of(event.error)] += 1
            return
        self._totals.add_seconds(followed.metrics, event.metrics)
        reason = event.reason if isinstance(event, Finished) else None
        if reason is not None:
            self._totals.finish_reasons[reason] += 1
        # The last step of a reply that may get no longer could not draft: it says nothing of the policy.
        if followed.last_step_at is not None and (followed.last_had_draft or reason is FinishReason.STOP):
            self._tell(self.watch.drafting(followed.cohort, followed.last_had_draft, followed.last_step_at))
        if followed.has_begun:
            endpoint = followed.cohort.endpoint
            self.histograms.prompt_tokens.labels(endpoint).observe(event.metrics.n_prompt_tokens)
            self.histograms.reply_tokens.labels(endpoint).observe(event.metrics.n_tokens)
            if event.metrics.tpot_s is not None:
                self.histograms.token_s.observe(event.metrics.tpot_s)

    def _tell(self, notice: Notice | None) -> None:
        if notice is not None:
            self._totals.changes[notice.change] += 1
            warns = notice.change in (Change.LOW, Change.SWITCHED_OFF)
            logger.log(logging.WARNING if warns else logging.INFO, "%s", notice.text)
