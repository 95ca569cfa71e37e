"""What is on this machine, for the commands that list, judge or delete it: models, and downloads that were begun."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from localspec.hub.client import Hub
    from localspec.hub.partial import PartialDownload
    from localspec.models.library import LocalModel
    from localspec.models.model_folders import ModelFolder

__all__ = ["found_models", "hub_cache", "unfinished_downloads"]


def found_models(folders: Iterable[ModelFolder]) -> list[LocalModel]:
    """What is in the folders, with progress on a terminal while headers are read."""
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


def unfinished_downloads(folders: Sequence[ModelFolder]) -> list[PartialDownload]:
    """Downloads that were begun. Where none ever was, nothing that is slow to load is asked."""
    from localspec.hub.download_notes import DownloadNotes

    return hub_cache(folders).partial_downloads() if DownloadNotes(_cache_dir(folders)).models() else []


def hub_cache(folders: Sequence[ModelFolder]) -> Hub:
    """The cache that the Hub's programs share."""
    from localspec.hub.client import Hub

    return Hub(cache_dir=_cache_dir(folders))


def _cache_dir(folders: Iterable[ModelFolder]) -> Path:
    from localspec.models.model_folders import Place

    return next(folder.path for folder in folders if folder.place is Place.HUGGING_FACE).absolute()
