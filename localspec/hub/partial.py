"""Downloads that were begun and not finished: how far they are, and deleting what has arrived of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]  # exported when asked for

from localspec.errors import HubError
from localspec.hub.cache import HubCache
from localspec.hub.remote_model import RemoteFile, RemoteModel

__all__ = ["PartialDownload", "partial_downloads", "remove_partial"]

_LOCK_WAIT_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class PartialDownload:
    """A model of which something has arrived. `n_done_bytes` counts its finished parts, too."""

    model: RemoteModel
    n_done_bytes: int

    @property
    def name(self) -> str:
        """What names it in a command."""
        return self.model.reference


def partial_downloads(cache: HubCache, noted: list[RemoteModel]) -> list[PartialDownload]:
    """Of the models that were noted, those with an unfinished file in the cache."""
    return [
        PartialDownload(model, sum(cache.n_present_bytes(model, file) for file in model.files))
        for model in noted
        if any(True for _ in _unfinished(cache, model))
    ]


def remove_partial(cache: HubCache, partial: PartialDownload) -> int:
    """Delete the unfinished files; finished parts stay, as models that lack the others. Returns the bytes freed.

    Raises:
        HubError: one is being downloaded now, lies outside of the cache, or cannot be deleted.
    """
    root, n_bytes = cache.root.resolve(), 0
    for file, path in list(_unfinished(cache, partial.model)):
        if not path.parent.resolve().is_relative_to(root):
            raise HubError(
                f"{path} lies outside of the cache {root}, although something in the cache leads there.",
                hint="Nothing was deleted. Look into the folder, and delete by hand.",
            )
        try:
            with WeakFileLock(cache.lock(partial.model.repo, file), timeout=_LOCK_WAIT_S):
                size = path.lstat().st_size
                path.unlink()
                n_bytes += size
        except TimeoutError as error:
            raise HubError(f"{partial.name} is being downloaded now.", hint="Stop that first.") from error
        except FileNotFoundError:
            continue  # it was finished meanwhile, or deleted
        except OSError as error:
            raise HubError(
                f"{path} cannot be deleted: {error.strerror or error}.", hint="Check the permissions of its folder."
            ) from error
    return n_bytes


def _unfinished(cache: HubCache, model: RemoteModel) -> Iterator[tuple[RemoteFile, Path]]:
    for file in model.files:
        path = cache.partial(model.repo, file)
        with contextlib.suppress(OSError):
            if path.is_file() and not path.is_symlink():
                yield file, path
