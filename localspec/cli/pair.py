"""`localspec pair`: who can draft for a target, judged from headers before anything is downloaded."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from localspec.cli.configured import Planned, folders_of, saved_pair
from localspec.cli.console import say, write_json
from localspec.cli.options import PlannedCtx, PlannedDraftKvType, PlannedGpuMemory, PlannedKvType
from localspec.engine.requests import default_n_ctx
from localspec.errors import DoesNotFitError, LocalspecError, ModelError, UsageError
from localspec.printable import one_line

if TYPE_CHECKING:
    from localspec.hub.client import Hub
    from localspec.models.registry import Registry
    from localspec.pairing.drafts import Conditions, DraftOption
    from localspec.pairing.finding import Found
    from localspec.pairing.resolve import FindLocal, ResolvedModel


def pair(
    context: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[TARGET]",
            help="A GGUF file, owner/name-GGUF:QUANT on the Hub, a name from models.toml, or a pair from the "
            "configuration, whose target is meant. Without it: what suits this machine.",
        ),
    ] = None,
    draft: Annotated[
        str | None, typer.Option("--draft", "-md", metavar="MODEL", help="Judge this draft only; 0 or 3 is the exit.")
    ] = None,
    ctx: PlannedCtx = None,
    kv_type: PlannedKvType = None,
    draft_kv_type: PlannedDraftKvType = None,
    gpu_memory: PlannedGpuMemory = None,
    search: Annotated[
        bool,
        typer.Option("--search", help="Also search the Hub for relatives; done anyway when there is nothing else."),
    ] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Only what is on this machine.")] = False,
    measure: Annotated[
        bool, typer.Option("--measure", help="Run the short bench on those that are here and fit, and keep the result.")
    ] = False,
    pick: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Save the best, or the one given by --draft, as a pair in the configuration."
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--replace", help="With --pick: in place of a pair of that name.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Find a draft model for a target: who fits its vocabulary and this machine, how fast, and why not.

    Only headers are read, a few MB of a model that is not here.
    Exit codes: 0, 1 the Hub or the engine failed, 2 usage, 3 refused, or nothing found to pick, 4 what is to be picked
    does not fit.
    """
    from localspec.hub.client import Hub
    from localspec.models.registry import load_registry

    registry, hub = load_registry(), Hub(offline=True if offline else None)
    if target is None:
        if draft or pick or measure:
            raise UsageError("Which target? Name it before the options.", hint="localspec pair TARGET --draft DRAFT")
        _suggest(context, registry, gpu_memory, as_json=as_json)
        return
    if measure and gpu_memory is not None:
        raise UsageError("--measure runs on this machine, --gpu-memory judges for another.", hint="Leave one out.")
    local = _local(context)
    saved = saved_pair(context, target)
    asked = (saved or Planned(target)).but(ctx=ctx, kv_type=kv_type, draft_kv_type=draft_kv_type)
    model = _target(asked.target, hub, registry, local)
    conditions = _conditions(model, asked, gpu_memory)
    if draft is not None:
        option = _named(model, draft, conditions, hub, registry, local)
        options, found = [option], None
    else:
        found = _found(local, model, conditions, registry, None if hub.is_offline else hub, search=search)
        if asked.draft is not None:
            _add_own(found, lambda text: _named(model, text, conditions, hub, registry, local), asked.draft)
        options = found.options
    if measure:
        options = _measured(model, options, conditions)
    if as_json:
        _write_json(model, conditions, options, found)
    else:
        _write(model, conditions, options, found, hub)
    sys.stdout.flush()
    if pick is not None:
        _save(pick, model, options, conditions, context, overwrite=overwrite)
    if draft is not None and options[0].is_refused:
        raise typer.Exit(ModelError.exit_code)


# --- what is judged ---------------------------------------------------------------------------------------------------


def _target(text: str, hub: Hub, registry: Registry, local: FindLocal) -> ResolvedModel:
    from localspec.models.generative import refuse_unless_generative
    from localspec.pairing.resolve import resolve

    model = resolve(text, hub, registry, local)
    refuse_unless_generative(model.header, incomplete_ok=True)
    return model


def _conditions(
    target: ResolvedModel,
    asked: Planned,
    gpu_memory: list[float] | None,
) -> Conditions:
    from localspec.cli.machine import machine_for
    from localspec.models.description import describe
    from localspec.pairing.drafts import Conditions
    from localspec.pairing.traffic import measured_bandwidths

    here = machine_for(gpu_memory)
    return Conditions(
        machine=here,
        n_ctx=asked.ctx or default_n_ctx(describe(target.header).n_ctx_train),
        kv_type=asked.kv_type,
        draft_kv_type=asked.draft_kv_type,
        n_gpu_layers=asked.gpu_layers,
        bandwidths=measured_bandwidths(here, is_here=gpu_memory is None),
        is_here=gpu_memory is None,
    )


def _named(
    target: ResolvedModel, text: str, conditions: Conditions, hub: Hub, registry: Registry, local: FindLocal
) -> DraftOption:
    """The draft that was named; of a repository without a quantization, the best of those it has."""
    from localspec.pairing.drafts import judge
    from localspec.pairing.quantizations import best_quantization, quantization_options
    from localspec.pairing.resolve import locate, resolve, resolve_reference

    located = locate(text, hub, registry, local)
    if isinstance(located, Path) or located.quantization is not None or located.file is not None:
        return judge(target, resolve(text, hub, registry, local), conditions)
    draft = resolve_reference(located, text, hub)
    option = judge(target, draft, conditions)
    if option.is_refused or draft.remote is None:
        return option
    options = quantization_options(target, draft, hub.models(draft.remote.repo), conditions, hub)
    return best_quantization(options) or option


def _local(context: typer.Context) -> FindLocal:
    """Lists the models here, once."""
    from localspec.cli.here import found_models

    return functools.cache(lambda: found_models(folders_of(context)))


def _found(
    local: FindLocal,
    target: ResolvedModel,
    conditions: Conditions,
    registry: Registry,
    hub: Hub | None,
    *,
    search: bool,
) -> Found:
    from localspec.pairing.finding import find_drafts

    shows = sys.stderr.isatty()

    def look(what: str) -> None:
        if shows:
            sys.stderr.write(f"\r\x1b[KLooking at {one_line(what)}")
            sys.stderr.flush()

    found = find_drafts(
        target,
        conditions,
        local=local(),
        registry=registry,
        hub=hub,
        search=search,
        on_look=look,
    )
    if shows:
        sys.stderr.write("\r\x1b[K")
    return found


def _add_own(found: Found, judged: Callable[[str], DraftOption], text: str) -> None:
    """Have the draft of a saved pair among those that were found: it may lie where nobody looks."""
    from localspec.pairing.drafts import ranked

    try:
        own = judged(text)
    except LocalspecError as error:
        found.notes.append(f"The draft of the pair, {text}: {error.message}")
        return

    def is_own(option: DraftOption) -> bool:
        ours, theirs = own.model, option.model
        if ours.path is not None and theirs.path is not None:
            return ours.path.resolve() == theirs.path.resolve()
        return ours.exact_reference == theirs.exact_reference

    if not any(map(is_own, found.options)):
        found.options = ranked([*found.options, own])


# --- measuring and picking --------------------------------------------------------------------------------------------


def _measured(target: ResolvedModel, options: list[DraftOption], conditions: Conditions) -> list[DraftOption]:
    """The options again, with the speeds of those that could be measured; one that fails says so and stays."""
    from localspec.cli.console import say_if_busy
    from localspec.cli.measure_progress import MeasureProgress
    from localspec.engine.client import EngineClient
    from localspec.pairing.drafts import judge, ranked
    from localspec.pairing.measuring import can_be_measured, measure_option, n_runs_of_one

    able = [option for option in options if can_be_measured(target, option)]
    if not able:
        say("Nothing to measure: target and draft must be here, and fit. Fetch them with: localspec pull")
        return options
    say_if_busy()
    done = {id(option): option for option in options}
    with EngineClient() as engine, MeasureProgress(len(able), n_runs_of_one()) as progress:
        for number, option in enumerate(able, 1):
            progress.begin(number, option.model.name)
            try:
                measure_option(engine, target, option, conditions, progress.on_load, progress.on_run)
            except LocalspecError as error:
                progress.tell(f"{one_line(option.model.name)}: {one_line(error.message)}")
                continue
            done[id(option)] = judge(target, option.model, conditions, place=option.place, reported=option.reported)
    return ranked(done.values()) if len(options) > 1 else list(done.values())


def _save(
    name: str,
    target: ResolvedModel,
    options: list[DraftOption],
    conditions: Conditions,
    context: typer.Context,
    *,
    overwrite: bool,
) -> None:
    from localspec.config import Settings
    from localspec.pairing.chosen import ChosenPair, Target, entry_of
    from localspec.pairing.naming import save_pair
    from localspec.paths import config_file

    able = [option for option in options if not option.is_refused]
    if not able:
        raise ModelError("There is no draft to pick.", hint="Without one: localspec chat --target ... --mode lookup")
    best = next((option for option in able if option.fits or option.plan is None), None)
    if best is None:
        raise DoesNotFitError(
            f"{one_line(able[0].model.name)} does not fit beside {one_line(target.name)}: nothing was saved.",
            hint="Give a smaller --ctx, or take a smaller quantization of the target.",
        )
    entry = entry_of(ChosenPair(Target(target, conditions, best.plan), best), Settings())
    file = context.obj.config or config_file()
    save_pair(file, name, entry, replace=overwrite, as_default=True)
    say(f"Saved as pair {one_line(name)} in {one_line(str(file))}. Chat with: localspec chat --pair {one_line(name)}")


# --- output -----------------------------------------------------------------------------------------------------------


def _write(
    target: ResolvedModel, conditions: Conditions, options: list[DraftOption], found: Found | None, hub: Hub
) -> None:
    """For a person. `options` may know more than what was `found`."""
    from localspec.cli.pair_screen import write_one, write_ranking

    if found is None:
        write_one(target, options[0], sys.stdout)
    else:
        write_ranking(replace(found, options=options), target, sys.stdout)
        _write_quantizations(target, options, conditions, hub)
    _write_smaller_targets(target, options, conditions, hub)


def _write_quantizations(target: ResolvedModel, options: list[DraftOption], conditions: Conditions, hub: Hub) -> None:
    """The quantizations of the best draft that is not here yet."""
    from localspec.cli.pair_screen import write_quantizations
    from localspec.pairing.finding import repo_in_cache
    from localspec.pairing.quantizations import best_quantization, quantization_options

    best = next((option for option in options if not option.is_refused), None)
    if best is None or hub.is_offline:
        return
    repo = best.model.remote.repo if best.model.remote is not None else repo_in_cache(best.model.path)
    if repo is None:
        return
    try:
        choices = quantization_options(target, best.model, hub.models(repo), conditions, hub)
    except LocalspecError as error:
        say(one_line(error.message))
        return
    write_quantizations(repo, choices, best_quantization(choices), sys.stdout)


def _write_smaller_targets(target: ResolvedModel, options: list[DraftOption], conditions: Conditions, hub: Hub) -> None:
    """What to take instead of a target that leaves no room for a draft, or is not whole itself."""
    from localspec.cli.pair_screen import write_smaller_targets
    from localspec.pairing.finding import repo_in_cache
    from localspec.pairing.quantizations import smaller_targets

    best = next((option for option in options if not option.is_refused), None)
    repo = target.remote.repo if target.remote is not None else repo_in_cache(target.path)
    if best is None or best.plan is None or best.fits or repo is None or hub.is_offline:
        return
    try:
        fitting = smaller_targets(target, hub.models(repo), conditions)
    except LocalspecError as error:
        say(one_line(error.message))
        return
    write_smaller_targets(repo, fitting[:4], sys.stdout)


def _write_json(target: ResolvedModel, conditions: Conditions, options: list[DraftOption], found: Found | None) -> None:
    from localspec.cli.pair_json import model_object, option_object

    head = {"target": model_object(target), "n_ctx": conditions.n_ctx}
    answer: dict[str, Any]
    if found is None:
        answer = {**head, **option_object(options[0])}
    else:
        answer = {**head, "drafts": [option_object(option) for option in options], "notes": found.notes}
    write_json(answer)


def _suggest(context: typer.Context, registry: Registry, gpu_memory: list[float] | None, *, as_json: bool) -> None:
    from localspec.cli.here import found_models
    from localspec.cli.machine import machine_for
    from localspec.cli.pair_screen import write_suggestions
    from localspec.pairing.drafts import Conditions
    from localspec.pairing.suggestions import suggestions

    here = machine_for(gpu_memory)
    found = suggestions(
        registry, found_models(folders_of(context)), lambda trained: Conditions(here, default_n_ctx(trained))
    )
    if as_json:
        write_json([each.as_dict() for each in found])
    else:
        write_suggestions(found, here, sys.stdout)
    sys.stdout.flush()
