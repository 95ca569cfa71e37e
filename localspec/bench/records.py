"""What is measured and kept: one JSON file per pair, in a folder per kind of record.

A record is untrusted input, like a configuration file: it is read with bounds and checked in every value.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from localspec.errors import DiskFullError
from localspec.files import read_regular
from localspec.paths import data_dir

__all__ = ["Record", "read_record", "record_file", "write_record"]

_MAX_FILE_BYTES: Final = 1 << 20

_AnyRecord = TypeVar("_AnyRecord", bound="Record")


class Record(BaseModel):
    """Values that are stored: immutable, with no field beyond those declared."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def record_file(folder: str, target: Path, draft: Path | None) -> Path:
    """Where a record of a pair lives, by the paths that a user names; it need not exist.

    Raises:
        OSError, RuntimeError, ValueError: a path that cannot be one.
    """
    paths = [path.resolve() for path in (target, draft) if path is not None]
    digest = hashlib.sha256("\0".join(map(str, paths)).encode("utf-8", "surrogateescape")).hexdigest()
    names = "+".join(re.sub(r"[^A-Za-z0-9._-]", "_", path.stem)[:60] for path in paths)
    return data_dir() / folder / f"{names}-{digest[:12]}.json"


def read_record(file: Path, kind: type[_AnyRecord]) -> _AnyRecord:
    """Read a record.

    Raises:
        OSError: it cannot be read, or is no small regular file.
        ValueError: it is none of this kind, or a value in it is out of bounds.
    """
    data = read_regular(file, _MAX_FILE_BYTES)
    try:
        return kind.model_validate_json(data, strict=True)
    except ValidationError as error:
        problem: Any = error.errors(include_url=False)[0]
        where = ".".join(map(str, problem["loc"]))
        raise ValueError(f"{where}: {problem['msg']}" if where else problem["msg"]) from None


def write_record(record: Record, file: Path) -> None:
    """Write a record; what was there before stays until the new one is complete.

    Raises:
        DiskFullError: it cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.", suffix=".part")
        part = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(record.model_dump_json(indent=1).encode())
                stream.flush()
                os.fsync(stream.fileno())
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise DiskFullError(
            f"{file} cannot be written: {error.strerror or error}.",
            hint="Free some space, or set LOCALSPEC_HOME to a folder that can be written.",
        ) from error
