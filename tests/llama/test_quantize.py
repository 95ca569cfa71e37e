"""Writing a model out as F32: whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from localspec.errors import DiskFullError, LoadCancelledError, LocalspecError, ModelFileError
from localspec.llama.model import Model
from localspec.llama.quantize import write_unpacked
from localspec.models.gguf import read_header
from tests.native_fixtures import TinyModels

pytestmark = pytest.mark.native


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_file_is_a_model_of_f32_tensors(tiny_models: TinyModels, tmp_path: Path):
    seen: list[float] = []
    destination = tmp_path / "deep" / "folder" / "out.gguf"
    write_unpacked(tiny_models.target, destination, lambda fraction: seen.append(fraction) is None)
    assert {tensor.type_name for tensor in read_header(destination).tensors} == {"f32"}
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    assert files_in(destination.parent) == ["out.gguf"]
    with Model(destination) as model:
        assert model.n_vocab == 259


def test_a_cancel_leaves_nothing(tiny_models: TinyModels, tmp_path: Path):
    with pytest.raises(LoadCancelledError):
        write_unpacked(tiny_models.target, tmp_path / "out.gguf", lambda fraction: fraction < 0.5)
    assert files_in(tmp_path) == []


def test_a_source_that_is_no_model(tmp_path: Path):
    (tmp_path / "in.gguf").write_bytes(b"nothing")
    with pytest.raises(ModelFileError):
        write_unpacked(tmp_path / "in.gguf", tmp_path / "out.gguf", lambda _: True)
    assert files_in(tmp_path) == ["in.gguf"]


def test_too_little_space_is_noticed_before_writing(
    tiny_models: TinyModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000})())
    with pytest.raises(DiskFullError, match="MB free"):
        write_unpacked(tiny_models.target, tmp_path / "out.gguf", lambda _: True)
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("limit", [0, 1_000, 50_000, 140_000])
def test_a_disk_that_fills_while_writing_leaves_nothing(tiny_models: TinyModels, tmp_path: Path, limit: int):
    """A real short write: the process may not write files longer than `limit`."""
    script = textwrap.dedent(f"""
        import resource
        from pathlib import Path
        from localspec.errors import LocalspecError
        from localspec.llama import library
        from localspec.llama.quantize import write_unpacked
        library.ensure_ready()
        resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
        try:
            write_unpacked(Path({str(tiny_models.target)!r}), Path({str(tmp_path / "out.gguf")!r}), lambda _: True)
        except LocalspecError as error:
            print(type(error).__name__)
    """)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60, check=True)
    assert done.stdout.decode().strip() == "DiskFullError", done.stderr.decode()
    assert files_in(tmp_path) == []


def test_what_a_killed_process_left_behind_is_removed(tiny_models: TinyModels, tmp_path: Path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for name in (f".out.gguf.{gone.pid}.part", ".out.gguf.nobody.part", f".out.gguf.{os.getppid()}.part"):
        (tmp_path / name).write_bytes(b"half")
    write_unpacked(tiny_models.target, tmp_path / "out.gguf", lambda _: True)
    assert files_in(tmp_path) == [f".out.gguf.{os.getppid()}.part", "out.gguf"]  # that one is still at work


def test_a_folder_that_cannot_be_written(tiny_models: TinyModels, tmp_path: Path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(LocalspecError, match="cannot be written"):
        write_unpacked(tiny_models.target, tmp_path / "file" / "out.gguf", lambda _: True)
