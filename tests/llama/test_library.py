"""The door itself: what is called through it exists, and what it tells of the build, also of broken ones."""

from __future__ import annotations

import ast
from pathlib import Path

import llama_cpp
import pytest

import localspec.llama
from localspec.errors import EngineError, ModelFileError
from localspec.llama import library
from localspec.llama.inspection import Device, inspect_build, parse_features
from localspec.llama.model import Model
from tests.tiny_models import write_tiny_model

SOURCES = sorted(Path(localspec.llama.__file__).parent.glob("*.py"))


def called_names() -> set[str]:
    """Every `llama_cpp.name` in the code of llama/."""
    found: set[str] = set()
    for source in SOURCES:
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "llama_cpp":
                found.add(node.attr)
    return found


@pytest.mark.native
def test_the_list_of_needed_calls_is_what_the_code_calls():
    needed = {name for name in called_names() if name.lower().startswith("llama_")}
    assert set(library.NEEDED_CALLS) == needed
    assert len(library.NEEDED_CALLS) == len(needed)


@pytest.mark.native
def test_a_call_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch):
    assert library.missing_calls() == ()
    monkeypatch.delattr(library.llama_cpp, "llama_sampler_copy")
    assert library.missing_calls() == ("llama_sampler_copy",)


@pytest.mark.native
def test_a_build_is_told_from_another_process():
    build = inspect_build()
    assert build.version == library.version()
    assert build.supports_gpu == library.supports_gpu()
    assert build.missing_calls == ()
    assert build.ggml_version.startswith(library.ggml_version().partition(" ")[0])
    assert build.features == parse_features(library.system_info())
    assert "CPU" in build.features
    here = library.devices()
    assert build.devices is not None
    assert here is not None
    assert [device.name for device in build.devices] == [device.name for device in here]
    (cpu,) = [device for device in build.devices if device.kind == "cpu"]
    assert cpu.total_bytes > 2**28
    assert isinstance(cpu, Device)


@pytest.mark.native
def test_a_library_that_does_not_tell_its_devices(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(library, "_ggml_libraries", tuple)
    assert library.devices() is None
    assert library.ggml_version() == ""


class TestBroken:
    """Each is a package of that name that comes first on the path of the other process."""

    def message(self, monkeypatch: pytest.MonkeyPatch, folder: Path, code: str, timeout_s: float = 60.0) -> str:
        (folder / "llama_cpp").mkdir()
        (folder / "llama_cpp" / "__init__.py").write_text(code)
        monkeypatch.setenv("PYTHONPATH", str(folder))
        with pytest.raises(EngineError) as caught:
            inspect_build(timeout_s)
        assert "\n" not in caught.value.message
        return caught.value.message

    def test_one_that_lacks_a_library(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        code = "raise RuntimeError('libcudart.so.12: cannot open shared object file')"
        assert "libcudart.so.12" in self.message(monkeypatch, tmp_path, code)

    def test_one_that_aborts(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        assert "signal 6" in self.message(monkeypatch, tmp_path, "import os; os.abort()")

    def test_one_that_hangs(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        assert "within 1 s" in self.message(monkeypatch, tmp_path, "import time; time.sleep(300)", 1.0)

    def test_one_that_talks_to_the_terminal(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        code = "import sys; sys.stderr.write('\\x1b[2J bad \\x00'); sys.exit(3)"
        message = self.message(monkeypatch, tmp_path, code)
        assert "exit code 3" in message
        assert "\x1b" not in message

    def test_one_that_is_not_there(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        assert "No module named" in self.message(monkeypatch, tmp_path, "import no_such_module_at_all")


@pytest.mark.parametrize(
    ("text", "features"),
    [
        ("", {}),
        ("CPU : AVX2 = 1 | FMA = 1 | ", {"CPU": {"AVX2": "1", "FMA": "1"}}),
        (
            "CUDA : ARCHS = 750,890 | USE_GRAPHS = 1 | CPU : AVX2 = 1 | SVE_CNT = 32 | ",
            {"CUDA": {"ARCHS": "750,890", "USE_GRAPHS": "1"}, "CPU": {"AVX2": "1", "SVE_CNT": "32"}},
        ),
        ("Metal : EMBED_LIBRARY = 1 | CPU : ", {"Metal": {"EMBED_LIBRARY": "1"}, "CPU": {}}),
        ("nothing that anybody knows", {}),
    ],
)
def test_features_by_backend(text: str, features: dict[str, dict[str, str]]):
    assert parse_features(text) == features


@pytest.mark.native
@pytest.mark.parametrize("amx", [False, True])
def test_nothing_is_laid_out_for_amx(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, amx: bool):
    """ggml's code for it crashes when GCC has compiled it; without extra buffers nothing comes to that code."""
    given = []

    def refuse(_: bytes, params: llama_cpp.llama_model_params) -> None:
        given.append(bool(params.use_extra_bufts))

    monkeypatch.setattr(library, "uses_amx", lambda: amx)
    monkeypatch.setattr(llama_cpp, "llama_model_load_from_file", refuse)
    with pytest.raises(ModelFileError):
        Model(write_tiny_model(tmp_path / "tiny.gguf"))
    assert given == [not amx]
