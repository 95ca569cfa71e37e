"""Deleting a model's files, in localspec's own folder and nowhere else."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import LocalspecError, UsageError
from localspec.models.library import LocalModel
from localspec.models.model_folders import ModelFolder, Place

__all__ = ["Removal", "plan_removal", "remove_files"]


@dataclass(frozen=True, slots=True)
class Removal:
    """The files to delete, of which links are deleted themselves and not what they lead to; the bytes that frees."""

    files: tuple[Path, ...]
    n_links: int
    n_bytes: int


def plan_removal(model: LocalModel, folders: Iterable[ModelFolder]) -> Removal:
    """What deleting a model of the own folder means. `folders` are all that are known.

    Raises:
        UsageError: it is not in the own folder, or that folder lies in another program's.
        LocalspecError: its folder cannot be read.
    """
    if model.place is not Place.OWN or not model.files:
        raise UsageError(f"{model.name} is not in localspec's own folder.", hint="Remove it with the program it is of.")
    folders = list(folders)
    try:
        own = {folder.path.resolve() for folder in folders if folder.place is Place.OWN}
        others = {folder.path.resolve(): folder for folder in folders if folder.place is not Place.OWN}
        planned = [_placed(path, own, others) for path in model.files]
        statuses = [path.lstat() for path in planned]
    except (OSError, RuntimeError) as error:
        raise _failed(model.name, error) from error
    n_links = sum(stat.S_ISLNK(status.st_mode) for status in statuses)
    # A file with other names stays under them.
    n_bytes = sum(each.st_size for each in statuses if stat.S_ISREG(each.st_mode) and each.st_nlink == 1)
    return Removal(tuple(planned), n_links, n_bytes)


def _placed(path: Path, own: set[Path], others: dict[Path, ModelFolder]) -> Path:
    """The file by its real folder, so that no link on the way leads elsewhere."""
    parent = path.parent.resolve(strict=True)
    lineage = {parent, *parent.parents}
    if not own & lineage:
        raise UsageError(
            f"{path} is reached through a link and is really in {parent}, which is not localspec's folder.",
            hint="Delete the link, or the file, by hand.",
        )
    for folder, other in others.items():
        if folder in lineage:
            raise UsageError(
                f"{path} is in the folder of {other.place} as well; localspec deletes nothing there.",
                hint=f"Remove it with {other.place}, or set models_dir to another folder.",
            )
    return parent / path.name


def remove_files(removal: Removal) -> None:
    """Delete what was planned.

    Raises:
        LocalspecError: a file cannot be deleted; those before it are gone.
    """
    for path in removal.files:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise _failed(str(path), error) from error


def _failed(name: str, error: Exception) -> LocalspecError:
    reason = getattr(error, "strerror", None) or error
    return LocalspecError(f"{name} cannot be removed: {reason}.", hint="Check the permissions of its folder.")
