"""Notes of downloads that have begun: what has arrived of a file in the cache is named by its hash alone.

One small file for each model, which goes when the download has ended well. Only what localspec fetches is noted, so
what other programs have not finished is left alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from localspec.errors import LocalspecError
from localspec.files import read_regular
from localspec.hub.remote_model import RemoteFile, RemoteModel, is_commit
from localspec.models.references import is_repository
from localspec.paths import data_dir

__all__ = ["DownloadNotes"]

logger = logging.getLogger(__name__)

MAX_NOTES: Final = 200
_ENDING: Final = ".json"
_MAX_FILE_BYTES: Final = 1 << 20

_Text = Annotated[str, Field(max_length=4096)]


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: _Text
    n_bytes: int
    sha256: _Text | None
    git_id: _Text | None


class _Note(BaseModel):
    model_config = ConfigDict(extra="forbid")

    cache: _Text
    repo: _Text
    revision: _Text
    quantization: _Text
    is_first: bool
    files: Annotated[list[_File], Field(min_length=1, max_length=1_000)]


class DownloadNotes:
    """The notes in `folder`, which need not exist (None: in the data folder), of downloads into the cache `root`."""

    def __init__(self, root: Path, folder: Path | None = None) -> None:
        self._root = root
        self._folder = folder or data_dir() / "downloads"

    def add(self, model: RemoteModel) -> None:
        """A download begins. One that cannot be noted is fetched all the same."""
        files = [_File(name=f.name, n_bytes=f.n_bytes, sha256=f.sha256, git_id=f.git_id) for f in model.files]
        note = _Note(
            cache=str(self._root),
            repo=model.repo,
            revision=model.revision,
            quantization=model.quantization,
            is_first=model.is_first,
            files=files,
        )
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._path(model).write_text(note.model_dump_json(), encoding="utf-8")
            for path in self._newest_first()[MAX_NOTES:]:
                path.unlink(missing_ok=True)
        except (OSError, ValueError) as error:
            logger.info("A download is not noted: %s", error)

    def forget(self, model: RemoteModel) -> None:
        """It has ended, or what had arrived of it is gone."""
        with contextlib.suppress(OSError):
            self._path(model).unlink(missing_ok=True)

    def models(self) -> list[RemoteModel]:
        """Those that were noted, the latest first. A note that is none, or speaks of another cache, is passed over."""
        found = []
        for path in self._newest_first()[:MAX_NOTES]:
            try:
                note = _Note.model_validate_json(read_regular(path, _MAX_FILE_BYTES))
                files = tuple(RemoteFile(f.name, f.n_bytes, f.sha256, f.git_id) for f in note.files)
            except (OSError, ValidationError, LocalspecError) as error:
                logger.info("The note %s cannot be used: %s", path, type(error).__name__)
                continue
            if note.cache == str(self._root) and is_repository(note.repo) and is_commit(note.revision):
                found.append(RemoteModel(note.repo, note.revision, note.quantization, files, note.is_first))
        return found

    def _newest_first(self) -> Sequence[Path]:
        try:
            noted = [(each.lstat().st_mtime_ns, each) for each in self._folder.iterdir() if each.suffix == _ENDING]
        except OSError:
            return []
        return [path for _, path in sorted(noted, reverse=True)]

    def _path(self, model: RemoteModel) -> Path:
        key = "\0".join((str(self._root), model.repo, model.revision, *(file.name for file in model.files)))
        return self._folder / f"{hashlib.sha256(key.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}{_ENDING}"
