"""One file from the Hub into the cache: resumed where it broke off, verified, and then published under its name.

huggingface_hub's own download begins anew after every interruption: it deletes what has arrived. Its Xet transfer can
neither be resumed nor be stopped, and tells of progress only now and then. So files come by plain HTTP, which storage
of both kinds serves, into `<hash>.incomplete`, a name that its older versions and its cache tools know.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import threading
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Final

from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]  # exported when asked for

from localspec.errors import DiskFullError, HubError, HubUnreachableError
from localspec.hub.cache import HubCache
from localspec.hub.patience import Patience, cancelled
from localspec.hub.remote_model import RemoteFile, RemoteModel
from localspec.hub.session import Session

__all__ = ["Transfer", "disk_error"]

# The Hub's storage has a limit of 50 GB to one answer; larger files come in several.
_MAX_ANSWER_BYTES: Final = 16 * 1024**3
_READ_BYTES: Final = 1024 * 1024
_OPEN_FLAGS: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_LOCK_POLL_S: Final = 0.2
_N_FAILURES: Final = 5
_LONGEST_ASKED_S: Final = 300.0  # the Hub counts requests by five minutes


class Transfer:
    """The way of one file. `n_present_bytes` may be read by other threads while `run` is under way."""

    def __init__(self, session: Session, cache: HubCache, model: RemoteModel, file: RemoteFile) -> None:
        self._session = session
        self._cache = cache
        self._model = model
        self.file = file
        self.n_present_bytes = cache.n_present_bytes(model, file)

    def run(self, stop: threading.Event) -> None:
        """Bring the file into the cache; nothing to do where it is there.

        Raises:
            DownloadCancelledError: `stop` was set; what has arrived stays.
            HubError: it cannot be had, or its content is not what the Hub promises; that is deleted.
            DiskFullError: it cannot be written.
        """
        if self._cache.is_complete(self._model, self.file):
            return
        try:
            with self._locked(stop):
                if not self._has_blob():
                    self._fetch(stop)
                    self._cache.partial(self._model.repo, self.file).replace(self._blob)
                self._cache.publish(self._model, self.file)
        except OSError as error:
            raise disk_error(error, self._cache.root) from error
        self.n_present_bytes = self.file.n_bytes

    @property
    def _blob(self) -> Path:
        return self._cache.blob(self._model.repo, self.file)

    def _has_blob(self) -> bool:
        return self._blob.is_file() and self._blob.stat().st_size == self.file.n_bytes

    @contextlib.contextmanager
    def _locked(self, stop: threading.Event) -> Iterator[None]:
        """Hold the file's lock, which any program that shares the cache may have."""
        path = self._cache.lock(self._model.repo, self.file)
        with contextlib.ExitStack() as stack:
            while True:
                if stop.is_set():
                    raise cancelled()
                try:
                    stack.enter_context(WeakFileLock(path, timeout=_LOCK_POLL_S))
                except TimeoutError:
                    continue
                break
            yield

    def _fetch(self, stop: threading.Event) -> None:
        path = self._cache.partial(self._model.repo, self.file)
        patience = Patience(_N_FAILURES, _LONGEST_ASKED_S, stop)
        with _open_partial(path) as written:
            partial = _Partial(written, self.file, stop)
            self.n_present_bytes = partial.n_bytes
            while partial.n_bytes < self.file.n_bytes:
                before = partial.n_bytes
                try:
                    self._receive(partial, stop)
                except HubUnreachableError as error:
                    if partial.n_bytes > before:
                        patience.renew()
                    patience.wait(self._interruption(error))
            is_right = partial.is_right()
        if not is_right:
            path.unlink()
            self.n_present_bytes = 0
            raise HubError(
                f"{self.file.name} of {self._model.repo} arrived with another content than the Hub promises (its "
                f"checksum is not {self.file.blob[:12]}…), and was deleted.",
                hint="Try again. If that repeats, a proxy or mirror in between changes files.",
            )

    def _receive(self, partial: _Partial, stop: threading.Event) -> None:
        """One request: from where the partial file ends, to the end or until it breaks off."""
        first = partial.n_bytes
        end = min(self.file.n_bytes, first + _MAX_ANSWER_BYTES)
        with self._session.content(self._model.repo, self._model.revision, self.file.name, first, end) as content:
            if content.offset != first:
                partial.restart()  # the server knows no ranges
                end = self.file.n_bytes
            for piece in content.pieces:
                if stop.is_set():
                    raise cancelled()
                partial.append(piece[: end - partial.n_bytes])
                self.n_present_bytes = partial.n_bytes
                if partial.n_bytes >= end:
                    return
        raise HubUnreachableError("The Hub ended its answer early.")

    def _interruption(self, error: HubUnreachableError) -> HubUnreachableError:
        share = self.n_present_bytes / self.file.n_bytes
        return HubUnreachableError(
            f"{self.file.name} broke off at {share:.0%}: {error.message}",
            hint="Ask for it again: it goes on from where it was.",
            retry_after_s=error.retry_after_s,
        )


def _open_partial(path: Path) -> FileIO:
    """Open for reading and appending, unbuffered: nothing that has arrived is only in memory.

    Raises:
        HubError: it is a link, which could lead to any file of the user's, or no regular file.
    """
    # Not every system has O_NOFOLLOW, and where it has, a link may appear after it was looked for.
    descriptor = None if path.is_symlink() else os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | _OPEN_FLAGS, 0o666)
    if descriptor is not None and stat.S_ISREG(os.fstat(descriptor).st_mode):
        return FileIO(descriptor, "a+b")
    if descriptor is not None:
        os.close(descriptor)
    raise HubError(f"{path} is a link, a pipe or a device; a download is written into files only.", hint="Delete it.")


class _Partial:
    """What has arrived of a file, on disk, and its hash so far."""

    def __init__(self, written: FileIO, file: RemoteFile, stop: threading.Event) -> None:
        self._written = written
        self._file = file
        self._new_hash()
        self.n_bytes = 0
        written.seek(0)
        while piece := written.read(_READ_BYTES):
            if stop.is_set():
                raise cancelled()
            self._hash.update(piece)
            self.n_bytes += len(piece)
        if self.n_bytes > file.n_bytes:
            self.restart()

    def append(self, piece: bytes) -> None:
        view = memoryview(piece)
        while view:
            view = view[self._written.write(view) :]
        self._hash.update(piece)
        self.n_bytes += len(piece)

    def restart(self) -> None:
        self._written.truncate(0)
        self._written.seek(0)
        self._new_hash()
        self.n_bytes = 0

    def is_right(self) -> bool:
        return self._hash.hexdigest() == self._file.blob

    def _new_hash(self) -> None:
        if self._file.sha256 is not None:
            self._hash = hashlib.sha256()
        else:  # git's id of a file
            self._hash = hashlib.sha1(b"blob %d\0" % self._file.n_bytes, usedforsecurity=False)


def disk_error(error: OSError, folder: Path) -> HubError | DiskFullError:
    """What went wrong in the cache folder."""
    reason = error.strerror or str(error)
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return DiskFullError(
            f"{folder} is full: {reason}.", hint="Make room and ask again: the download goes on from where it was."
        )
    return HubError(f"{error.filename or folder} cannot be written: {reason}.", hint="Check the folder of the cache.")
