"""`localspec tune`: the fastest settings for a pair on this machine, by measurement, kept for the other commands."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from localspec.cli.console import INTERRUPTED, say, say_if_busy
from localspec.cli.option_groups import expand_groups
from localspec.cli.options import PairOptions, SamplingOptions
from localspec.engine.requests import KvType, SamplingParams
from localspec.errors import LocalspecError, UsageError

if TYPE_CHECKING:
    from localspec.bench.tune import TuneOptions
    from localspec.bench.tune_space import Choices
    from localspec.cli.selection import Selection

_SEARCH: Final = "The search"
_SECONDS: Final = {"": 60, "m": 60, "min": 60, "s": 1, "h": 3600}
_MAX_BUDGET_S: Final = 24 * 3600


@expand_groups
def tune(
    context: typer.Context,
    pair: PairOptions,
    budget: Annotated[
        str,
        typer.Option(
            metavar="MINUTES",
            help="How long to measure; also as 90s or 1h.",
            show_default=True,
            rich_help_panel=_SEARCH,
        ),
    ] = "5",
    try_draft: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="Another draft model, or quantization of one. Repeatable.", rich_help_panel=_SEARCH
        ),
    ] = None,
    try_threads: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            max=512,
            help="Thread count to try; half the cores and all logical processors by default. Repeatable.",
            rich_help_panel=_SEARCH,
        ),
    ] = None,
    try_kv_type: Annotated[
        list[KvType] | None,
        typer.Option(
            help="Cache type to try for both models; q8_0 for the draft on a GPU by default. Repeatable.",
            rich_help_panel=_SEARCH,
        ),
    ] = None,
    temperature: Annotated[
        list[float] | None,
        typer.Option(
            "--temperature",
            "--temp",
            help="Temperature to measure at (that of the configuration, else 0.8). Repeatable.",
            rich_help_panel=_SEARCH,
        ),
    ] = None,
    workload: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Prompts of your own, as JSON Lines or one text.", rich_help_panel=_SEARCH),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object with settings and findings.", rich_help_panel=_SEARCH)
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Store nothing.", rich_help_panel=_SEARCH)] = False,
) -> None:
    """Find the fastest settings for a pair on this machine; chat and generate use them from then on.

    Each setting is compared with the best so far, on the same prompts,
    and kept only where it is faster beyond doubt. Drafts must earn their
    place too. What you set by flag, environment or file stays. Ctrl-C or an
    error keeps what was found.
    Exit codes: 0, 1 the engine failed, 2 usage or nothing decided, 3 model or
    pair refused, 4 does not fit, 130 interrupted.
    """
    from localspec.bench.records import write_record
    from localspec.bench.tune import profile_files, profile_of
    from localspec.bench.tune import tune as search
    from localspec.bench.tune_search import Verdict
    from localspec.bench.tune_space import Choices
    from localspec.cli.selection import select
    from localspec.cli.tune_screen import TuneProgress, write_report
    from localspec.engine.client import EngineClient

    budget_s = _budget_s(budget)
    choices = Choices(tuple(try_draft or ()), tuple(try_threads or ()), tuple(try_kv_type or ()))
    selection = select(context.obj.config, pair, SamplingOptions(), {}, uses_profile=False)
    options = _options(selection, choices, temperature, workload, budget_s)
    if selection.notice:
        say(selection.notice)
    say_if_busy()
    with EngineClient() as engine, TuneProgress(options) as progress:
        tuned = search(engine, options, on_trial=progress.on_trial, on_load=progress.on_load)
    profile, files = profile_of(tuned), [] if dry_run else profile_files(tuned)
    failure = tuned.error
    try:
        for file in files:
            write_record(profile, file)
    except LocalspecError as error:  # a full disk must not cost the report
        files, failure = [], failure or error
    if as_json:
        answer = {
            "decided": tuned.outcome.is_confirmed,
            "interrupted": tuned.interrupted,
            "error": None if failure is None else str(failure),
            "stored_in": [str(file) for file in files],
            "profile": profile.model_dump(mode="json"),
        }
        sys.stdout.write(json.dumps(answer, ensure_ascii=False) + "\n")
    else:
        write_report(tuned, profile, files)
    sys.stdout.flush()
    if failure is not None:
        raise failure
    if tuned.interrupted:
        raise typer.Exit(INTERRUPTED)
    if tuned.outcome.is_complete and not tuned.outcome.trials:
        raise UsageError(
            "There is nothing to try: all that could be faster is set by you.",
            hint="Take a setting out, or name what to try with --try-draft, --try-threads or --try-kv-type.",
        )
    unusable = [trial.note for trial in tuned.outcome.trials if trial.verdict is Verdict.UNUSABLE]
    if unusable and len(unusable) == len(tuned.outcome.trials):
        raise UsageError(
            f"Nothing could be compared: {unusable[0].rstrip('.')}.",
            hint="Where replies are too short, take prompts with longer ones, or a larger max_tokens in the file.",
        )
    if not tuned.outcome.is_confirmed:
        raise UsageError(
            f"{budget_s:.0f} s were not enough for a single decision.",
            hint="Give it more time with --budget MINUTES.",
        )


def _options(
    selection: Selection,
    choices: Choices,
    temperatures: list[float] | None,
    workload: Path | None,
    budget_s: float,
) -> TuneOptions:
    from localspec.bench.tune import TuneOptions
    from localspec.bench.tune_space import present_point
    from localspec.bench.workloads import STANDARD, read_workloads
    from localspec.config import TunedSettings
    from localspec.models.gguf import read_header

    for draft in choices.drafts:
        read_header(draft)  # a file that is no model is refused now, not after minutes
    settings, spec, sampling = selection.settings, selection.pair, selection.sampling
    for each in temperatures or ():
        SamplingParams(temperature=each)  # says what its range is
    return TuneOptions(
        pair=spec,
        present=present_point(settings, spec.draft.path if spec.draft else None),
        given=settings.model_fields_set & TunedSettings.model_fields.keys(),
        draft_gpu_layers=settings.draft_gpu_layers,
        sampling=sampling,
        temperatures=tuple(temperatures or [sampling.temperature]),
        workloads=tuple(read_workloads(workload or STANDARD)),
        choices=choices,
        budget_s=budget_s,
    )


def _budget_s(text: str) -> float:
    """A time such as 5, 2.5m, 90s or 1h, in seconds; minutes where nothing is said."""
    parts = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?) ?(s|m|min|h)?", text.strip())
    seconds = float(parts[1]) * _SECONDS[parts[2] or ""] if parts else 0.0
    if not 0 < seconds <= _MAX_BUDGET_S:
        raise UsageError(
            f"--budget is {text!r}; it should be a time of up to 24 hours.", hint="Such as 5 (minutes), 90s or 1h."
        )
    return seconds
