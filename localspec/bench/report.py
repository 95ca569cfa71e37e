"""A measurement as a Markdown file for people, and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from localspec.bench.conditions import Conditions
from localspec.bench.figures import Figures, Results
from localspec.bench.markdown import escaped, markdown_table
from localspec.bench.runner import Measurement
from localspec.bench.schedule import Schedule
from localspec.bench.tables import (
    Table,
    cell_table,
    context_table,
    length_tables,
    position_table,
    prompt_table,
    speed_table,
    step_table,
    time_table,
)
from localspec.engine.requests import DEFAULT_NUM_SPECULATIVE_TOKENS, MAX_NUM_SPECULATIVE_TOKENS

FORMAT: Final = 1
"""Version of the JSON object."""

_HOW_TO_READ: Final = """\
*tok/s* is decode speed, after the first emission. *speedup* is against plain decoding in the same repetition; in
parentheses the extremes, over the repetitions of a prompt or over the prompts. *accept*: accepted / drafted tokens.
*tok/step*: tokens that a step yields; *ideal*: what it would yield if every token were accepted with the measured
probability, independently. *effic.*: speedup / tokens per step, the part of the possible gain that arrives. *wasted*:
share of the target's rows whose token was thrown away. *draft*, *verify*: share of the step time in drafting and in
the target's pass. *kept/s*, *raw/s*: tokens of the reply, and rows that the target evaluated. Times are in
milliseconds. The formulas are in docs/metrics.md."""


def facts(measurement: Measurement, results: Results, conditions: Conditions) -> tuple[str, ...]:
    """What a reader must know first: the conditions, the schedule, and how much of it was measured."""
    incomplete = () if measurement.is_complete else (_state(measurement, results),)
    return (*conditions.lines(), _settings(measurement.schedule), *incomplete)


def _settings(schedule: Schedule) -> str:
    lengths = sorted({cell.workload.max_tokens for cell in schedule.cells})
    upto = str(lengths[0]) if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]}"
    repetitions = "1 repetition" if schedule.repetitions == 1 else f"{schedule.repetitions} repetitions"
    sampling = f"top-k {schedule.sampling.top_k}, top-p {schedule.sampling.top_p:g}, min-p {schedule.sampling.min_p:g}"
    cache = "; prompts stay in the cache" if schedule.keeps_cache else ""
    return (
        f"{repetitions}, replies of at most {upto} tokens, seed {schedule.seed}, {sampling}; {_ceiling(schedule)} in "
        f"modes that choose{cache}"
    )


def _ceiling(schedule: Schedule) -> str:
    if schedule.num_speculative_tokens is not None:
        return f"drafts of at most {schedule.num_speculative_tokens} tokens"
    return f"drafts of at most {DEFAULT_NUM_SPECULATIVE_TOKENS} tokens, copies of at most {MAX_NUM_SPECULATIVE_TOKENS},"


def _state(measurement: Measurement, results: Results) -> str:
    schedule, n_cells = measurement.schedule, len(measurement.schedule.cells)
    how = "Stopped" if measurement.error is None else "Ended by an error"
    return (
        f"{how} after {len(measurement.runs)} of {schedule.n_runs} replies. Only rounds with every mode count: "
        f"{results.n_rounds} of {schedule.repetitions * n_cells}, in {len(results.cells)} of {n_cells} cells."
    )


# --- Markdown --------------------------------------------------------------------------------------------------------


def markdown(measurement: Measurement, results: Results, conditions: Conditions) -> str:
    """The whole report."""
    head = "\n".join(f"- {escaped(fact)}" for fact in facts(measurement, results, conditions))
    parts = (f"# Speed of {escaped(conditions.pair.name)}", head, _HOW_TO_READ, *map(_section, _all_tables(results)))
    return "\n\n".join(parts) + "\n"


def _all_tables(results: Results) -> Iterator[Table]:
    if not results.cells:
        return
    for scope in results.scopes():
        yield speed_table(results, scope)
        yield time_table(results, scope)
    for scope in results.scopes():
        yield from length_tables(results, scope)
        if contexts := context_table(results, scope):
            yield contexts
    for scope in results.scopes():
        if positions := position_table(results, scope, MAX_NUM_SPECULATIVE_TOKENS):
            yield positions
        yield step_table(results, scope)
    for scope in results.scopes():
        if scope.temperature is not None:
            yield prompt_table(results, scope)
    yield cell_table(results)


def _section(table: Table) -> str:
    return "\n\n".join((f"## {escaped(table.title)}", markdown_table(table.header, table.rows), *table.notes))


# --- JSON ------------------------------------------------------------------------------------------------------------


def as_json(measurement: Measurement, results: Results, conditions: Conditions) -> str:
    """Every run with all its metrics, the figures per temperature and mode, and what they were measured on."""
    schedule = measurement.schedule
    document = {
        "format": FORMAT,
        **conditions.as_dict(),
        "settings": {
            "contenders": [str(contender) for contender in schedule.contenders],
            "temperatures": list(dict.fromkeys(cell.temperature for cell in schedule.cells)),
            "repetitions": schedule.repetitions,
            "seed": schedule.seed,
            "num_speculative_tokens": schedule.num_speculative_tokens,
            "keeps_cache": schedule.keeps_cache,
            # The temperature and the seed are those of each run.
            "sampling": {
                name: value for name, value in asdict(schedule.sampling).items() if name not in {"temperature", "seed"}
            },
        },
        "complete": measurement.is_complete,
        "error": None if measurement.error is None else str(measurement.error),
        "n_runs_planned": schedule.n_runs,
        "figures": list(_figures(results)),
        "runs": [run.as_dict() for run in measurement.runs],
    }
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _figures(results: Results) -> Iterator[dict[str, Any]]:
    if not results.cells:
        return
    for scope in results.scopes():
        for contender in results.contenders:
            yield {"contender": str(contender), "temperature": scope.temperature, **_of(results.over(contender, scope))}


def _of(each: Figures) -> dict[str, Any]:
    return {
        "tokens_per_second": None if each.speed is None else asdict(each.speed),
        "speedup": None if each.speedup is None else asdict(each.speedup),
        "ttft_s": each.ttft_s,
        "itl_p50_s": each.itl_p50_s,
        "itl_p95_s": each.itl_p95_s,
        "draft_acceptance_rate": each.metrics.draft_acceptance_rate,
        "acceptance_by_position": each.metrics.acceptance_by_position,
        "mean_acceptance_length": each.metrics.mean_acceptance_length,
        "ideal_tokens_per_step": each.ideal_tokens_per_step,
        "speculation_efficiency": each.speculation_efficiency,
        "discarded_share": each.metrics.discarded_share,
        "draft_share": each.times.draft_share,
        "verify_share": each.times.verify_share,
        "committed_per_second": each.times.committed_per_second,
        "raw_per_second": each.times.raw_per_second,
    }
