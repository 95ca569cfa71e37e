"""Files that a measurement will write: refused before hours of measuring, not after."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from localspec.errors import UsageError


def require_writable(files: Mapping[str, Path | None], inputs: Mapping[str, Path | None]) -> None:
    """Check `files`, by the option that names each, against the disk, one another, and what is read: `inputs`, by name.

    None is a file that there is not.

    Raises:
        UsageError: a file cannot be written, or is one of the others.
    """
    taken = {os.path.realpath(path): name for name, path in inputs.items() if path is not None}
    for option, file in files.items():
        if file is None:
            continue
        where = os.path.realpath(file)
        if where in taken:
            raise UsageError(f"{option}: {file} is {taken[where]}.", hint="Name a file of its own.")
        taken[where] = f"the file of {option}"
        try:
            _try_to_write(file)
        except OSError as error:
            reason = error.strerror or str(error)
            raise UsageError(
                f"{option}: {file} cannot be written: {reason}.", hint="Name a file in a folder of yours."
            ) from error


def require_writable_folder(option: str, folder: Path) -> None:
    """The same for a folder, which is made.

    Raises:
        UsageError: it cannot be made, or written into.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        reason = "it is not a folder" if folder.exists() and not folder.is_dir() else error.strerror or str(error)
        raise UsageError(f"{option}: {folder} cannot be written: {reason}.", hint="Name a folder of yours.") from error


def _try_to_write(file: Path) -> None:
    is_new = not file.exists()
    # A named pipe would wait for its reader here, and again at the end. Those that a shell lends have one.
    if file.is_fifo() and Path("/dev") not in file.parents:
        raise OSError("it is a named pipe")
    with file.open("ab"):
        pass
    if is_new:
        with suppress(OSError):
            Path(os.path.realpath(file)).unlink()  # not the link, where it is one
