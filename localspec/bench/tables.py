"""The tables of a report, as text in cells: the terminal and the Markdown file show the same ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from localspec.bench.cell_text import NOTHING, middle, milliseconds, number, percent, with_extremes
from localspec.bench.figures import Figures, Results, Scope
from localspec.bench.schedule import PLAIN

MAX_DRAFT_SHARE: Final = 0.30
"""A larger share of the step time is flagged: the draft model is too slow for its target, or drafts too far."""

_FLAG: Final = " !"
_FLAGGED: Final = "! Over 30 % of the step time goes into drafting: a smaller draft model or shorter drafts might gain."


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under a header; the first column names the row, the others hold numbers."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


# --- over many cells -------------------------------------------------------------------------------------------------


def speed_table(results: Results, scope: Scope) -> Table:
    """Speed, and what of the speculation accounts for it."""
    every = _figures(results, scope)
    return Table(
        f"Speed, {scope}",
        ("mode", "tok/s", "speedup", "accept", "tok/step", "ideal", "effic.", "wasted"),
        tuple((str(each.contender), middle(each.speed), with_extremes(each.speedup), *_drafts(each)) for each in every),
    )


def time_table(results: Results, scope: Scope) -> Table:
    """Latency, shares of the step time, and tokens per second that were kept, against those evaluated."""
    every = _figures(results, scope)
    rows = (
        (
            str(each.contender),
            *_latencies(each),
            *_shares(each),
            number(each.times.committed_per_second),
            number(each.times.raw_per_second),
        )
        for each in every
    )
    return Table(
        f"Latency and work, {scope}",
        ("mode", "TTFT ms", "ITL p50", "ITL p95", "draft", "verify", "kept/s", "raw/s"),
        tuple(rows),
        _flags(every),
    )


def prompt_table(results: Results, scope: Scope) -> Table:
    """The speedup of every contender on every prompt, beside the speed of plain decoding."""
    others = [contender for contender in results.contenders if contender != PLAIN]
    rows = []
    for cell in filter(scope.includes, results.cells):
        speedups = (results.of_cell(contender, cell).speedup for contender in others)
        plain = middle(results.of_cell(PLAIN, cell).speed)
        rows.append((cell.prompt_name, plain, *(middle(speedup, 2) for speedup in speedups)))
    return Table(f"Speedup by prompt, {scope}", ("prompt", "plain tok/s", *map(str, others)), tuple(rows))


def position_table(results: Results, scope: Scope, max_positions: int) -> Table | None:
    """What share of the drafted tokens at each position was kept, of those that were looked at. None without drafts."""
    rates = {
        str(each.contender): tuple(map(percent, each.metrics.acceptance_by_position[:max_positions]))
        for each in _figures(results, scope)
        if each.metrics.n_drafted
    }
    if not rates:
        return None
    n_longest = max(map(len, rates.values()))
    return Table(
        f"Acceptance by position in the draft, {scope}",
        ("mode", *(str(i + 1) for i in range(n_longest))),
        tuple((name, *texts, *[NOTHING] * (n_longest - len(texts))) for name, texts in rates.items()),
    )


def step_table(results: Results, scope: Scope) -> Table:
    """Where the time of a step goes, in milliseconds and as a share."""
    rows = []
    for each in _figures(results, scope):
        times = each.times
        if times.n_steps:
            parts = (
                f"{1e3 * seconds / times.n_steps:.2f} {seconds / times.step_s:.0%}" for _, seconds in times.parts()
            )
            rows.append((str(each.contender), f"{1e3 * times.step_s / times.n_steps:.2f}", *parts))
    return Table(
        f"A step in milliseconds, {scope}",
        ("mode", "step", "draft pass", "sampling", "target", "judging", "rest"),
        tuple(rows),
    )


def context_table(results: Results, scope: Scope) -> Table | None:
    """What a token costs behind more and more text. None unless there are several lengths."""
    if len(results.contexts) < 2:
        return None
    rows = []
    for n_context in results.contexts:
        for each in _figures(results, Scope(scope.temperature, n_context)):
            name = f"{n_context} {each.contender}"
            rows.append((name, *_costs(each), with_extremes(each.speedup), milliseconds(each.ttft_s)))
    return Table(
        f"Cost against context length, {scope}",
        ("context, mode", "ms/token", "ms/step", "tok/step", "speedup", "TTFT ms"),
        tuple(rows),
    )


def length_tables(results: Results, scope: Scope) -> Iterator[Table]:
    """What a token costs with longer and longer drafts; "of best" compares with the fastest of the fixed lengths."""
    for mode, sweep in results.fixed_lengths().items():
        every = _figures(results, scope)
        fixed = [each for each in every if each.contender in sweep and each.speedup]
        best = max((each.speedup.middle for each in fixed if each.speedup), default=None)
        rows = []
        for each in every:
            if each.contender in sweep or each.contender.fixed_length is None:
                of_best = each.speedup.middle / best if each.speedup and best else None
                speedups = (with_extremes(each.speedup), number(of_best, 2))
                rows.append((str(each.contender), *_costs(each), *_shares(each), *speedups))
        yield Table(
            f"Cost against the length of drafts ({mode}), {scope}",
            ("mode", "ms/token", "ms/step", "tok/step", "draft", "verify", "speedup", "of best"),
            tuple(rows),
            _flags(every),
        )


# --- every cell ------------------------------------------------------------------------------------------------------


def cell_table(results: Results) -> Table:
    """Everything of every cell, with the extremes over the repetitions."""
    rows = []
    for cell in results.cells:
        for contender in results.contenders:
            each = results.of_cell(contender, cell)
            n = str(each.speed.n) if each.speed else "0"
            name = f"{cell.prompt_name} {cell.temperature:g} {contender}"
            speeds = (with_extremes(each.speed, 1), with_extremes(each.speedup))
            rows.append((name, n, *speeds, *_drafts(each), *_latencies(each), *_shares(each)))
    speeds_header = ("n", "tok/s", "speedup", "accept", "tok/step", "ideal", "effic.", "wasted")
    times_header = ("TTFT ms", "ITL p50", "ITL p95", "draft", "verify")
    return Table("Every prompt", ("prompt, temperature, mode", *speeds_header, *times_header), tuple(rows))


# --- groups of columns -----------------------------------------------------------------------------------------------


def _figures(results: Results, scope: Scope) -> list[Figures]:
    return [results.over(contender, scope) for contender in results.contenders]


def _drafts(each: Figures) -> tuple[str, ...]:
    """Acceptance rate, tokens per step, their ideal, efficiency, the share thrown away."""
    drafted = bool(each.metrics.n_drafted)
    return (
        percent(each.metrics.draft_acceptance_rate),
        number(each.metrics.mean_acceptance_length, 2),
        number(each.ideal_tokens_per_step, 2),
        percent(each.speculation_efficiency),
        percent(each.metrics.discarded_share if drafted else None),
    )


def _latencies(each: Figures) -> tuple[str, ...]:
    return tuple(milliseconds(seconds) for seconds in (each.ttft_s, each.itl_p50_s, each.itl_p95_s))


def _shares(each: Figures) -> tuple[str, str]:
    flag = _FLAG if _is_flagged(each) else ""
    return percent(each.times.draft_share) + flag, percent(each.times.verify_share)


def _costs(each: Figures) -> tuple[str, ...]:
    """Milliseconds per token and per step, tokens per step."""
    times = each.times
    return (
        number(1e3 / each.speed.middle if each.speed else None, 2),
        number(1e3 * times.step_s / times.n_steps if times.n_steps else None, 2),
        number(each.metrics.mean_acceptance_length, 2),
    )


def _is_flagged(each: Figures) -> bool:
    return (each.times.draft_share or 0.0) > MAX_DRAFT_SHARE


def _flags(every: Iterable[Figures]) -> tuple[str, ...]:
    return (_FLAGGED,) if any(map(_is_flagged, every)) else ()
