"""The stored result of `localspec tune`: one file per pair, which holds only as long as nothing it rests on changes.

A profile is untrusted input, like a configuration file: it is read with bounds, checked against the files, the machine
and the build, and ignored with a word where it does not fit.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from localspec.bench.fingerprint import FileFingerprint, LlamaBuild, file_fingerprint, llama_build
from localspec.config import TunedSettings
from localspec.errors import DiskFullError
from localspec.memory.devices import Processors, processors
from localspec.paths import data_dir
from localspec.printable import printable

_MAX_FILE_BYTES: Final = 1 << 20

_Text = Annotated[str, Field(max_length=1_000)]
_Ratio = Annotated[float, Field(gt=0)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Basis(_Part):
    """What the measurements rest on. `draft_path` is the file that drafts: not always one that the user named."""

    target: FileFingerprint
    draft: FileFingerprint | None
    draft_path: Path | None
    gpu_layers: int
    draft_gpu_layers: int
    processors: Processors
    build: LlamaBuild


class Comparison(_Part):
    """One comparison of the search: how many times as fast `change` was as what stood before, and what came of it.

    `low` and `high` bound the ratio; all three are None where nothing could be measured.
    """

    change: _Text
    verdict: _Text
    ratio: _Ratio | None
    low: _Ratio | None
    high: _Ratio | None
    n_pairs: Annotated[int, Field(ge=0)]
    note: _Text = ""


class Findings(_Part):
    """What was measured, when, and on what."""

    measured_at: AwareDatetime
    localspec: _Text
    seconds: Annotated[float, Field(ge=0)]
    temperatures: tuple[float, ...]
    workloads: tuple[_Text, ...]
    max_tokens: Annotated[int, Field(ge=1)]
    reason: _Text
    comparisons: Annotated[tuple[Comparison, ...], Field(max_length=1_000)]


class Profile(_Part):
    """The best settings found for a pair on this machine, and why they are thought to be."""

    format: Literal[1] = 1
    settings: TunedSettings
    basis: Basis
    findings: Findings


@dataclass(frozen=True, slots=True)
class Found:
    """What there is for a pair: a profile that holds, or why the one there is does not, or neither."""

    profile: Profile | None = None
    complaint: str = ""


def profile_file(target: Path, draft: Path | None) -> Path:
    """Where the profile of a pair lives, by the paths that a user names; it need not exist.

    Raises:
        OSError, RuntimeError, ValueError: a path that cannot be one.
    """
    paths = [path.resolve() for path in (target, draft) if path is not None]
    digest = hashlib.sha256("\0".join(map(str, paths)).encode("utf-8", "surrogateescape")).hexdigest()
    names = "+".join(re.sub(r"[^A-Za-z0-9._-]", "_", path.stem)[:60] for path in paths)
    return data_dir() / "profiles" / f"{names}-{digest[:12]}.json"


def find_profile(target: Path, draft: Path | None, *, gpu_layers: int, draft_gpu_layers: int) -> Found:
    """The profile of a pair as the user names it. Never raises: without a usable profile there are the defaults."""
    try:
        file = profile_file(target, draft)
        # A target that is missing is the loader's to report; the demo's is written when it is loaded.
        if not file.is_file() or not target.is_file():
            return Found()
    except (OSError, RuntimeError, ValueError):
        return Found()
    try:
        profile = read_profile(file)
        problem = _change(profile.basis, target, draft, gpu_layers, draft_gpu_layers)
    except OSError as error:
        return _ignored(f"The tuned profile {file} cannot be read ({error.strerror or error})")
    except ValueError as error:
        return _ignored(f"The tuned profile {file} is damaged ({error})")
    return _ignored(f"The tuned profile of this pair {problem}") if problem else Found(profile)


def _ignored(why: str) -> Found:
    """Parts of `why` come from the file: they may be long, or steer a terminal."""
    return Found(
        complaint=f"{shorten(printable(why), 300, placeholder=' ...')} and is ignored; run localspec tune again."
    )


def read_profile(file: Path) -> Profile:
    """Read a profile.

    Raises:
        OSError: it cannot be read.
        ValueError: it is none, or a value in it is out of bounds.
    """
    with file.open("rb") as stream:
        data = stream.read(_MAX_FILE_BYTES + 1)
    if len(data) > _MAX_FILE_BYTES:
        raise ValueError(f"it is larger than {_MAX_FILE_BYTES} bytes")
    try:
        return Profile.model_validate_json(data, strict=True)
    except ValidationError as error:
        problem: Any = error.errors(include_url=False)[0]
        where = ".".join(map(str, problem["loc"]))
        raise ValueError(f"{where}: {problem['msg']}" if where else problem["msg"]) from None


def write_profile(profile: Profile, file: Path) -> None:
    """Write a profile; what was there before stays until the new one is complete.

    Raises:
        DiskFullError: it cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.", suffix=".part")
        part = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(profile.model_dump_json(indent=1).encode())
                stream.flush()
                os.fsync(stream.fileno())
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise DiskFullError(
            f"The profile {file} cannot be written: {error.strerror or error}.",
            hint="Free some space, or set LOCALSPEC_HOME to a folder that can be written.",
        ) from error


def present_basis(target: Path, draft: Path | None, *, gpu_layers: int, draft_gpu_layers: int) -> Basis:
    """What a measurement that is made now rests on.

    Raises:
        OSError: a file cannot be read.
    """
    return Basis(
        target=file_fingerprint(target),
        draft=None if draft is None else file_fingerprint(draft),
        draft_path=None if draft is None else draft.resolve(),
        gpu_layers=gpu_layers,
        draft_gpu_layers=draft_gpu_layers,
        processors=processors(),
        build=llama_build(),
    )


def _change(then: Basis, target: Path, draft: Path | None, gpu_layers: int, draft_gpu_layers: int) -> str:
    """The first thing that is not as it was, in words that follow "the profile"; "" where all is."""
    build, here = llama_build(), processors()
    if then.build.version != build.version:
        return f"was made with llama-cpp-python {then.build.version}"
    if then.build.backends != build.backends:
        return f"was made with llama.cpp built for {', '.join(then.build.backends) or 'nothing known'}"
    if then.processors != here:
        return f"was made on {_described(then.processors)}, not {_described(here)},"
    if then.gpu_layers != gpu_layers:
        return f"was made with --gpu-layers {then.gpu_layers}"
    if then.draft is not None and then.draft_gpu_layers != draft_gpu_layers:
        return f"was made with --draft-gpu-layers {then.draft_gpu_layers}"
    return _changed_file(then.target, target) or _changed_file(then.draft, draft or then.draft_path)


def _changed_file(then: FileFingerprint | None, path: Path | None) -> str:
    if then is None or path is None:
        return ""
    try:
        is_same = file_fingerprint(path) == then
    except OSError as error:
        return f"needs {path}, which cannot be read ({error.strerror or error}),"
    return "" if is_same else f"was made for another version of {path.name}"


def _described(machine: Processors) -> str:
    return ", ".join([f"{machine.cpu} with {machine.n_threads} threads", *machine.gpus])
