"""The cache folder that huggingface_hub, llama-server and others share: where files are in it, and putting them there.

    models--owner--repo/
      blobs/<hash>               content; <hash>.incomplete while it arrives
      snapshots/<commit>/<name>  links to the blobs, or the files themselves where the system has no links
      refs/main                  the commit that was last seen there
    .locks/models--owner--repo/<hash>.lock

Every name that becomes a part of a path was checked before: repositories here, files and hashes by `RemoteFile`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from huggingface_hub import DeleteCacheStrategy, scan_cache_dir
from huggingface_hub.errors import CacheNotFound
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.utils import logging as hub_logging

from localspec.errors import HubError, UsageError
from localspec.files import read_regular
from localspec.hub.quantizations import file_sets, pick, set_of
from localspec.hub.remote_model import RemoteFile, RemoteModel, is_commit
from localspec.models.references import is_repository

__all__ = ["HubCache", "checked_repo"]

_MAIN: Final = "main"
_MAX_REFERENCE_BYTES: Final = 4096
_NO_REFERENCES: Final = frozenset({".DS_Store", "Thumbs.db", "desktop.ini"})  # what systems leave in folders


def checked_repo(repo: str) -> str:
    """The name of a repository, which can be one.

    Raises:
        UsageError: it cannot.
    """
    if is_repository(repo) and not repo.endswith(".git"):
        return repo
    raise UsageError(
        f"{repo!r} is no repository on the Hub.", hint="Such as bartowski/Llama-3.2-1B-Instruct-GGUF, owner and name."
    )


@dataclass(frozen=True, slots=True)
class _Removal:
    plan: DeleteCacheStrategy
    n_bytes: int


class HubCache:
    """The cache under the folder `root`, which need not exist."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def blob(self, repo: str, file: RemoteFile) -> Path:
        """Where the content of a file is, once it is complete and verified."""
        return self._folder(repo) / "blobs" / file.blob

    def partial(self, repo: str, file: RemoteFile) -> Path:
        """Where it is while it arrives, and after an interruption."""
        return self._folder(repo) / "blobs" / f"{file.blob}.incomplete"

    def lock(self, repo: str, file: RemoteFile) -> Path:
        """The lock file that whoever writes the blob holds."""
        return self.root / ".locks" / self._folder(repo).name / f"{file.blob}.lock"

    def snapshot(self, model: RemoteModel, file: RemoteFile) -> Path:
        """Where programs find a file."""
        return self._folder(model.repo) / "snapshots" / model.revision / file.name

    def is_complete(self, model: RemoteModel, file: RemoteFile) -> bool:
        """Whether the file is there, at its full size."""
        return _has_size(self.snapshot(model, file), file.n_bytes)

    def n_present_bytes(self, model: RemoteModel, file: RemoteFile) -> int:
        """What is there of a file, complete or not."""
        if self.is_complete(model, file) or _has_size(self.blob(model.repo, file), file.n_bytes):
            return file.n_bytes
        with contextlib.suppress(OSError):
            return min(self.partial(model.repo, file).stat().st_size, file.n_bytes)
        return 0

    def prepare(self, model: RemoteModel) -> None:
        """Make the folders of a model and note its commit, so that other programs see what there is of it."""
        folder = self._folder(model.repo)
        for file in model.files:
            self.lock(model.repo, file).parent.mkdir(parents=True, exist_ok=True)
            self.snapshot(model, file).parent.mkdir(parents=True, exist_ok=True)
        (folder / "blobs").mkdir(exist_ok=True)
        reference = folder / "refs" / _MAIN
        if _noted_commit(folder) != model.revision:
            reference.parent.mkdir(exist_ok=True)
            # Not by tempfile: others who share the cache must be able to read it.
            part = reference.with_name(f".{_MAIN}.{secrets.token_hex(4)}")
            try:
                part.write_text(model.revision, encoding="utf-8")
                part.replace(reference)
            finally:
                part.unlink(missing_ok=True)

    def publish(self, model: RemoteModel, file: RemoteFile) -> Path:
        """Make a complete blob appear under its name: as a link, or moved there where the system has no links."""
        blob, path = self.blob(model.repo, file), self.snapshot(model, file)
        path.unlink(missing_ok=True)  # a link to nowhere, or a file of another size
        try:
            path.symlink_to(os.path.relpath(blob, path.parent))
        except OSError:
            if not path.exists():  # another program may have been faster
                blob.replace(path)
        return path

    def find(self, repo: str, quantization: str | None, file: str | None) -> Path | None:
        """The first file of a model that is there with all its parts; None where there is none.

        The commit that was last seen on the Hub comes first, then the others, the latest first.
        """
        for commit in self._commits(checked_repo(repo)):
            folder = self._folder(repo) / "snapshots" / commit
            names = sorted(each.relative_to(folder).as_posix() for each in folder.rglob("*") if each.is_file())
            files = set_of(file, set(names)) if file is not None else pick(file_sets(names), quantization)
            if files is not None:
                return folder / files.names[0]
        return None

    def remove(self, repo: str, files: Sequence[str] | None) -> int:
        """Delete files of a repository, or all that there is of it; returns the bytes that are free now.

        What other files share stays. Names that are not there are no error.

        Raises:
            HubError: something in the cache leads elsewhere, or cannot be deleted.
        """
        removal = self._planned(repo, files)
        if removal is None:
            return 0
        self._execute(removal.plan)
        return removal.n_bytes

    def freed_bytes(self, repo: str, files: Sequence[str] | None) -> int:
        """What `remove` would free: nothing of what other files share, or of what lies outside of the cache.

        Raises:
            HubError: the folder is damaged.
        """
        removal = self._planned(repo, files)
        return 0 if removal is None else removal.n_bytes

    def _planned(self, repo: str, files: Sequence[str] | None) -> _Removal | None:
        folder = self._folder(checked_repo(repo))
        self._mend(folder)
        _refuse_strange_references(self.root)
        try:
            cache = scan_cache_dir(self.root)
        except (CacheNotFound, ValueError):
            return None
        found = [each for each in cache.repos if each.repo_type == "model" and each.repo_id == repo]
        if not found:
            if folder.exists():
                raise HubError(f"{folder} is damaged.", hint="Look into the folder, and delete it by hand.")
            return None
        # Commits are looked for in all repositories, and a copy of this one may have the same.
        cache = dataclasses.replace(cache, repos=frozenset(found))
        partial = [each for each in cache.incomplete_files if each.file_path.parent.parent == found[0].repo_path]
        chosen = {
            file
            for revision in found[0].revisions
            for file in revision.files
            if files is None or file.file_path.relative_to(revision.snapshot_path).as_posix() in files
        }
        is_all = not partial and chosen == {file for revision in found[0].revisions for file in revision.files}
        if files is None or is_all:
            plan = cache.delete_revisions(*(revision.commit_hash for revision in found[0].revisions))
            blobs = {file.blob_path for file in chosen}
            n_bytes = plan.expected_freed_size + sum(each.size_on_disk for each in partial)
        else:
            plan = cache.delete_files(*chosen)
            blobs = {file.blob_path for file in chosen} & (plan.blobs | plan.files)
            n_bytes = plan.expected_freed_size
        return _Removal(plan, int(n_bytes) - sum(map(self._staying_bytes, blobs)))

    def _staying_bytes(self, blob: Path) -> int:
        """Of a blob that is deleted, what stays under another name or elsewhere."""
        status = blob.stat()
        is_elsewhere = not blob.resolve().is_relative_to(self.root.resolve())
        return status.st_size if is_elsewhere or status.st_nlink > 1 else 0

    def _execute(self, plan: DeleteCacheStrategy) -> None:
        folders, files = [*plan.snapshots, *plan.repos], [*plan.files, *plan.blobs, *plan.refs]
        root = self.root.resolve()
        # Of a file that is a link, the link goes; in a folder that is one, what it leads to would be meant.
        for path in [*(each.resolve() for each in folders), *(each.parent.resolve() / each.name for each in files)]:
            if not path.is_relative_to(root):
                raise HubError(
                    f"{path} lies outside of the cache {root}, although something in the cache leads there.",
                    hint="Nothing was deleted. Look into the folder, and delete by hand.",
                )
        with _without_its_log():
            plan.execute()
        left = [path for path in (*folders, *files) if os.path.lexists(path)]
        if left:
            raise HubError(f"{left[0]} could not be deleted.", hint="Check the permissions of the folder.")

    def _mend(self, folder: Path) -> None:
        """llama-server notes commits of which it has no files; huggingface_hub takes such a folder for damaged."""
        with contextlib.suppress(OSError):
            commit = _noted_commit(folder)
            if is_commit(commit) and (folder / "snapshots").is_dir():
                (folder / "snapshots" / commit).mkdir(exist_ok=True)

    def _folder(self, repo: str) -> Path:
        return self.root / repo_folder_name(repo_id=repo, repo_type="model")

    def _commits(self, repo: str) -> list[str]:
        folder = self._folder(repo)
        try:
            found = sorted((folder / "snapshots").iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
        except OSError:
            return []
        main = _noted_commit(folder).strip()
        return sorted((path.name for path in found if path.is_dir()), key=lambda name: name != main)


def _noted_commit(folder: Path) -> str:
    """What refs/main of a repository holds; "" where that is nothing, or nothing that can be a commit."""
    try:
        return read_regular(folder / "refs" / _MAIN, _MAX_REFERENCE_BYTES).decode("ascii")
    except (OSError, UnicodeDecodeError):
        return ""


def _refuse_strange_references(root: Path) -> None:
    """huggingface_hub reads all of them, of every repository, to the end; a pipe or a device has none.

    Raises:
        HubError: one is no small regular file.
    """
    for reference in root.glob("*--*/refs/**/*"):
        try:
            if not reference.is_dir() and reference.name not in _NO_REFERENCES:
                read_regular(reference, _MAX_REFERENCE_BYTES)
        except OSError as error:
            raise HubError(
                f"{reference} is damaged: {error.strerror or error}.", hint="Nothing was deleted. Delete it by hand."
            ) from error


@contextlib.contextmanager
def _without_its_log() -> Iterator[None]:
    """huggingface_hub logs what it cannot delete, with a traceback; what is left is told in our own words."""
    level = hub_logging.get_verbosity()
    hub_logging.set_verbosity(logging.CRITICAL)
    try:
        yield
    finally:
        hub_logging.set_verbosity(level)


def _has_size(path: Path, n_bytes: int) -> bool:
    try:
        return path.is_file() and path.stat().st_size == n_bytes
    except OSError:
        return False
