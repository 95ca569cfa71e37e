"""`localspec models rm`: deleting a model, or what has arrived of one; other programs' are left alone."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from localspec.cli.configured import folders_of
from localspec.cli.console import say
from localspec.cli.here import found_models, hub_cache, unfinished_downloads
from localspec.errors import UsageError
from localspec.printable import one_line
from localspec.quantities import file_size

if TYPE_CHECKING:
    from localspec.hub.partial import PartialDownload
    from localspec.models.library import LocalModel
    from localspec.models.model_folders import ModelFolder
    from localspec.models.references import HubReference
    from localspec.models.removal import Removal

_REMOVE_ELSEWHERE: Final = {
    "LM Studio": "Remove it in LM Studio.",
    "Ollama": "Remove it with: ollama rm NAME",
    "llama.cpp": "Delete the file by hand; llama.cpp fetched it.",
}


def remove(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="As in the list, a file, owner/name-GGUF:QUANT, or a name from models.toml."
        ),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a model, or what has arrived of one, after asking.

    Only from localspec's own folder or the Hugging Face cache.

    Exit codes: 0, 1 not deleted, 2 usage.
    """
    from localspec.models.library import models_named

    folders = folders_of(context)
    found = found_models(folders)
    partials = _meant_downloads(unfinished_downloads(folders), name)
    models = [_meant(found, name)] if not partials or models_named(found, name) else []
    for model in models:
        _remove(model, found, folders, sure=yes)
    for partial in partials:
        _remove_partial(partial, folders, sure=yes)


def _meant(found: Sequence[LocalModel], name: str) -> LocalModel:
    """The model that a name stands for: as in the list, or what is here of a model on the Hub.

    Raises:
        UsageError: none, or several.
    """
    from localspec.models.library import is_of, model_named, models_named, several_named

    reference = _on_hub(name) if not models_named(found, name) else None
    if reference is not None:
        # Of several revisions of one file any will do: all are removed.
        here = {(each.place, each.repo_file or each.name): each for each in found if is_of(each, reference)}
        if len(here) > 1:
            raise several_named(name, list(here.values()))
        if here:
            return next(iter(here.values()))
    return model_named(found, name)


def _on_hub(text: str) -> HubReference | None:
    """What a text means on the Hub, by itself or by models.toml; None where it means nothing there."""
    from localspec.models.references import FileReference, parse_reference
    from localspec.models.registry import load_registry

    try:
        reference = parse_reference(text, load_registry())
    except UsageError:
        return None
    return None if isinstance(reference, FileReference) else reference


def _remove(model: LocalModel, found: Sequence[LocalModel], folders: Sequence[ModelFolder], *, sure: bool) -> None:
    from localspec.models.model_folders import Place
    from localspec.models.removal import plan_removal, remove_files
    from localspec.models.split import part_names

    if model.place is Place.OWN:
        removal = plan_removal(model, folders)
        _ask(model.name, _own_question(model, removal), sure=sure)
        remove_files(removal)
    elif model.place is Place.HUGGING_FACE and model.repo and model.repo_file:
        # The cache forgets a file in every revision.
        revisions = [each for each in found if (each.repo, each.repo_file) == (model.repo, model.repo_file)]
        parts, hub = part_names(model.repo_file), hub_cache(folders)
        n_bytes = hub.freed_bytes(model.repo, parts)
        revisions = [each for each in revisions if each.place is model.place]
        _ask(model.name, _shared_question(model, revisions, n_bytes), sure=sure)
        hub.remove(model.repo, parts)
    else:
        hint = _REMOVE_ELSEWHERE.get(model.place, "Check its folder.")
        raise UsageError(f"{one_line(model.name)} is {model.place}'s; localspec deletes nothing there.", hint=hint)
    say(f"Removed {one_line(model.name)}.")


def _remove_partial(partial: PartialDownload, folders: Sequence[ModelFolder], *, sure: bool) -> None:
    name = one_line(partial.name)
    _ask(partial.name, [f"What has arrived of {name}, {file_size(partial.n_done_bytes)}:"], sure=sure)
    n_bytes = hub_cache(folders).remove_partial(partial)
    say(f"Removed what had arrived of {name}: {file_size(n_bytes)}.")


def _meant_downloads(partials: Sequence[PartialDownload], name: str) -> list[PartialDownload]:
    """Those that a name stands for: several only where they are of one model, at several commits.

    Raises:
        UsageError: it names several models.
    """
    meant = [each for each in partials if each.name == name]
    meant = meant or [each for each in partials if _names_partial(name, each)]
    names = sorted({each.name for each in meant})
    if len(names) > 1:
        raise UsageError(f"{name!r} names {len(names)} unfinished downloads.", hint=f"Give one of: {', '.join(names)}.")
    return meant


def _names_partial(text: str, partial: PartialDownload) -> bool:
    """Whether a text names a download by the name of a file, or by what it means on the Hub."""
    model = partial.model
    if any(text in {file.name, file.name.rpartition("/")[2]} for file in model.files):
        return True
    reference = _on_hub(text)
    if reference is None or reference.repo.lower() != model.repo.lower():
        return False
    if reference.file is not None:
        return reference.file == model.files[0].name
    return reference.quantization in {None, model.quantization.upper()}


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


def _ask(name: str, question: Iterable[str], *, sure: bool) -> None:
    """Returns where the user agrees, or was sure from the start."""
    for line in question:
        say(line)
    if sure:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(
            f"{one_line(name)} is not removed: nobody can be asked, since stdin is no terminal.",
            hint="Give --yes to remove it without asking.",
        )
    sys.stderr.write("Remove it? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        say("Nothing was removed.")
        raise typer.Exit(1)
