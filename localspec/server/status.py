"""What the status page shows, as JSON: numbers and names, and never a word of a prompt or a reply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from pydantic import BaseModel

import localspec
from localspec.engine.events import Prefilling, StepDecoded
from localspec.engine.questions import EngineUsage
from localspec.printable import one_line
from localspec.server.cohorts import endpoint_label
from localspec.server.errors import error_body
from localspec.server.history import Interval
from localspec.server.observation import Observation
from localspec.server.service import EngineService, OpenRequest, Outcome
from localspec.server.settings import ServerSettings
from localspec.server.usage import n_cached

__all__ = ["Status", "status"]

_LONGEST_NAME: Final = 200  # of a model, which names itself
_LATEST: Final = 6  # intervals that the acceptance "now" is taken from: a minute


class PairStatus(BaseModel):
    """The models. `note`: why speculation is off for them, if it is."""

    target: str
    draft: str | None
    n_ctx: int
    n_threads: int
    gpu: bool
    note: str


class HistoryStatus(BaseModel):
    """Sums over intervals of equal length, the oldest first; the last one goes on."""

    interval_s: float
    n_tokens: list[int]
    n_drafted: list[int]
    n_accepted: list[int]


class StepsStatus(BaseModel):
    """Steps over the time of the history, by where their draft came from."""

    draft_model: int
    copied: int
    none: int


class SlotStatus(BaseModel):
    """A reply that runs. `n_read` of `n_prompt` tokens of its prompt have been read."""

    endpoint: str
    phase: Literal["reading", "writing", "stopping"]
    n_prompt: int
    n_read: int
    n_tokens: int
    tokens_per_second: float | None
    acceptance_rate: float | None
    elapsed_s: float


class CacheStatus(BaseModel):
    """Tokens in the KV cache, which all slots share."""

    n_used: int
    n_most: int


class TotalsStatus(BaseModel):
    """Sums since the server's start."""

    n_requests: int
    n_failed: int
    n_refused: int
    n_prompt_tokens: int
    n_cached_tokens: int
    n_tokens: int
    n_drafted: int
    n_accepted: int
    n_restarts: int


class CohortStatus(BaseModel):
    """Requests of one kind. `acceptance_rate`: of its latest drafts. `is_off`: its replies have stopped drafting."""

    endpoint: str
    temperature: str
    mode: str
    n_requests: int
    n_tokens: int
    n_drafted: int
    n_accepted: int
    acceptance_rate: float | None
    is_off: bool


class Status(BaseModel):
    """The server now. `note` says what it waits for or why it does not run, `progress` (0 to 1) how far a load is."""

    version: str
    state: str
    note: str
    progress: float | None
    model: str | None
    pair: PairStatus | None
    uptime_s: float
    tokens_per_second: float | None
    acceptance_rate: float | None
    history: HistoryStatus
    steps: StepsStatus
    slots: list[SlotStatus]
    n_slots: int
    n_waiting: int
    n_queue: int
    cache: CacheStatus | None
    totals: TotalsStatus
    cohorts: list[CohortStatus]


def status(observation: Observation, settings: ServerSettings, usage: EngineUsage | None) -> Status:
    """What there is to show. `usage` None: the cache is left out."""
    service, now = observation.service, observation.now()
    intervals = observation.history.intervals(now)
    running = [each for each in service.open_requests if isinstance(each.last_event, Prefilling | StepDecoded)]
    pair = _pair(service)
    return Status(
        version=localspec.__version__,
        state=service.state.value,
        note=_note(service),
        progress=service.loading.fraction if service.loading else None,
        model=settings.model_alias or (pair.target if pair else None),
        pair=pair,
        uptime_s=now - observation.began_at,
        tokens_per_second=observation.speed.tokens_per_second(now),
        acceptance_rate=_acceptance(intervals[-_LATEST:]),
        history=HistoryStatus(
            interval_s=observation.history.interval_s,
            n_tokens=[each.n_tokens for each in intervals],
            n_drafted=[each.n_drafted for each in intervals],
            n_accepted=[each.n_accepted for each in intervals],
        ),
        steps=StepsStatus(
            draft_model=sum(each.n_model_steps for each in intervals),
            copied=sum(each.n_copy_steps for each in intervals),
            none=sum(each.n_plain_steps for each in intervals),
        ),
        slots=[_slot(each, now) for each in running],
        n_slots=service.n_parallel,
        n_waiting=len(service.open_requests) - len(running),
        n_queue=service.n_queue,
        cache=CacheStatus(n_used=n_cached(usage), n_most=usage.n_ctx) if usage else None,
        totals=_totals(observation),
        cohorts=_cohorts(observation),
    )


def _pair(service: EngineService) -> PairStatus | None:
    loaded = service.loaded
    if loaded is None:
        return None
    return PairStatus(
        target=one_line(loaded.target_name)[:_LONGEST_NAME],
        draft=None if loaded.draft_name is None else one_line(loaded.draft_name)[:_LONGEST_NAME],
        n_ctx=loaded.n_ctx,
        n_threads=loaded.n_threads,
        gpu=loaded.gpu_offload,
        note=one_line(loaded.speculation_note),
    )


def _note(service: EngineService) -> str:
    if service.load_error is not None:
        return error_body(service.load_error)["error"]["message"] or ""
    return service.loading.what if service.loading else ""


def _acceptance(intervals: Sequence[Interval]) -> float | None:
    n_drafted = sum(each.n_drafted for each in intervals)
    return sum(each.n_accepted for each in intervals) / n_drafted if n_drafted else None


def _slot(opened: OpenRequest, now: float) -> SlotStatus:
    event, metrics = opened.last_event, opened.metrics
    n_prompt = n_read = 0
    if isinstance(event, Prefilling):
        n_prompt, n_read = event.n_total, event.n_done
    elif metrics is not None:
        n_prompt = n_read = metrics.n_prompt_tokens
    return SlotStatus(
        endpoint=endpoint_label(opened.info.endpoint),
        phase="stopping" if opened.cut_short else "reading" if isinstance(event, Prefilling) else "writing",
        n_prompt=n_prompt,
        n_read=n_read,
        n_tokens=metrics.n_tokens if metrics else 0,
        tokens_per_second=metrics.recent_tokens_per_second if metrics else None,
        acceptance_rate=metrics.draft_acceptance_rate if metrics else None,
        elapsed_s=max(0.0, now - opened.submitted_at),
    )


def _totals(observation: Observation) -> TotalsStatus:
    totals = observation.totals
    by_outcome = dict.fromkeys(Outcome, 0)
    for (_, outcome), count in totals.outcomes.items():
        by_outcome[outcome] += count
    return TotalsStatus(
        n_requests=sum(by_outcome.values()),
        n_failed=by_outcome[Outcome.FAILED],
        n_refused=by_outcome[Outcome.REFUSED],
        n_prompt_tokens=totals.n_prompt_tokens,
        n_cached_tokens=totals.n_cached_tokens,
        n_tokens=totals.n_tokens,
        n_drafted=totals.n_drafted,
        n_accepted=totals.n_accepted,
        n_restarts=totals.n_restarts,
    )


def _cohorts(observation: Observation) -> list[CohortStatus]:
    return [
        CohortStatus(
            endpoint=cohort.endpoint,
            temperature=cohort.temperature,
            mode=cohort.mode.value,
            n_requests=record.n_requests,
            n_tokens=record.n_tokens,
            n_drafted=record.n_drafted,
            n_accepted=record.n_accepted,
            acceptance_rate=record.window.rate,
            is_off=observation.watch.is_off(cohort),
        )
        for cohort, record in observation.cohorts
    ]
