"""Models that a command was given by name become files: found, or judged by their headers and then downloaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from localspec.cli.console import INTERRUPTED, say
from localspec.printable import one_line, printable
from localspec.quantities import file_size

if TYPE_CHECKING:
    from localspec.hub.client import Hub
    from localspec.hub.remote_model import RemoteModel
    from localspec.models.compat import PairVerdict
    from localspec.models.header import GgufHeader

__all__ = ["Judged", "Wanted", "download", "judge", "local_pair"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A model by the text that named it: on the Hub as `remote`, or at `path` already."""

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


@dataclass(frozen=True, slots=True)
class Judged:
    """A pair that may be downloaded, and what was read to find that out."""

    target: str
    draft: str
    verdict: PairVerdict
    n_header_bytes: int


def local_pair(target: str | Path, draft: str | Path | None, models_dir: Path | None) -> tuple[Path, Path | None]:
    """The files of a pair. What is only on the Hub is downloaded, after both headers were found to fit together.

    `models_dir`: the setting of that name; models are looked for there, too.

    Raises:
        UsageError: a text names no model.
        ModelError: a header cannot be read, or the pair is refused.
        HubError: the Hub does not answer, or has no such model.
        DoesNotFitError: the disk has no room.
        typer.Exit: interrupted.
    """
    if isinstance(target, Path) and (draft is None or isinstance(draft, Path)):
        return target, draft
    from localspec.hub.client import Hub
    from localspec.models.generative import refuse_unless_generative

    hub = Hub()
    models = [_located(each, hub, models_dir) for each in (target, draft) if each is not None]
    if any(each.path is None for each in models):
        if len(models) == 2:
            judge(hub, *models)
        else:
            refuse_unless_generative(models[0].header(hub)[0])
        for each in models:
            if each.remote is not None:
                say(f"Downloading {one_line(each.remote.reference)}.")
    paths = download(hub, models, "the same command")
    return paths[0], paths[1] if draft is not None else None


def _located(model: str | Path, hub: Hub, models_dir: Path | None) -> Wanted:
    if isinstance(model, Path):
        return Wanted(str(model), None, model)
    from localspec.models.library import find_models
    from localspec.models.model_folders import model_folders
    from localspec.pairing.resolve import locate

    located = locate(model, hub, local=lambda: find_models(model_folders(models_dir)))
    if isinstance(located, Path):
        return Wanted(model, None, located)
    return Wanted(model, hub.find(located))


def judge(hub: Hub, target: Wanted, draft: Wanted) -> Judged:
    """Compare the headers of two models, and say what came of it.

    Raises:
        IncompatiblePairError: the draft cannot draft for the target.
        ModelError: one of them is no model that writes text.
    """
    from localspec.models.advice import warnings_for
    from localspec.models.compat import require_compatible
    from localspec.models.generative import refuse_unless_generative

    (ours, n_ours), (theirs, n_theirs) = target.header(hub), draft.header(hub)
    for header in (ours, theirs):
        refuse_unless_generative(header, incomplete_ok=True)  # vocabularies alone are judged like models
    verdict = require_compatible(ours, theirs)
    read = f" ({file_size(n_ours + n_theirs)} read for it)" if n_ours + n_theirs else ""
    say(f"{one_line(draft.text)} can draft for {one_line(target.text)}: vocabularies {verdict.verdict.value}{read}.")
    for reason in verdict.reasons:
        say(f"  Harmless: {one_line(reason.text)}.")
    for warning in warnings_for(ours, theirs):
        say(f"  Mind: {one_line(warning.text)}.")
    return Judged(target.text, draft.text, verdict, n_ours + n_theirs)


def download(hub: Hub, models: Sequence[Wanted], again: str) -> list[Path]:
    """The files of models, the missing ones downloaded. `again`: what goes on after an interruption.

    Raises:
        HubError, DoesNotFitError: as `Hub.download_all`.
        typer.Exit: interrupted.
    """
    from localspec.cli.pull_screen import DownloadScreen

    remotes = [each.remote for each in models if each.remote is not None]
    found: list[Path] = []
    if remotes:
        with DownloadScreen() as screen:
            try:
                found = hub.download_all(remotes, screen.show)
            except KeyboardInterrupt:
                screen.interrupted = True
        if screen.interrupted:
            say(f"Stopped; what has arrived is kept. Go on with: {printable(again)}")
            raise typer.Exit(INTERRUPTED)
    fetched = iter(found)
    return [next(fetched) if each.path is None else each.path for each in models]
