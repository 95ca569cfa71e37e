"""`localspec bench`: how fast a pair is in every mode, and why."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import typer

from localspec.cli.bench_options import OutputOptions, PlanOptions
from localspec.cli.console import INTERRUPTED, LoadProgress, say, say_error, say_if_busy
from localspec.cli.option_groups import expand_groups
from localspec.cli.options import PairOptions, SamplingOptions
from localspec.engine.requests import Mode
from localspec.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from localspec.bench.conditions import Conditions
    from localspec.bench.runner import Measurement
    from localspec.bench.schedule import Cell, Contender, Schedule
    from localspec.bench.workloads import Workload
    from localspec.engine.client import EngineClient
    from localspec.engine.events import Loaded
    from localspec.engine.requests import PairSpec

_Number = TypeVar("_Number", int, float)


@expand_groups
def bench(context: typer.Context, pair: PairOptions, options: PlanOptions, output: OutputOptions) -> None:
    """Measure a pair: its modes on prompts of seven kinds, taking turns, against plain decoding.

    What you set by flag, environment or file is measured, and not what `localspec tune` stored.
    Ctrl-C stops and reports what was measured until then.
    Exit codes: 0, 1 the engine failed, 2 usage, 3 model or pair refused,
    4 does not fit, 130 interrupted.
    """
    from localspec.bench.conditions import Conditions
    from localspec.bench.schedule import Schedule
    from localspec.cli.selection import select as select_pair
    from localspec.engine.client import EngineClient

    workloads = _workloads(options)
    # How replies are sampled is what the configuration says, but for temperature and seed.
    flags = {"num_speculative_tokens": options.num_speculative_tokens}
    selection = select_pair(context.obj.config, pair, SamplingOptions(), flags, uses_profile=False)
    _refuse_unusable(output, selection.pair, options.workload)
    contenders = _contenders(options, has_draft=selection.pair.draft is not None)
    spec = selection.pair
    if not any(contender.uses_draft_model for contender in contenders):
        spec = replace(spec, draft=None)
    temperatures, contexts = _temperatures(options), _contexts(options)
    if selection.notice:
        say(selection.notice)
    say_if_busy()
    with EngineClient() as engine:
        loaded = engine.load_and_wait(spec, LoadProgress())
        if loaded.speculation_note:
            say(loaded.speculation_note)
        if not loaded.has_chat_template:
            say("The model carries no chat template: ChatML is assumed, and replies may be unlike its usual ones.")
        schedule = Schedule(
            contenders=contenders,
            cells=_cells(engine, workloads, temperatures, contexts, loaded),
            sampling=selection.sampling,
            num_speculative_tokens=selection.settings.num_speculative_tokens,
            repetitions=options.repetitions,
            seed=options.seed,
            keeps_cache=options.keep_cache,
        )
        code = _run(engine, schedule, Conditions.now(spec, loaded), output, may_drop=not options.modes)
    if code:
        raise typer.Exit(code)


def _run(
    engine: EngineClient, schedule: Schedule, conditions: Conditions, output: OutputOptions, *, may_drop: bool
) -> int:
    """Measure and report; the exit code."""
    from localspec.bench.runner import measure, warm_up
    from localspec.bench.terminal import ProgressBar

    with ProgressBar(sys.stderr).shown() as bar:
        schedule = _runnable(schedule, warm_up(engine, schedule), may_drop=may_drop)
        bar.begin(schedule.n_runs)
        interrupt = _Interrupt()
        signal.signal(signal.SIGINT, interrupt)
        measurement = measure(engine, schedule, on_run=bar.done, should_stop=lambda: interrupt.happened)
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _report(measurement, conditions, output)
    if measurement.error is not None:
        say_error(measurement.error)
        return measurement.error.exit_code
    return INTERRUPTED if measurement.interrupted else 0


class _Interrupt:
    """A handler of Ctrl-C that asks for an orderly end, once; the next Ctrl-C ends the program as usual."""

    def __init__(self) -> None:
        self.happened = False

    def __call__(self, *_: object) -> None:
        self.happened = True
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _report(measurement: Measurement, conditions: Conditions, output: OutputOptions) -> None:
    from localspec.bench.figures import Results
    from localspec.bench.plots import write_plots
    from localspec.bench.report import as_json, facts, markdown
    from localspec.bench.terminal import show

    results = Results(measurement)
    with ExitStack() as after:
        # Each by itself, after the tables: a full disk costs neither them nor the other files, nor does a closed pipe.
        if output.plots is not None and results.cells:
            after.callback(write_plots, results, output.plots)
        if output.markdown is not None:
            text = markdown(measurement, results, conditions)
            after.callback(output.markdown.write_text, text, encoding="utf-8")
        if output.json is not None:
            after.callback(output.json.write_text, as_json(measurement, results, conditions), encoding="utf-8")
        show(results, facts(measurement, results, conditions), sys.stdout, with_step_times=output.step_times)


# --- from options to a schedule --------------------------------------------------------------------------------------


def _workloads(options: PlanOptions) -> list[Workload]:
    from localspec.bench.workloads import STANDARD, read_workloads, select_workloads

    workloads = read_workloads(options.workload or STANDARD)
    workloads = select_workloads(workloads, kinds=_items(options.kinds), names=_items(options.names))
    if options.max_tokens is None:
        return workloads
    return [replace(workload, max_tokens=options.max_tokens) for workload in workloads]


def _contenders(options: PlanOptions, *, has_draft: bool) -> tuple[Contender, ...]:
    from localspec.bench.schedule import default_contenders, parse_contenders

    if not options.modes:
        return default_contenders(has_draft_model=has_draft)
    contenders = parse_contenders(_items(options.modes))
    if not has_draft and any(contender.mode is Mode.DRAFT for contender in contenders):
        raise UsageError("--mode draft needs a draft model.", hint="Name one with --draft FILE, or use --mode lookup.")
    return contenders


def _runnable(schedule: Schedule, notes: dict[Contender, str], *, may_drop: bool) -> Schedule:
    """The schedule without modes that this pair does not have; one that was asked for by name is an error."""
    if not notes:
        return schedule
    if not may_drop:
        contender, note = next(iter(notes.items()))
        raise UsageError(f"{contender} cannot be measured with this pair: {note}", hint="Leave it out of --mode.")
    return replace(schedule, contenders=tuple(each for each in schedule.contenders if each not in notes))


def _cells(
    engine: EngineClient,
    workloads: Sequence[Workload],
    temperatures: Sequence[float],
    contexts: Sequence[int],
    loaded: Loaded,
) -> tuple[Cell, ...]:
    from localspec.bench.padding import count_prompt_tokens, fill_context
    from localspec.bench.schedule import cells_of

    if not contexts:
        return cells_of(workloads, temperatures)
    if max(contexts) > loaded.n_ctx:
        raise UsageError(
            f"--context is {max(contexts)}; this pair was loaded with {loaded.n_ctx}.",
            hint=f"Load it with --ctx {max(contexts)}, if the model was trained for that.",
        )
    cells: list[Cell] = []
    for n_context in contexts:
        padded = [fill_context(each, n_context, lambda each: count_prompt_tokens(engine, each)) for each in workloads]
        cells += cells_of(padded, temperatures, n_context)
    return tuple(cells)


def _temperatures(options: PlanOptions) -> list[float]:
    from localspec.engine.requests import SamplingParams

    temperatures = [_number(float, text, "--temperature") for text in _items(options.temperatures) or ("0", "0.8")]
    for temperature in temperatures:
        SamplingParams(temperature=temperature)  # says what its range is
    return list(dict.fromkeys(temperatures))


def _contexts(options: PlanOptions) -> list[int]:
    return sorted({_number(int, text, "--context") for text in _items(options.contexts)})


def _number(kind: Callable[[str], _Number], text: str, option: str) -> _Number:
    try:
        return kind(text)
    except ValueError as error:
        raise UsageError(f"{option} is {text!r}, which is no number.", hint="Separate several with commas.") from error


def _items(texts: Iterable[str] | None) -> list[str]:
    return [item.strip() for text in texts or () for item in text.split(",") if item.strip()]


def _refuse_unusable(output: OutputOptions, pair: PairSpec, workload: Path | None) -> None:
    from localspec.bench.outputs import require_writable, require_writable_folder
    from localspec.bench.plots import require_plots

    files = {"--json": output.json, "--markdown": output.markdown}
    draft = pair.draft.path if pair.draft else None
    inputs = {"the target model": pair.target.path, "the draft model": draft, "the file of --workload": workload}
    require_writable(files, inputs)
    if output.plots is not None:
        require_plots()
        require_writable_folder("--plots", output.plots)
