"""Stored profiles: what makes one hold, what ends that, and files that are none."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localspec.bench import basis
from localspec.bench.basis import present_basis
from localspec.bench.fingerprint import LlamaBuild, file_fingerprint, llama_build
from localspec.bench.profile import (
    Comparison,
    Findings,
    Found,
    Profile,
    find_profile,
    profile_file,
)
from localspec.bench.records import read_record, write_record
from localspec.config import TunedSettings
from localspec.errors import DiskFullError
from localspec.memory.processors import processors

SETTINGS = TunedSettings(
    mode="draft",
    num_speculative_tokens=5,
    fixed_length=True,
    lookup_min_ngram=3,
    lookup_max_ngram=6,
    kv_type="f16",
    draft_kv_type="q8_0",
    threads=3,
)


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    target, draft = tmp_path / "target.gguf", tmp_path / "draft.gguf"
    target.write_bytes(b"t" * 5_000)
    draft.write_bytes(b"d" * 3_000)
    return target, draft


def make(target: Path, draft: Path | None) -> Profile:
    return Profile(
        settings=SETTINGS,
        basis=present_basis(target, draft, gpu_layers=-1, draft_gpu_layers=-1),
        findings=Findings(
            measured_at=datetime(2026, 11, 30, tzinfo=UTC),
            localspec="0.1.0",
            seconds=300.0,
            temperatures=(0.8,),
            workloads=("chat/seasons",),
            max_tokens=64,
            reason="auto mode: 1.30 x",
            comparisons=(
                Comparison(change="auto mode", verdict="kept", ratio=1.3, low=1.2, high=1.4, n_pairs=8),
                Comparison(change="1 thread", verdict="cannot be used", ratio=None, low=None, high=None, n_pairs=0),
            ),
        ),
    )


def store(target: Path, draft: Path | None, *, named: Path | None = None) -> Path:
    file = profile_file(target, named or draft)
    write_record(make(target, draft), file)
    return file


def find(target: Path, draft: Path | None, gpu_layers: int = -1, draft_gpu_layers: int = -1) -> Found:
    return find_profile(target, draft, gpu_layers=gpu_layers, draft_gpu_layers=draft_gpu_layers)


def test_what_was_written_is_found(pair: tuple[Path, Path]):
    file = store(*pair)
    assert find(*pair) == Found(make(*pair))
    assert file.name.startswith("target+draft-")
    assert [each.name for each in file.parent.iterdir()] == [file.name]


def test_another_pair_has_another_profile(pair: tuple[Path, Path], tmp_path: Path):
    target, draft = pair
    store(target, draft)
    assert find(target, None) == Found()
    other = tmp_path / "sub" / "draft.gguf"
    other.parent.mkdir()
    other.write_bytes(draft.read_bytes())
    assert find(target, other) == Found()


def test_one_file_by_two_names_is_one_pair(pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    target, draft = pair
    store(target, draft)
    (tmp_path / "link.gguf").symlink_to(target)
    assert find(tmp_path / "link.gguf", draft).profile is not None
    monkeypatch.chdir(tmp_path)
    assert find(Path("target.gguf"), Path("draft.gguf")).profile is not None


# --- stale -----------------------------------------------------------------------------------------------------------


def build(**changes: Any) -> Callable[[pytest.MonkeyPatch, Path, Path], None]:
    return lambda patch, _target, _draft: patch.setattr(basis, "llama_build", lambda: replace(llama_build(), **changes))


def machine(**changes: Any) -> Callable[[pytest.MonkeyPatch, Path, Path], None]:
    return lambda patch, _target, _draft: patch.setattr(basis, "processors", lambda: replace(processors(), **changes))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (build(version="0.3.99"), f"was made with llama-cpp-python {llama_build().version} and is ignored"),
        (build(backends=("cpu", "cuda")), f"was made with llama.cpp built for {', '.join(llama_build().backends)}"),
        (machine(cpu="Another"), "not Another"),
        (machine(n_threads=1_000), "1000 threads"),
        (machine(gpus=("NVIDIA Test",)), "NVIDIA Test"),
        (
            lambda _patch, target, _draft: target.write_bytes(b"u" * 5_000),
            "was made for another version of target.gguf",
        ),
        (lambda _patch, _target, draft: draft.write_bytes(b"d" * 3_001), "was made for another version of draft.gguf"),
        (lambda _patch, _target, draft: draft.unlink(), "draft.gguf, which cannot be read (No such file"),
    ],
)
def test_what_has_changed_is_named(
    pair: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[pytest.MonkeyPatch, Path, Path], object],
    words: str,
):
    store(*pair)
    change(monkeypatch, *pair)
    found = find(*pair)
    assert found.profile is None
    assert words in found.complaint
    assert found.complaint.startswith("The tuned profile of this pair ")
    assert found.complaint.endswith(" and is ignored; run localspec tune again.")
    assert "\n" not in found.complaint


def test_layers_on_the_gpu_are_part_of_what_was_measured(pair: tuple[Path, Path]):
    target, draft = pair
    store(target, draft)
    assert "with --gpu-layers -1 " in find(target, draft, 20).complaint
    assert "with --draft-gpu-layers -1 " in find(target, draft, -1, 20).complaint
    store(target, None)
    assert find(target, None, -1, 20).profile is not None  # there is no draft model that it could be about


def test_a_draft_that_the_profile_brings_along_is_checked_too(pair: tuple[Path, Path]):
    target, draft = pair
    store(target, None)
    write_record(make(target, draft), profile_file(target, None))
    assert find(target, None).profile is not None
    draft.write_bytes(b"x")
    assert "another version of draft.gguf" in find(target, None).complaint
    draft.unlink()
    assert "draft.gguf, which cannot be read" in find(target, None).complaint


def test_a_target_that_is_missing_is_the_loaders_to_report(pair: tuple[Path, Path]):
    store(*pair)
    pair[0].unlink()
    assert find(*pair) == Found()


# --- damaged ---------------------------------------------------------------------------------------------------------


def changed(*keys: str, to: object) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        for key in keys[:-1]:
            content = content[key]
        content[keys[-1]] = to

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (changed("format", to=2), "format"),
        (changed("settings", "mode", to="fast"), "settings.mode"),
        (changed("settings", "mode", to="auto"), "the mode is auto"),
        (changed("settings", "num_speculative_tokens", to=33), "settings.num_speculative_tokens"),
        (changed("settings", "threads", to=0), "settings.threads"),
        (changed("settings", "threads", to="3"), "settings.threads"),
        (changed("settings", "lookup_min_ngram", to=7), "lookup_min_ngram is 7"),
        (changed("settings", "lookup_max_ngram", to=17), "settings.lookup_max_ngram"),
        (changed("settings", "kv_type", to="q3"), "settings.kv_type"),
        (changed("settings", "surprise", to=1), "settings.surprise"),
        (changed("settings", to=None), "settings"),
        (changed("findings", "measured_at", to="yesterday"), "findings.measured_at"),
        (changed("findings", "reason", to="x" * 2_000), "findings.reason"),
        (changed("basis", "target", "n_bytes", to="many"), "basis.target.n_bytes"),
        (lambda content: content.pop("basis"), "basis"),
    ],
)
def test_values_out_of_bounds_are_ignored_with_the_name_of_the_key(
    pair: tuple[Path, Path], change: Callable[[dict[str, Any]], None], words: str
):
    file = store(*pair)
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
    found = find(*pair)
    assert found.profile is None
    assert words in found.complaint
    assert found.complaint.startswith(f"The tuned profile {file} is damaged (")
    assert found.complaint.endswith("run localspec tune again.")


@pytest.mark.parametrize("raw", [b"", b"{", b"null", b"[]", b"\xff\xfe", b"[" * 100_000, b"x" * (2 << 20), b"\0" * 100])
def test_files_that_are_no_profile(pair: tuple[Path, Path], raw: bytes):
    file = store(*pair)
    file.write_bytes(raw)
    found = find(*pair)
    assert found.profile is None
    assert "is damaged" in found.complaint or "cannot be read (it is larger than" in found.complaint
    assert len(found.complaint) < 500


def test_what_a_file_says_cannot_steer_a_terminal_nor_flood_it(pair: tuple[Path, Path]):
    file = store(*pair)
    content = json.loads(file.read_text())
    content["basis"]["build"]["version"] = "\x1b[2J\n" * 1_000
    file.write_text(json.dumps(content))
    complaint = find(*pair).complaint
    assert not {"\x1b", "\n"} & set(complaint)
    assert len(complaint) < 500


@given(position=st.integers(0, 2_000), byte=st.integers(0, 255))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_byte_may_be_wrong(pair: tuple[Path, Path], position: int, byte: int):
    file = store(*pair)
    data = bytearray(file.read_bytes())
    data[position % len(data)] = byte
    file.write_bytes(data)
    found = find(*pair)
    assert found.profile is None or not found.complaint
    if found.profile is not None:
        used = found.profile.settings
        assert used.fixed_length is False or used.mode != "auto"
        assert used.lookup_min_ngram <= used.lookup_max_ngram


@pytest.mark.parametrize("kind", ["folder", "pipe", "loop"])
def test_what_is_no_file_is_no_profile(pair: tuple[Path, Path], kind: str):
    file = profile_file(*pair)
    file.parent.mkdir(parents=True)
    if kind == "folder":
        file.mkdir()
    elif kind == "pipe":
        os.mkfifo(file)
    else:
        file.symlink_to(file)
    assert find(*pair) == Found()


@pytest.mark.parametrize("home", ["~no-such-user-here/x", "/dev/null/x", "x" * 300])
def test_a_home_that_cannot_be_used_holds_no_profiles(
    pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, home: str
):
    monkeypatch.setenv("LOCALSPEC_HOME", home)
    assert find(*pair) == Found()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_profile_that_may_not_be_read_is_told(pair: tuple[Path, Path]):
    store(*pair).chmod(0)
    assert "cannot be read (Permission denied) and is ignored" in find(*pair).complaint


def test_paths_that_cannot_be_paths(pair: tuple[Path, Path]):
    assert find(Path("a\0b"), None).profile is None
    assert find(pair[0], Path("a\0b")).profile is None


# --- writing ---------------------------------------------------------------------------------------------------------


def test_a_write_that_fails_leaves_the_old_profile(pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch):
    file = store(*pair)
    before = file.read_bytes()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(DiskFullError, match="No space left") as caught:
        write_record(make(*pair), file)
    assert str(file) in caught.value.message
    assert caught.value.hint
    assert file.read_bytes() == before
    assert [each.name for each in file.parent.iterdir()] == [file.name]


def test_a_folder_that_cannot_be_made(pair: tuple[Path, Path], tmp_path: Path):
    (tmp_path / "home").write_text("a file")
    with pytest.raises(DiskFullError, match="cannot be written"):
        write_record(make(*pair), profile_file(*pair))


def test_a_round_trip_through_the_file_changes_nothing(pair: tuple[Path, Path]):
    assert read_record(store(*pair), Profile) == make(*pair)


# --- fingerprints ----------------------------------------------------------------------------------------------------

BLOCK, N_BLOCKS = 1 << 18, 17


@pytest.mark.parametrize("n_bytes", [1, 1_000, N_BLOCKS * BLOCK, N_BLOCKS * BLOCK + 1, 8_000_000])
def test_a_file_is_told_from_its_versions(tmp_path: Path, n_bytes: int):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"a" * n_bytes)
    whole = file_fingerprint(path)
    assert whole == file_fingerprint(path)
    assert whole.n_bytes == n_bytes
    # The head, the tail, and the middle block; a small file is read in full.
    positions = {0, n_bytes - 1, (n_bytes - BLOCK) // 2 if n_bytes > N_BLOCKS * BLOCK else n_bytes // 2}
    for position in positions:
        with path.open("r+b") as file:
            file.seek(position)
            file.write(b"b")
        assert file_fingerprint(path).sha256 != whole.sha256
        path.write_bytes(b"a" * n_bytes)
    path.write_bytes(b"a" * (n_bytes - 1))
    assert file_fingerprint(path) != whole


def test_a_large_file_takes_no_longer(tmp_path: Path):
    path = tmp_path / "model.gguf"
    with path.open("wb") as file:
        file.truncate(40 << 30)  # a hole: it takes no space
    began = time.perf_counter()
    assert file_fingerprint(path).n_bytes == 40 << 30
    assert time.perf_counter() - began < 2


@pytest.mark.parametrize("kind", ["pipe", "endless"])
def test_a_draft_that_is_no_regular_file_holds_nobody_up(pair: tuple[Path, Path], tmp_path: Path, kind: str):
    """A profile is untrusted: the file that it names as the draft could be a pipe, or a device without end."""
    special = Path("/dev/zero") if kind == "endless" else tmp_path / "pipe"
    if kind == "pipe":
        os.mkfifo(special)
    with pytest.raises(OSError, match="no regular file"):
        file_fingerprint(special)


def test_a_file_that_is_gone_is_an_error(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        file_fingerprint(tmp_path / "none")


def test_the_build_is_known_without_importing_it():
    import subprocess
    import sys

    code = "import sys, localspec.bench.basis as p; print(p.llama_build().backends, 'llama_cpp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == f"{llama_build().backends} False"
    assert "cpu" in llama_build().backends
    assert "base" not in llama_build().backends


@pytest.mark.parametrize(
    ("names", "backends"),
    [
        (["libggml-base.so", "libggml-cpu.so", "libggml.so", "libllama.so"], ("cpu",)),
        (["ggml-cpu-haswell.dll", "ggml-cpu-zen4.dll", "ggml-cuda.dll", "ggml-base.dll"], ("cpu", "cuda")),
        (["libggml-cpu.dylib", "libggml-metal.dylib", "libggml-blas.dylib", "ggml-vulkan.h"], ("blas", "cpu", "metal")),
    ],
)
def test_backends_are_read_off_the_libraries(
    monkeypatch: pytest.MonkeyPatch, names: list[str], backends: tuple[str, ...]
):
    import importlib.metadata

    class Package:
        version = "1.2.3"
        files = tuple(importlib.metadata.PackagePath(f"llama_cpp/lib/{name}") for name in names)

    monkeypatch.setattr(importlib.metadata, "distribution", lambda _: Package())
    assert llama_build() == LlamaBuild("1.2.3", backends)
