"""`localspec models`: the models on this machine, who can draft for whom, and removing one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from localspec.cli.console import say, write_json
from localspec.errors import ConfigError, UsageError
from localspec.printable import one_line
from localspec.quantities import file_size, weights

if TYPE_CHECKING:
    from localspec.hub.client import Hub
    from localspec.models.library import LocalModel
    from localspec.models.model_folders import ModelFolder
    from localspec.models.removal import Removal

models_app = typer.Typer(
    name="models",
    invoke_without_command=True,
    no_args_is_help=False,
    add_completion=False,
    rich_markup_mode="rich",
)

_HEADINGS: Final = ("NAME", "ARCH", "WEIGHTS", "SIZE", "QUANT", "CONTEXT", "LICENCE", "WHERE")
_MAX_LICENCE: Final = 20
_MAX_DRAFTS: Final = 3
_REMOVE_ELSEWHERE: Final = {
    "LM Studio": "Remove it in LM Studio.",
    "Ollama": "Remove it with: ollama rm NAME",
    "llama.cpp": "Delete the file by hand; llama.cpp fetched it.",
}


@models_app.callback()
def models(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object with everything that is known.")] = False,
    show_all: Annotated[
        bool, typer.Option("--all", help="Also files that are no models: image encoders, adapters, vocabularies ...")
    ] = False,
) -> None:
    """List the models on this machine, and which others can draft for each; or remove one.

    Searched are localspec's own folder (the setting models_dir), the Hugging Face cache, which llama-server uses too,
    and the folders of llama.cpp, LM Studio and Ollama. Only headers are read, each once.

    Exit codes: 0, 2 usage.
    """
    if context.invoked_subcommand is not None:
        if as_json or show_all:
            raise UsageError("--json and --all belong to the list.", hint="Leave them out.")
        return
    from localspec.models.library import possible_drafts

    folders = folders_of(context)
    found = found_models(folders)
    drafts = possible_drafts(found)
    if as_json:
        write_json(_as_json(folders, found, drafts))
        return
    usable = [model for model in found if model.is_model]
    if not usable:
        _explain_empty(folders)
    sections = [_table(usable, drafts)] if usable else []
    sections += _complaints("CANNOT BE READ", {model.name: model.problem for model in found if model.problem})
    if show_all:
        sections += _complaints("NO MODELS", {model.name: model.refusal for model in found if model.refusal})
    sys.stdout.write("\n\n".join("\n".join(lines) for lines in sections) + ("\n" if sections else ""))
    n_others = sum(bool(model.refusal) for model in found)
    if n_others and not show_all:
        what = "file that is no model" if n_others == 1 else "files that are no models"
        say(f"And {n_others} {what}; see --all.")


@models_app.command("rm")
def remove(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="As in the list; or a file.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a model, after asking; only from localspec's own folder or the Hugging Face cache.

    Exit codes: 0, 1 not deleted, 2 usage.
    """
    from localspec.models.library import model_named
    from localspec.models.model_folders import Place
    from localspec.models.removal import plan_removal, remove_files
    from localspec.models.split import part_names

    folders = folders_of(context)
    found = found_models(folders)
    model = model_named(found, name)
    if model.place is Place.OWN:
        removal = plan_removal(model, folders)
        _ask(model, _own_question(model, removal), sure=yes)
        remove_files(removal)
    elif model.place is Place.HUGGING_FACE and model.repo and model.repo_file:
        # The cache forgets a file in every revision.
        revisions = [each for each in found if (each.repo, each.repo_file) == (model.repo, model.repo_file)]
        parts, hub = part_names(model.repo_file), _hub_cache(folders)
        n_bytes = hub.freed_bytes(model.repo, parts)
        revisions = [each for each in revisions if each.place is model.place]
        _ask(model, _shared_question(model, revisions, n_bytes), sure=yes)
        hub.remove(model.repo, parts)
    else:
        hint = _REMOVE_ELSEWHERE.get(model.place, "Check its folder.")
        raise UsageError(f"{one_line(model.name)} is {model.place}'s; localspec deletes nothing there.", hint=hint)
    say(f"Removed {one_line(model.name)}.")


def _hub_cache(folders: Sequence[ModelFolder]) -> Hub:
    from localspec.hub.client import Hub
    from localspec.models.model_folders import Place

    return Hub(cache_dir=next(folder.path for folder in folders if folder.place is Place.HUGGING_FACE))


# --- finding ----------------------------------------------------------------------------------------------------------


def folders_of(context: typer.Context) -> list[ModelFolder]:
    from localspec.config import load_settings
    from localspec.models.model_folders import model_folders
    from localspec.paths import config_file

    try:
        file = context.obj.config or (config_file() if config_file().exists() else None)
        return model_folders(load_settings(file, os.environ, {}).models_dir)
    except (OSError, RuntimeError) as error:
        raise ConfigError(
            f"The folders for configuration and models cannot be used: {error}.", hint="Check HOME and LOCALSPEC_HOME."
        ) from error


def found_models(folders: Iterable[ModelFolder]) -> list[LocalModel]:
    from localspec.models.library import find_models

    shows_progress = sys.stderr.isatty()

    def on_read(n_done: int, n_all: int) -> None:
        if shows_progress:
            sys.stderr.write(f"\r\x1b[KReading headers {n_done}/{n_all}")
            sys.stderr.flush()

    found = find_models(folders, on_read=on_read)
    if shows_progress:
        sys.stderr.write("\r\x1b[K")
    return found


def _complaints(title: str, reasons: dict[str, str]) -> list[list[str]]:
    """A section of the list, if there is anything to complain of."""
    lines = [f"  {one_line(name)}: {one_line(reason)}" for name, reason in reasons.items()]
    return [[title, *lines]] if lines else []


def _explain_empty(folders: Iterable[ModelFolder]) -> None:
    say("There is no model in these folders:")
    for folder in folders:
        say(f"  {folder.place}: {one_line(str(folder.path))}{'' if folder.is_there else ' (not there)'}")
    say("Fetch one with: localspec pull NAME - or set models_dir in the configuration to a folder with .gguf files.")


# --- showing ----------------------------------------------------------------------------------------------------------


def _table(models: Sequence[LocalModel], drafts: dict[str, tuple[LocalModel, ...]]) -> list[str]:
    """A line per model, and below it, indented, who can draft for it."""
    from rich.cells import cell_len

    rows = [_HEADINGS, *(_row(model) for model in models)]
    widths = [max(cell_len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = []
    for number, row in enumerate(rows):
        cells = [cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
        fitting = drafts.get(models[number - 1].name, ()) if number else ()
        if fitting:
            names = ", ".join(one_line(each.name) for each in fitting[:_MAX_DRAFTS])
            more = f" and {len(fitting) - _MAX_DRAFTS} more" if len(fitting) > _MAX_DRAFTS else ""
            lines.append(f"    drafts: {names}{more}")
    return lines


def _row(model: LocalModel) -> tuple[str, ...]:
    description = model.summary.description
    assert description is not None
    licence = one_line(description.licence) or "?"
    return (
        one_line(model.name),
        one_line(description.architecture),
        weights(description.n_parameters),
        file_size(model.n_bytes),
        description.quantization,
        f"{description.n_ctx_train:,}" if description.n_ctx_train else "?",
        licence if len(licence) <= _MAX_LICENCE else f"{licence[: _MAX_LICENCE - 1]}…",
        model.place,
    )


def _as_json(
    folders: Iterable[ModelFolder], found: Sequence[LocalModel], drafts: dict[str, tuple[LocalModel, ...]]
) -> dict[str, Any]:
    names = {model.name: [each.name for each in drafts.get(model.name, ())] for model in found}
    return {
        "models": [_described(model) | {"drafts": names[model.name]} for model in found if model.is_model],
        "not_models": [_described(model) | {"reason": model.refusal} for model in found if model.refusal],
        "unreadable": [
            _placed(model) | {"reason": model.problem, "hint": model.summary.hint} for model in found if model.problem
        ],
        "folders": [{"place": folder.place, "path": str(folder.path), "exists": folder.is_there} for folder in folders],
    }


def _placed(model: LocalModel) -> dict[str, Any]:
    return {
        "name": model.name,
        "place": model.place,
        "path": str(model.path) if model.path else None,
        "files": [str(path) for path in model.files],
        "n_bytes": model.n_bytes,
        "repo": model.repo,
        "repo_file": model.repo_file,
    }


def _described(model: LocalModel) -> dict[str, Any]:
    from dataclasses import asdict

    description = model.summary.description
    assert description is not None
    known = asdict(description)
    title = known.pop("name")
    return _placed(model) | {"title": title} | known | {"bits_per_weight": round(description.bits_per_weight, 3)}


# --- asking -----------------------------------------------------------------------------------------------------------


def _own_question(model: LocalModel, removal: Removal) -> list[str]:
    lines = [f"{one_line(model.name)}, {file_size(removal.n_bytes)} to be freed:"]
    lines += [f"  {one_line(str(path))}" for path in removal.files]
    if removal.n_links:
        lines.append("Links are removed, and what they lead to stays.")
    return lines


def _shared_question(model: LocalModel, revisions: Sequence[LocalModel], n_bytes: int) -> list[str]:
    return [
        f"{one_line(model.name)}, {file_size(n_bytes)} to be freed:",
        *(f"  {one_line(str(path))}" for each in revisions for path in each.files),
        "The Hugging Face cache is shared: it will be gone for llama-server and other programs too.",
    ]


def _ask(model: LocalModel, question: Iterable[str], *, sure: bool) -> None:
    """Returns where the user agrees, or was sure from the start."""
    for line in question:
        say(line)
    if sure:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(
            f"{one_line(model.name)} is not removed: nobody can be asked, since stdin is no terminal.",
            hint="Give --yes to remove it without asking.",
        )
    sys.stderr.write("Remove it? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        say("Nothing was removed.")
        raise typer.Exit(1)
