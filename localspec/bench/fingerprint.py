"""What a measurement holds for: these files and this build of llama.cpp. Cheap enough to ask at every start."""

from __future__ import annotations

import errno
import hashlib
import importlib.metadata
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

_LLAMA_CPP: Final = "llama-cpp-python"
_BACKEND: Final = re.compile(r"(?:lib)?ggml-(?!base)([a-z0-9]+)[\w-]*\.(?:so|dylib|dll)")

_BLOCK_BYTES: Final = 1 << 18
_N_BLOCKS: Final = 17


@dataclass(frozen=True, slots=True)
class FileFingerprint:
    """A file by its content: its size, and a SHA-256 over samples of it, in hexadecimal."""

    n_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class LlamaBuild:
    """The installed bindings and the backends that were compiled into them ("cpu", "cuda" ...)."""

    version: str
    backends: tuple[str, ...]


def file_fingerprint(path: Path) -> FileFingerprint:
    """Tell a file from others, and from earlier versions of itself, without reading all of it.

    Hashed are its head, its tail, and blocks evenly spread between them: 4 MiB in all, so that a file of 40 GB takes no
    longer than a small one. That tells apart quantizations, fine-tunes and interrupted downloads; it is no proof
    against somebody who forges a file.

    Raises:
        OSError: the file cannot be read.
    """
    about = path.stat()
    if not stat.S_ISREG(about.st_mode):  # a pipe would never open, a device never end
        raise OSError(errno.EINVAL, "It is no regular file", str(path))
    with path.open("rb") as file:
        digest = hashlib.sha256()
        for block in _samples(file, about.st_size):
            digest.update(block)
    return FileFingerprint(about.st_size, digest.hexdigest())


def _samples(file: BinaryIO, n_bytes: int) -> Iterator[bytes]:
    if n_bytes <= _N_BLOCKS * _BLOCK_BYTES:
        file.seek(0)
        yield file.read(n_bytes)
        return
    for i in range(_N_BLOCKS):
        file.seek((n_bytes - _BLOCK_BYTES) * i // (_N_BLOCKS - 1))
        yield file.read(_BLOCK_BYTES)


def llama_build() -> LlamaBuild:
    """The build of llama.cpp, from the package's metadata: nothing of it is imported.

    Rebuilding one version for another backend keeps the version, and changes every speed: hence the backends.
    """
    try:
        package = importlib.metadata.distribution(_LLAMA_CPP)
    except importlib.metadata.PackageNotFoundError:
        return LlamaBuild("unknown", ())
    found = (_BACKEND.fullmatch(file.name) for file in package.files or ())
    return LlamaBuild(package.version, tuple(sorted({match[1] for match in found if match})))
