"""Writing a quantized model out as F32: the demo pair's target is its draft's own weights, at full width."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import llama_cpp
import psutil

from localspec.errors import DiskFullError, LoadCancelledError, LocalspecError, ModelFileError
from localspec.llama import library, log
from localspec.llama.context import default_threads
from localspec.llama.model import load_error
from localspec.models.gguf import read_header

_F32_BYTES: Final = 4
# "[  12/ 272]   blk.3.ffn_up.weight - ...": how llama.cpp counts the tensors that it writes.
_TENSOR_LINE: Final = re.compile(r"\[\s*(\d+)/\s*(\d+)\]")


def write_unpacked(source: Path, destination: Path, progress: Callable[[float], bool]) -> None:
    """Write `source` as F32 to `destination`, whole or not at all.

    `progress` gets the fraction of tensors written and returns False to cancel; llama.cpp cannot stop in the middle,
    so a cancel takes effect when it is done.

    Raises:
        DiskFullError: there is no room; nothing is left behind.
        ModelFileError: llama.cpp refused the source.
        LoadCancelledError: cancelled.
    """
    library.ensure_ready()
    n_bytes = _unpacked_bytes(source)
    cancelled = False

    def on_line(_level: int, line: str) -> None:
        nonlocal cancelled
        if counted := _TENSOR_LINE.match(line):
            cancelled = not progress(int(counted[1]) / int(counted[2])) or cancelled

    with _temporary_beside(destination, n_bytes) as temporary:
        with log.captured_errors() as errors, log.observed(on_line):
            params = llama_cpp.llama_model_quantize_default_params()
            params.ftype = llama_cpp.LLAMA_FTYPE_ALL_F32
            params.allow_requantize = True
            params.nthread = default_threads()
            failed = llama_cpp.llama_model_quantize(os.fsencode(source), os.fsencode(temporary), params)
        if cancelled:
            raise LoadCancelledError(f"Writing {destination.name} was cancelled.")
        if failed:
            raise _write_error(source, destination, n_bytes, errors)
        try:
            read_header(temporary)  # llama.cpp may not notice a short write; the header knows the size
        except ModelFileError as error:
            raise _disk_full(destination, n_bytes) from error
        temporary.replace(destination)


def _unpacked_bytes(source: Path) -> int:
    """Size of the F32 file, to a few kilobytes: metadata as in the source, four bytes a weight."""
    header = read_header(source)
    return header.data_offset + sum(_F32_BYTES * tensor.n_elements for tensor in header.tensors)


@contextmanager
def _temporary_beside(destination: Path, n_bytes: int) -> Iterator[Path]:
    """A file name on the destination's disk, with room for `n_bytes`; gone after the block unless it was renamed."""
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(destination)
        if shutil.disk_usage(destination.parent).free < n_bytes:
            raise _disk_full(destination, n_bytes)
        temporary = _part_of(destination, os.getpid())
        temporary.touch()
    except OSError as error:
        raise DiskFullError(
            f"{destination} cannot be written: {error.strerror or error}.",
            hint="Set LOCALSPEC_HOME to a folder that can be written.",
        ) from error
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _part_of(destination: Path, process_id: int | str) -> Path:
    return destination.with_name(f".{destination.name}.{process_id}.part")


def _remove_abandoned(destination: Path) -> None:
    """Parts that a process left behind when it was killed in the middle of writing."""
    for part in destination.parent.glob(_part_of(destination, "*").name):
        owner = part.suffixes[-2].removeprefix(".")
        if not (owner.isdigit() and psutil.pid_exists(int(owner))):
            part.unlink(missing_ok=True)


def _write_error(source: Path, destination: Path, n_bytes: int, errors: Iterable[str]) -> LocalspecError:
    complaints = list(errors)
    # The only stream that llama.cpp writes is the output: it fails when the disk does.
    if any("iostream" in complaint for complaint in complaints):
        return _disk_full(destination, n_bytes)
    return load_error(source, complaints)


def _disk_full(destination: Path, n_bytes: int) -> DiskFullError:
    free = shutil.disk_usage(destination.parent).free
    return DiskFullError(
        f"{destination} needs {n_bytes / 1e6:.0f} MB; the disk has {free / 1e6:.0f} MB free.",
        hint="Free some space, or set LOCALSPEC_HOME to a folder on another disk.",
    )
