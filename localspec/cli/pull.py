"""`localspec pull`: models from the Hub into the cache that llama-server and others share; a pair is judged first."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from localspec.cli.console import INTERRUPTED, say
from localspec.errors import UsageError
from localspec.printable import one_line, printable

if TYPE_CHECKING:
    from localspec.hub.client import Hub
    from localspec.hub.remote_model import RemoteModel
    from localspec.models.compat import PairVerdict
    from localspec.models.header import GgufHeader
    from localspec.models.references import Reference


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
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object with paths and sizes.")] = False,
) -> None:
    """Download models from the Hugging Face Hub; their paths go to stdout.

    Two models, or some and a --draft, are judged as a pair by their headers,
    a few MB, before anything else is fetched. Ctrl-C keeps what has arrived:
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
    named = [(text, parse_reference(text, registry)) for text in references]
    if list_only:
        if draft is not None:
            raise UsageError(
                "--list and --draft contradict each other.", hint="Name the repository of the draft alone."
            )
        _show_lists(Hub(), [reference for _, reference in named], as_json=as_json)
        return
    hub = Hub()
    models = [_wanted(hub, text, reference) for text, reference in named]
    drafts = [] if draft is None else [_wanted(hub, draft, parse_reference(draft, registry))]
    if draft is None and len(models) == 2:
        models, drafts = models[:1], models[1:]
    pairs = [_judge(hub, target, each) for target in models for each in drafts]
    paths = _download(hub, [*models, *drafts])
    if as_json:
        answer = {
            "models": [each.as_json(path) for each, path in zip([*models, *drafts], paths, strict=True)],
            "pairs": [each.as_json() for each in pairs],
        }
        sys.stdout.write(json.dumps(answer, ensure_ascii=False) + "\n")
    else:
        for path in paths:
            sys.stdout.write(f"{printable(str(path)) if sys.stdout.isatty() else path}\n")
    sys.stdout.flush()


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A model by the text that named it: on the Hub, or at `path` already."""

    text: str
    remote: RemoteModel | None
    path: Path | None = None

    def header(self, hub: Hub) -> tuple[GgufHeader, int]:
        """What it says of itself, and how many bytes were transferred for that."""
        from localspec.models.split import read_model

        if self.remote is None:
            assert self.path is not None
            return read_model(self.path), 0
        found = hub.header(self.remote)
        return found.header, found.n_bytes_read

    def as_json(self, path: Path) -> dict[str, Any]:
        remote = self.remote
        return {
            "model": self.text,
            "path": str(path),
            "reference": None if remote is None else remote.reference,
            "revision": None if remote is None else remote.revision,
            "quantization": None if remote is None else remote.quantization or None,
            "files": None if remote is None else [file.name for file in remote.files],
            "bytes": None if remote is None else remote.n_bytes,
        }


@dataclass(frozen=True, slots=True)
class _Judged:
    target: str
    draft: str
    verdict: PairVerdict
    n_header_bytes: int

    def as_json(self) -> dict[str, Any]:
        reasons = [
            {"rule": each.rule, "target": each.target_value, "draft": each.draft_value, "text": each.text}
            for each in self.verdict.reasons
        ]
        return {
            "target": self.target,
            "draft": self.draft,
            "verdict": self.verdict.verdict.value,
            "reasons": reasons,
            "header_bytes": self.n_header_bytes,
        }


def _wanted(hub: Hub, text: str, reference: Reference) -> _Wanted:
    from localspec.models.references import FileReference

    if isinstance(reference, FileReference):
        if not reference.path.is_file():
            raise UsageError(
                f"{reference.path} is no model on the Hub, and no file.", hint="Such as owner/name-GGUF:Q4_K_M."
            )
        return _Wanted(text, None, reference.path)
    if hub.is_offline and (path := hub.cached(reference)) is not None:
        return _Wanted(text, None, path)
    return _Wanted(text, hub.find(reference))


def _judge(hub: Hub, target: _Wanted, draft: _Wanted) -> _Judged:
    """Raises IncompatiblePairError where the draft cannot draft for the target."""
    from localspec.models.advice import warnings_for
    from localspec.models.compat import judge_pair, require_compatible
    from localspec.models.generative import refuse_unless_generative

    (ours, n_ours), (theirs, n_theirs) = target.header(hub), draft.header(hub)
    for header in (ours, theirs):
        if header.tensors:  # vocabularies alone are judged like models
            refuse_unless_generative(header)
    require_compatible(ours, theirs)
    verdict = judge_pair(ours, theirs)
    read = f" ({(n_ours + n_theirs) / 1e6:.1f} MB read for it)" if n_ours + n_theirs else ""
    say(f"{one_line(draft.text)} can draft for {one_line(target.text)}: vocabularies {verdict.verdict.value}{read}.")
    for reason in verdict.reasons:
        say(f"  Harmless: {one_line(reason.text)}.")
    for warning in warnings_for(ours, theirs):
        say(f"  Mind: {one_line(warning.text)}.")
    return _Judged(target.text, draft.text, verdict, n_ours + n_theirs)


def _download(hub: Hub, models: Sequence[_Wanted]) -> list[Path]:
    from localspec.cli.pull_screen import DownloadScreen

    remotes = [each.remote for each in models if each.remote is not None]
    if remotes:
        with DownloadScreen() as screen:
            try:
                found = hub.download_all(remotes, screen.show)
            except KeyboardInterrupt:
                screen.interrupted = True
        if screen.interrupted:
            again = shlex.join(["localspec", "pull", *(each.text for each in models)])
            say(f"Stopped; what has arrived is kept. Go on with: {printable(again)}")
            raise typer.Exit(INTERRUPTED)
    else:
        found = []
    fetched = iter(found)
    return [next(fetched) if each.path is None else each.path for each in models]


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
        sys.stdout.write(json.dumps(lists, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def _show_found(hub: Hub, text: str, *, as_json: bool) -> None:
    from localspec.cli.pull_screen import show_repositories

    found = hub.search(text)
    if as_json:
        sys.stdout.write(json.dumps([asdict(each) for each in found], ensure_ascii=False) + "\n")
    else:
        show_repositories(text, found)
    sys.stdout.flush()


def _listed(model: RemoteModel) -> dict[str, Any]:
    return {
        "quantization": model.quantization or None,
        "reference": model.reference,
        "bytes": model.n_bytes,
        "files": [file.name for file in model.files],
    }
