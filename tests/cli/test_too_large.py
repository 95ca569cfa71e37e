"""The word before a download that this machine can never hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localspec.cli.fetching import Wanted
from localspec.cli.too_large import warn_if_too_large
from localspec.errors import HubUnreachableError
from localspec.hub.client import RemoteFile, RemoteHeader, RemoteModel
from localspec.memory import devices
from localspec.memory.devices import Machine, MemoryDevice
from localspec.models.gguf import read_header
from tests.memory.shape_models import dense
from tests.memory.shapes import write_shape

GIB = 1 << 30


class ScriptedHub:
    """Has the header of one model, or fails."""

    def __init__(self, header: Any) -> None:
        self.found = header
        self.n_asked = 0

    def header(self, _: RemoteModel) -> RemoteHeader:
        self.n_asked += 1
        if self.found is None:
            raise HubUnreachableError("Nobody there.")
        return RemoteHeader(self.found, 1)


@pytest.fixture(scope="module")
def header(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """7.1 GiB of weights, and 7 GiB of F16 cache for 8192 tokens: heads without groups."""
    shape = dense("llama", 56, 4096, 32, 32, 128, 4096, 3000, 32768)
    return read_header(write_shape(tmp_path_factory.mktemp("models") / "m.gguf", shape, "q8_0", tokens=True))


def warned(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], hub: ScriptedHub, n_bytes: int, gib: float
) -> str:
    """On a machine with so much memory, of which another program has nearly all."""
    host = MemoryDevice("system memory", int(gib * GIB), GIB // 8)
    monkeypatch.setattr(devices, "machine", lambda: Machine(host, (), unified=False, note=""))
    model = RemoteModel("o/r", "c" * 40, "Q8_0", (RemoteFile("m-Q8_0.gguf", n_bytes, "a" * 64),))
    warn_if_too_large(hub, Wanted("o/r:Q8_0\x1b[2J", model))  # type: ignore[arg-type]
    said = capsys.readouterr()
    assert said.out == ""
    return said.err


def test_its_header_decides_and_both_sizes_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], header: Any
) -> None:
    hub = ScriptedHub(header)
    said = warned(monkeypatch, capsys, hub, header.file_size, 10)
    assert said.startswith("Mind: o/r:Q8_0\N{SYMBOL FOR ESCAPE}[2J needs ")
    assert said.endswith(" GiB of memory with a context of 8,192 tokens, and this machine has 10.0 GiB.\n")
    assert hub.n_asked == 1


def test_what_another_program_takes_now_does_not_count(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], header: Any
) -> None:
    assert warned(monkeypatch, capsys, ScriptedHub(header), header.file_size, 14) == ""


def test_what_is_small_is_not_looked_at(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], header: Any
) -> None:
    hub = ScriptedHub(header)
    assert warned(monkeypatch, capsys, hub, header.file_size, 64) == ""
    assert hub.n_asked == 0


def test_without_a_header_the_size_decides(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], header: Any
) -> None:
    for found in (None, replace(header, tensors=()), replace(header, metadata={"general.architecture": "clip"})):
        assert "needs" in warned(monkeypatch, capsys, ScriptedHub(found), 40 * GIB, 16)
        assert warned(monkeypatch, capsys, ScriptedHub(found), 9 * GIB, 16) == ""


def test_a_file_that_is_here_needs_no_word(capsys: pytest.CaptureFixture[str]) -> None:
    warn_if_too_large(ScriptedHub(None), Wanted("m.gguf", None, Path("m.gguf")))  # type: ignore[arg-type]
    assert capsys.readouterr().err == ""
