"""`localspec tune` without a screen: load, measure the pace, search within the budget, make a profile of the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from localspec.bench.basis import present_basis
from localspec.bench.cell_text import times_within
from localspec.bench.profile import Comparison, Findings, Profile, profile_file
from localspec.bench.tune_measure import Case, PairedMeasurement, TunableEngine, cases_in_turn, fit_to_budget
from localspec.bench.tune_search import Outcome, OutOfTimeError, Search, Trial, Verdict
from localspec.bench.tune_space import Choices, Point, Space, difference, usual_threads
from localspec.bench.workloads import Workload
from localspec.engine.client import LoadListener
from localspec.engine.requests import Mode, PairSpec, SamplingParams
from localspec.errors import LocalspecError, ModelFileError, UsageError
from localspec.memory.processors import processors


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """What to tune and how long, in seconds after loading. `given` names the settings that the user has set: they stay.

    The temperatures take turns over the workloads.
    """

    pair: PairSpec
    present: Point
    given: Collection[str]
    draft_gpu_layers: int
    sampling: SamplingParams
    temperatures: tuple[float, ...]
    workloads: tuple[Workload, ...]
    choices: Choices
    budget_s: float


@dataclass(frozen=True, slots=True)
class Tuned:
    """What came of it. Ctrl-C (`interrupted`) or an `error` may have ended the search; what it had found is here."""

    options: TuneOptions
    outcome: Outcome[Point]
    cases: tuple[Case, ...]
    max_tokens: int
    seconds: float
    interrupted: bool = False
    error: LocalspecError | None = None


def tune(
    engine: TunableEngine,
    options: TuneOptions,
    *,
    on_trial: Callable[[Trial[Point]], None] = lambda _: None,
    on_load: LoadListener = lambda _: None,
    now: Callable[[], float] = time.monotonic,
) -> Tuned:
    """Find the fastest settings for a pair. Once the search has begun, what ends it ends not the call: see `Tuned`.

    Raises:
        LocalspecError: the pair as it is set now cannot be loaded or run.
        UsageError: the budget is too small for a single decision.
    """
    measure = PairedMeasurement(
        engine, options.pair, options.draft_gpu_layers, options.sampling, now=now, on_load=on_load
    )
    loaded = measure.load(options.present)
    threads = options.choices.threads or usual_threads(loaded.n_threads, processors().n_threads)
    choices = replace(options.choices, threads=threads)
    space = Space(options.present, options.given, choices, on_gpu=loaded.gpu_offload)
    began = now()
    measure.deadline = began + options.budget_s
    cases = cases_in_turn(options.workloads, options.temperatures)
    try:
        pace = measure.pace(space.plain, cases[0])
    except OutOfTimeError as error:
        raise UsageError(
            f"A single short reply takes longer than the budget of {options.budget_s:.0f} s.",
            hint="Give it more time with --budget MINUTES.",
        ) from error
    measure.cases, measure.max_tokens = fit_to_budget(cases, pace, options.budget_s)
    search = Search(space.plain, space.dimensions, measure, now=now, deadline=measure.deadline, listener=on_trial)
    interrupted, failure = False, None
    try:
        search.run()
    except KeyboardInterrupt:
        interrupted = True
    except LocalspecError as error:
        failure = error
    seconds = now() - began
    return Tuned(options, search.outcome, tuple(measure.cases), measure.max_tokens, seconds, interrupted, failure)


def profile_of(tuned: Tuned) -> Profile:
    """The result as it is stored, with what it rests on.

    Raises:
        ModelFileError: a model file cannot be read any more.
    """
    best, target, cases = tuned.outcome.best, tuned.options.pair.target, tuned.cases
    try:
        basis = present_basis(
            target.path, best.draft, gpu_layers=target.n_gpu_layers, draft_gpu_layers=tuned.options.draft_gpu_layers
        )
    except OSError as error:
        raise ModelFileError(f"{error.filename} cannot be read any more: {error.strerror or error}.") from error
    return Profile(
        settings=best.settings,
        basis=basis,
        findings=Findings(
            measured_at=datetime.now(UTC),
            localspec=version("localspec"),
            seconds=tuned.seconds,
            temperatures=tuple(dict.fromkeys(case.temperature for case in cases)),
            workloads=tuple(str(case.workload) for case in cases),
            max_tokens=tuned.max_tokens,
            reason=reason(tuned.outcome),
            comparisons=tuple(map(_comparison, tuned.outcome.trials)),
        ),
    )


def profile_files(tuned: Tuned) -> list[Path]:
    """Where the result belongs; nowhere if nothing was decided.

    It is the profile of the target with the draft that it was measured with. If the user named no draft and one was
    found, it is also that of the target alone, and brings the draft along.
    """
    target, draft = tuned.options.pair.target.path, tuned.outcome.best.draft
    if not tuned.outcome.is_confirmed:
        return []
    named = [draft] if tuned.options.present.draft is not None else dict.fromkeys([None, draft])
    return [profile_file(target, each) for each in named]


def reason(outcome: Outcome[Point]) -> str:
    """Why the best settings are thought to be the best."""
    measured = [(trial, trial.speedup) for trial in outcome.trials if trial.speedup is not None]
    reasons = [
        f"{_change(trial)}: {times_within(speedup)}" for trial, speedup in measured if trial.verdict is Verdict.KEPT
    ]
    if outcome.best.mode is Mode.PLAIN:
        tried = [(trial, speedup) for trial, speedup in measured if trial.challenger.mode is not Mode.PLAIN]
        nearest = max(tried, key=lambda each: each[1].ratio, default=None)
        behind = f" (nearest: {_change(nearest[0])}, {times_within(nearest[1])})" if nearest else ""
        reasons.append(f"no drafts were clearly faster than plain decoding{behind}")
    return "; ".join(reasons) or "nothing was clearly faster than the settings as they were"


def _change(trial: Trial[Point]) -> str:
    return difference(trial.incumbent, trial.challenger)


def _comparison(trial: Trial[Point]) -> Comparison:
    speedup = trial.speedup
    has_bounds = speedup is not None and speedup.has_bounds
    return Comparison(
        change=_change(trial),
        verdict=trial.verdict.value,
        ratio=speedup.ratio if speedup else None,
        low=speedup.low if speedup and has_bounds else None,
        high=speedup.high if speedup and has_bounds else None,
        n_pairs=speedup.n_pairs if speedup else 0,
        note=trial.note[:1_000],
    )
