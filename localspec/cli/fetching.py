"""Models that a command was given by name become files: found in the cache, or downloaded now."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from localspec.cli.console import INTERRUPTED, say
from localspec.printable import one_line

if TYPE_CHECKING:
    from localspec.models.references import HubReference

__all__ = ["local_pair"]


def local_pair(target: str | Path, draft: str | Path | None) -> tuple[Path, Path | None]:
    """The files of a pair. What is only on the Hub is downloaded, after both headers were found to fit together.

    Raises:
        UsageError: a text names no model.
        ModelError: a header cannot be read, or the pair is refused.
        HubError: the Hub does not answer, or has no such model.
        DoesNotFitError: the disk has no room.
        typer.Exit: interrupted.
    """
    files = [_file_or_reference(each) for each in (target, draft) if each is not None]
    missing = [each for each in files if not isinstance(each, Path)]
    if missing:
        files = list(_downloaded(files))
    paths = [each for each in files if isinstance(each, Path)]
    return paths[0], paths[1] if draft is not None else None


def _file_or_reference(model: str | Path) -> Path | HubReference:
    """A file where there is one: named by its path, or in the cache of the Hub; else what it is on the Hub."""
    if isinstance(model, Path):
        return model
    from localspec.models.references import FileReference, RegistryReference, parse_reference
    from localspec.models.registry import load_registry

    reference = parse_reference(model)
    if isinstance(reference, RegistryReference):
        reference = load_registry().resolve(reference)
    if isinstance(reference, FileReference):
        return reference.path
    from localspec.hub.client import Hub

    return Hub().cached(reference) or reference


def _downloaded(files: list[Path | HubReference]) -> list[Path]:
    from localspec.cli.pull_screen import DownloadScreen
    from localspec.hub.client import Hub
    from localspec.models.compat import require_compatible
    from localspec.models.generative import refuse_unless_generative
    from localspec.models.split import read_model

    hub = Hub()
    remote = {each: hub.find(each) for each in files if not isinstance(each, Path)}
    headers = [read_model(each) if isinstance(each, Path) else hub.header(remote[each]).header for each in files]
    for header in headers:
        refuse_unless_generative(header)
    if len(headers) == 2:
        require_compatible(*headers)
    for model in remote.values():
        say(f"Downloading {one_line(model.reference)}.")
    with DownloadScreen() as screen:
        try:
            fetched = dict(zip(remote, hub.download_all(list(remote.values()), screen.show), strict=True))
        except KeyboardInterrupt:
            screen.interrupted = True
    if screen.interrupted:
        say("Stopped; what has arrived is kept, and the same command goes on from there.")
        raise typer.Exit(INTERRUPTED)
    return [each if isinstance(each, Path) else fetched[each] for each in files]
