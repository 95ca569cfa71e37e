"""GET /metrics: what was observed, in Prometheus' text format.

The names after the colon are those that llama-server and vLLM have for the same thing, where they do. No name and no
label comes from a client.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

import localspec
from localspec.engine.events import FinishReason
from localspec.engine.questions import EngineUsage
from localspec.printable import one_line
from localspec.server.acceptance_watch import Change
from localspec.server.observation import Observation
from localspec.server.state import Observed
from localspec.server.totals import FailureKind, StepKind, Totals
from localspec.server.usage import n_cached

_PREFIX: Final = "localspec:"
_COHORT: Final = ("endpoint", "temperature", "mode")
_LONGEST_NAME: Final = 200  # of a model, which names itself
_COHORT_HELP: Final = 'by endpoint, temperature band ("0" is greedy, "0-0.5" ends with 0.5) and mode'

_Rows = Iterable[tuple[tuple[str, ...], float]]

router = APIRouter(tags=["operation"])


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(observed: Observed) -> Response:
    """The server's metrics in Prometheus' text format."""
    headers = {"content-type": CONTENT_TYPE_PLAIN_0_0_4, "cache-control": "no-store"}
    return Response(exposition(observed, await observed.usage.read()), headers=headers)


def exposition(observation: Observation, usage: EngineUsage | None) -> bytes:
    """All metrics as text. `usage` None: nothing is said of the context."""
    registry = CollectorRegistry()
    registry.register(_Page(observation, usage))
    return generate_latest(registry)


class _Page:
    """A `Collector` of everything that one scrape gets."""

    def __init__(self, observation: Observation, usage: EngineUsage | None) -> None:
        self._observation = observation
        self._usage = usage

    def describe(self) -> list[Metric]:
        """Nothing: names are not looked up."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All families."""
        totals = self._observation.totals
        yield from self._now()
        yield from _requests(totals)
        yield from _tokens(totals)
        yield from _speculation(totals)
        yield from self._cohorts()
        for family in self._observation.registry.collect():
            # When each series began is of no use here, and doubles the text.
            family.samples = [each for each in family.samples if not each.name.endswith("_created")]
            yield family

    def _now(self) -> Iterator[Metric]:
        service, observation = self._observation.service, self._observation
        if loaded := service.loaded:
            names = (
                localspec.__version__,
                one_line(loaded.target_name)[:_LONGEST_NAME],
                one_line(loaded.draft_name or "")[:_LONGEST_NAME],
            )
            yield _gauge(
                "pair_info", "The pair that is served; always 1.", [(names, 1)], ("version", "target", "draft")
            )
        n_running = observation.n_running
        yield _gauge("requests_processing", "Requests that the engine works on.", n_running)
        yield _gauge("requests_deferred", "Requests that wait for their turn.", len(service.open_requests) - n_running)
        yield _gauge("slots", "Replies that may run at once.", service.n_parallel)
        speed = observation.speed.tokens_per_second(observation.now()) or 0.0
        yield _gauge("predicted_tokens_seconds", "Tokens per second of all replies, over the last seconds.", speed)
        if self._usage is not None:
            n_used, n_ctx = n_cached(self._usage), self._usage.n_ctx
            yield _gauge("kv_cache_tokens", "Tokens in the KV cache, those kept for later requests included.", n_used)
            yield _gauge("kv_cache_size_tokens", "Tokens that the KV cache holds at most.", n_ctx)
            yield _gauge("kv_cache_usage_ratio", "Share of the KV cache that is in use, 0 to 1.", n_used / n_ctx)

    def _cohorts(self) -> Iterator[Metric]:
        records = [
            ((cohort.endpoint, cohort.temperature, cohort.mode), each) for cohort, each in self._observation.cohorts
        ]

        def counter(name: str, what: str, values: Mapping[tuple[str, ...], float]) -> Metric:
            return _counter(f"cohort_{name}", f"{what}, {_COHORT_HELP}.", values.items(), _COHORT)

        yield counter("requests", "Requests", {labels: each.n_requests for labels, each in records})
        yield counter("tokens", "Generated tokens", {labels: each.n_tokens for labels, each in records})
        yield counter("draft_tokens", "Drafted tokens", {labels: each.n_drafted for labels, each in records})
        yield counter("accepted_tokens", "Accepted tokens", {labels: each.n_accepted for labels, each in records})
        rates = [(labels, each.window.rate) for labels, each in records]
        yield _gauge(
            "cohort_acceptance_ratio",
            f"Accepted / drafted over the latest drafts, {_COHORT_HELP}.",
            [(labels, rate) for labels, rate in rates if rate is not None],
            _COHORT,
        )


def _requests(totals: Totals) -> Iterator[Metric]:
    outcomes = [((endpoint, outcome.value), n) for (endpoint, outcome), n in sorted(totals.outcomes.items())]
    yield _counter("requests", "Requests that have ended, by endpoint and outcome.", outcomes, ("endpoint", "outcome"))
    reasons = [((reason.value,), totals.finish_reasons[reason]) for reason in FinishReason]
    yield _counter("request_success", "Replies that are complete, by what ended them.", reasons, ("finished_reason",))
    failures = [((kind.value,), totals.failures[kind]) for kind in FailureKind]
    yield _counter("request_failures", "Requests that failed, by what they ran into.", failures, ("kind",))
    yield _counter("engine_restarts", "Times that the engine process was started again.", totals.n_restarts)


def _tokens(totals: Totals) -> Iterator[Metric]:
    yield _counter(
        "prompt_tokens", "Prompt tokens that were read, without those found in the cache.", totals.n_prompt_tokens
    )
    yield _counter("prompt_tokens_cached", "Prompt tokens that were found in the cache.", totals.n_cached_tokens)
    yield _counter("prompt_seconds", "Seconds of reading prompts, summed over requests.", totals.prefill_s)
    yield _counter("tokens_predicted", "Generated tokens.", totals.n_tokens)
    yield _counter("tokens_predicted_seconds", "Seconds of generating, summed over requests.", totals.step_s)
    steps = [((kind.value,), totals.steps[kind]) for kind in StepKind]
    yield _counter("steps", "Steps of all replies, by where their draft came from.", steps, ("draft",))


def _speculation(totals: Totals) -> Iterator[Metric]:
    yield _counter("spec_decode_num_drafts", "Drafts that were verified.", totals.n_drafts)
    yield _counter("spec_decode_num_draft_tokens", "Drafted tokens.", totals.n_drafted)
    yield _counter("spec_decode_num_accepted_tokens", "Drafted tokens that were accepted.", totals.n_accepted)
    n_positions = next((i for i, n in enumerate(totals.drafted_at) if not n), len(totals.drafted_at))
    for name, what, counts in (
        ("draft", "Drafts that had a token at a position (from 0).", totals.drafted_at),
        ("accepted", "Drafts whose token at a position (from 0) was accepted.", totals.accepted_at),
    ):
        rows = [((str(position),), counts[position]) for position in range(n_positions)]
        yield _counter(f"spec_decode_num_{name}_tokens_per_pos", what, rows, ("position",))
    yield _counter("draft_seconds", "Seconds of drafting, summed over requests.", totals.draft_s)
    yield _counter(
        "verify_seconds",
        "Seconds of the target's forward passes, summed over requests: those that share a pass each count all of it.",
        totals.verify_s,
    )
    fallbacks = [((asked.value, ran.value), n) for (asked, ran), n in sorted(totals.fallbacks.items())]
    yield _counter(
        "mode_fallbacks", "Requests that ran in another mode than they asked for.", fallbacks, ("asked", "ran")
    )
    switches = [(("off",), totals.changes[Change.SWITCHED_OFF]), (("on",), totals.changes[Change.SWITCHED_ON])]
    yield _counter(
        "speculation_switches", "Times that drafting was switched off in a cohort, and on again.", switches, ("to",)
    )
    yield _counter(
        "low_acceptance", "Times that acceptance of a cohort fell below the threshold.", totals.changes[Change.LOW]
    )


def _counter(name: str, what: str, values: float | _Rows, labels: tuple[str, ...] = ()) -> Metric:
    """A family of counters; the text adds `_total` to the name."""
    family = CounterMetricFamily(_PREFIX + name, what, labels=labels)
    for row_labels, value in _rows(values):
        family.add_metric(row_labels, value)
    return family


def _gauge(name: str, what: str, values: float | _Rows, labels: tuple[str, ...] = ()) -> Metric:
    family = GaugeMetricFamily(_PREFIX + name, what, labels=labels)
    for row_labels, value in _rows(values):
        family.add_metric(row_labels, value)
    return family


def _rows(values: float | _Rows) -> _Rows:
    return [((), values)] if isinstance(values, int | float) else values
