"""The stored result of `localspec tune`: one file per pair, which holds only as long as nothing it rests on changes.

It is ignored with a word where it does not fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from localspec.bench.basis import Basis, change_since
from localspec.bench.records import Record, read_record, record_file
from localspec.config import TunedSettings
from localspec.printable import printable

_Text = Annotated[str, Field(max_length=1_000)]
_Ratio = Annotated[float, Field(gt=0)]


class Comparison(Record):
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


class Findings(Record):
    """What was measured, when, and on what."""

    measured_at: AwareDatetime
    localspec: _Text
    seconds: Annotated[float, Field(ge=0)]
    temperatures: tuple[float, ...]
    workloads: tuple[_Text, ...]
    max_tokens: Annotated[int, Field(ge=1)]
    reason: _Text
    comparisons: Annotated[tuple[Comparison, ...], Field(max_length=1_000)]


class Profile(Record):
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
    """Where the profile of a pair lives; it need not exist. Raises as `record_file`."""
    return record_file("profiles", target, draft)


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
        profile = read_record(file, Profile)
        problem = change_since(profile.basis, target, draft, gpu_layers=gpu_layers, draft_gpu_layers=draft_gpu_layers)
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
