"""`localspec models`: the models on this machine, who can draft for whom, and removing one."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from localspec.cli.configured import folders_of
from localspec.cli.console import say, write_json
from localspec.cli.here import found_models, unfinished_downloads
from localspec.cli.models_removal import remove
from localspec.errors import UsageError
from localspec.printable import one_line

if TYPE_CHECKING:
    from localspec.hub.partial import PartialDownload
    from localspec.models.library import LocalModel
    from localspec.models.model_folders import ModelFolder

models_app = typer.Typer(
    name="models",
    invoke_without_command=True,
    no_args_is_help=False,
    add_completion=False,
    rich_markup_mode="rich",
)
models_app.command("rm")(remove)


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
    from localspec.cli.models_screen import complaints, models_table, unfinished
    from localspec.models.library import possible_drafts

    folders = folders_of(context)
    found = found_models(folders)
    drafts, partials = possible_drafts(found), unfinished_downloads(folders)
    if as_json:
        write_json(_as_json(folders, found, drafts) | {"partial_downloads": [_unfinished(each) for each in partials]})
        return
    usable = [model for model in found if model.is_model]
    if not usable:
        _explain_empty(folders)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    sections = [models_table(usable, drafts, width)] if usable else []
    sections += complaints("CANNOT BE READ", {model.name: model.problem for model in found if model.problem}, width)
    if show_all:
        sections += complaints("NO MODELS", {model.name: model.refusal for model in found if model.refusal}, width)
    sections += unfinished(partials, width)
    sys.stdout.write("\n\n".join("\n".join(lines) for lines in sections) + ("\n" if sections else ""))
    n_others = sum(bool(model.refusal) for model in found)
    if n_others and not show_all:
        what = "file that is no model" if n_others == 1 else "files that are no models"
        say(f"And {n_others} {what}; see --all.")


def _explain_empty(folders: Iterable[ModelFolder]) -> None:
    say("There is no model in these folders:")
    for folder in folders:
        say(f"  {folder.place}: {one_line(str(folder.path))}{'' if folder.is_there else ' (not there)'}")
    say("Fetch one with: localspec pull NAME - or set models_dir in the configuration to a folder with .gguf files.")


# --- JSON -------------------------------------------------------------------------------------------------------------


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


def _unfinished(partial: PartialDownload) -> dict[str, Any]:
    return {
        "name": partial.name,
        "repo": partial.model.repo,
        "revision": partial.model.revision,
        "files": [file.name for file in partial.model.files],
        "done_bytes": partial.n_done_bytes,
        "total_bytes": partial.model.n_bytes,
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
