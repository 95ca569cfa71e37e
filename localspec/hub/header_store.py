"""Headers that were read on the Hub, kept on this machine: what was transferred once is not transferred again.

One compressed file for each file on the Hub, by repository, name, size and the hash that the Hub gives of its content;
so a new commit that leaves a model as it was costs nothing. The folder is bounded: what was not used for longest goes.
What is damaged counts as not there.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import tempfile
import zlib
from pathlib import Path
from typing import Final

from localspec.files import read_regular
from localspec.hub.remote_model import RemoteFile
from localspec.models.header_cursor import MAX_HEADER_BYTES
from localspec.paths import cache_dir

__all__ = ["HeaderStore"]

logger = logging.getLogger(__name__)

MAX_BYTES: Final = 256 << 20  # of all; a vocabulary of 128 thousand tokens takes about 3 MB
_ENDING: Final = ".header"
_DIGEST_BYTES: Final = hashlib.sha256().digest_size
_MAX_FILE_BYTES: Final = MAX_HEADER_BYTES + (1 << 20)


class HeaderStore:
    """The headers in `folder`, which need not exist; None: in the cache folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or cache_dir() / "remote-headers"

    def get(self, repo: str, file: RemoteFile) -> bytes | None:
        """The first bytes of a file, its whole header; None where it is not known."""
        path = self._path(repo, file)
        try:
            kept = read_regular(path, _MAX_FILE_BYTES)
            stream = zlib.decompressobj()
            content = stream.decompress(kept[_DIGEST_BYTES:], MAX_HEADER_BYTES)
        except FileNotFoundError:
            return None
        except (OSError, zlib.error) as error:
            logger.info("The header kept in %s cannot be used: %s", path, error)
            return None
        if hashlib.sha256(content).digest() != kept[:_DIGEST_BYTES]:
            logger.info("The header kept in %s is damaged", path)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # it was used
        return content

    def put(self, repo: str, file: RemoteFile, content: bytes) -> None:
        """Keep the first bytes of a file. Where that fails, they are transferred again, and nothing else."""
        try:
            self._write(self._path(repo, file), hashlib.sha256(content).digest() + zlib.compress(content, 1))
            self._make_room()
        except OSError as error:
            logger.info("A header is not kept: %s", error)

    def _path(self, repo: str, file: RemoteFile) -> Path:
        key = "\0".join((repo, file.name, str(file.n_bytes), file.blob))
        return self._folder / f"{hashlib.sha256(key.encode()).hexdigest()}{_ENDING}"

    def _write(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        part = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(data)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)

    def _make_room(self) -> None:
        """Delete what was used least lately, parts of ended programs included."""
        found = []
        for path in self._folder.iterdir():
            with contextlib.suppress(OSError):  # another program makes room, too
                status = path.lstat()
                found.append((status.st_mtime_ns, status.st_size, path))
        n_bytes = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if n_bytes <= MAX_BYTES:
                return
            if path.suffix in {_ENDING, ".part"}:
                path.unlink(missing_ok=True)
                n_bytes -= size
