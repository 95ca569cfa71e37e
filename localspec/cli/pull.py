"""`localspec pull`: models from the Hub into the cache that llama-server and others share; a pair is judged first."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from localspec.cli.console import write_json
from localspec.cli.fetching import Judged, Wanted, download, judge
from localspec.cli.too_large import warn_if_too_large
from localspec.errors import UsageError
from localspec.printable import printable

if TYPE_CHECKING:
    from localspec.hub.client import Hub
    from localspec.hub.remote_model import RemoteModel
    from localspec.models.references import Reference
    from localspec.models.registry import Registry


def pull(
    references: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...",
            help="Repository and quantization (owner/name-GGUF:Q4_K_M), a file of one, or a name from models.toml.",
        ),
    ],
    draft: Annotated[
        str | None, typer.Option("--draft", "-md", metavar="MODEL", help="A draft model for the others.")
    ] = None,
    list_only: Annotated[
        bool, typer.Option("--list", help="Only show which quantizations there are, and how large.")
    ] = False,
    search: Annotated[
        bool, typer.Option("--search", help="Only look for repositories whose names have these words.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document with paths and sizes.")] = False,
) -> None:
    """Download models from the Hugging Face Hub; their paths go to stdout.

    A model that this machine cannot hold is fetched too, after a warning.
    With --draft, it is judged beside each of the others by the headers, a few
    MB, before anything else is fetched. Ctrl-C keeps what has arrived:
    the same command goes on from there.
    Exit codes: 0, 1 the Hub or the network failed, 2 usage, 3 not there, not
    allowed, or pair refused, 4 the disk is too small, 130 interrupted.
    """
    from localspec.hub.client import Hub
    from localspec.models.references import parse_reference
    from localspec.models.registry import load_registry

    if search:
        if list_only or draft is not None:
            raise UsageError("--search goes with neither --list nor --draft.", hint="Search first, then list or pull.")
        _show_found(Hub(), " ".join(references), as_json=as_json)
        return
    registry = load_registry()
    if list_only:
        if draft is not None:
            raise UsageError(
                "--list and --draft contradict each other.", hint="Name the repository of the draft alone."
            )
        _show_lists(Hub(), [parse_reference(text, registry) for text in references], as_json=as_json)
        return
    hub = Hub()
    models = [_wanted(hub, text, registry) for text in references]
    drafts = [_wanted(hub, draft, registry)] if draft is not None else []
    pairs = [judge(hub, target, each) for target in models for each in drafts]
    everything = [*models, *drafts]
    for each in everything:
        warn_if_too_large(hub, each)
    paths = download(hub, everything, shlex.join(["localspec", "pull", *(each.text for each in everything)]))
    if as_json:
        answer = {
            "models": [_model(each, path) for each, path in zip(everything, paths, strict=True)],
            "pairs": list(map(_pair, pairs)),
        }
        write_json(answer)
    else:
        for path in paths:
            sys.stdout.write(f"{printable(str(path)) if sys.stdout.isatty() else path}\n")
    sys.stdout.flush()


def _wanted(hub: Hub, text: str, registry: Registry) -> Wanted:
    """What the Hub has now; offline, what is in the cache."""
    from localspec.models.references import FileReference, parse_reference

    reference = parse_reference(text, registry)
    if isinstance(reference, FileReference):
        if not reference.path.is_file():
            raise UsageError(
                f"{reference.path} is no model on the Hub, and no file.", hint="Such as owner/name-GGUF:Q4_K_M."
            )
        return Wanted(text, None, reference.path)
    if hub.is_offline and (path := hub.cached(reference)) is not None:
        return Wanted(text, None, path)
    return Wanted(text, hub.find(reference))


def _model(wanted: Wanted, path: Path) -> dict[str, Any]:
    remote = wanted.remote
    return {
        "model": wanted.text,
        "path": str(path),
        "reference": None if remote is None else remote.reference,
        "revision": None if remote is None else remote.revision,
        "quantization": None if remote is None else remote.quantization or None,
        "files": None if remote is None else [file.name for file in remote.files],
        "download_bytes": None if remote is None else remote.n_bytes,
    }


def _pair(judged: Judged) -> dict[str, Any]:
    from localspec.cli.pair_json import reasons_object

    return {
        "target": judged.target,
        "draft": judged.draft,
        "verdict": judged.verdict.verdict.value,
        "reasons": reasons_object(judged.verdict),
        "header_bytes": judged.n_header_bytes,
    }


def _show_lists(hub: Hub, references: Sequence[Reference], *, as_json: bool) -> None:
    from localspec.cli.pull_screen import show_models
    from localspec.models.references import HubReference

    lists: list[dict[str, Any]] = []
    for reference in references:
        if not isinstance(reference, HubReference):
            raise UsageError(f"{reference} is no repository.", hint="Such as owner/name-GGUF.")
        models = sorted(hub.models(reference.repo), key=lambda model: model.n_bytes)
        if as_json:
            lists.append({"repo": reference.repo, "models": [_listed(model) for model in models]})
        else:
            show_models(reference.repo, models)
    if as_json:
        write_json(lists)
    sys.stdout.flush()


def _show_found(hub: Hub, text: str, *, as_json: bool) -> None:
    from localspec.cli.pull_screen import show_repositories

    found = hub.search(text)
    if as_json:
        write_json([asdict(each) for each in found])
    else:
        show_repositories(text, found)
    sys.stdout.flush()


def _listed(model: RemoteModel) -> dict[str, Any]:
    return {
        "quantization": model.quantization or None,
        "reference": model.reference,
        "download_bytes": model.n_bytes,
        "files": [file.name for file in model.files],
    }
