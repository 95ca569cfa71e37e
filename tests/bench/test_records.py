"""Records in a folder where anybody may put anything: what is no small regular file is skipped, never waited for."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localspec.bench.pair_speed import PairSpeed, find_pair_speed
from localspec.bench.profile import Profile, find_profile
from localspec.bench.records import read_record, record_file

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pipes and devices of POSIX")


def _pipe(file: Path) -> None:
    os.mkfifo(file)


def _link_to_pipe(file: Path) -> None:
    os.mkfifo(file.with_name("pipe"))
    file.symlink_to("pipe")


def _device(file: Path) -> None:
    file.symlink_to("/dev/zero")


def _folder(file: Path) -> None:
    file.mkdir()


def _endless(file: Path) -> None:
    with file.open("wb") as stream:
        stream.truncate(1 << 40)


@pytest.fixture(params=[_pipe, _link_to_pipe, _device, _folder, _endless])
def put(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    made: Callable[[Path], None] = request.param
    return made


@pytest.mark.parametrize(
    ("folder", "kind", "find"), [("profiles", Profile, find_profile), ("speeds", PairSpeed, find_pair_speed)]
)
def test_what_is_no_record_is_skipped(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    put: Callable[[Path], None],
    folder: str,
    kind: Any,
    find: Callable[..., Any],
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    target, draft = tmp_path / "target.gguf", tmp_path / "draft.gguf"
    target.write_bytes(b"t")
    draft.write_bytes(b"d")
    file = record_file(folder, target, draft)
    file.parent.mkdir(parents=True)
    put(file)
    with pytest.raises(OSError, match=r"directory|pipe or a device|larger than"):
        read_record(file, kind)
    found = find(target, draft, gpu_layers=-1, draft_gpu_layers=-1)
    assert (getattr(found, "profile", None), getattr(found, "speed", None)) == (None, None)
