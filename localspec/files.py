"""Reading small files that somebody else may have put there: never an endless one, and never one that waits."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

__all__ = ["read_regular"]


def read_regular(path: Path, max_bytes: int) -> bytes:
    """The content of a regular file.

    Raises:
        OSError: as `open`; it is a folder, a pipe or a device; it is larger than `max_bytes`. `strerror` says which.
    """
    # Without O_NONBLOCK, opening a pipe waits for somebody who writes.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOCTTY", 0)
    with os.fdopen(os.open(path, flags), "rb") as stream:
        mode = os.fstat(stream.fileno()).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is a pipe or a device, not a regular file", str(path))
        content = stream.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {max_bytes:,} bytes", str(path))
    return content
