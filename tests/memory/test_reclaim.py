"""What a process gives back when it ends is counted once, and never beyond what a device has."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from localspec.memory import reclaim
from localspec.memory.devices import Machine, MemoryDevice
from localspec.memory.reclaim import machine_without

MIB = 2**20
GIB = 2**30
CARDS = (MemoryDevice("first", 24 * GIB, 12 * GIB), MemoryDevice("second", 24 * GIB, 20 * GIB))
HERE = Machine(MemoryDevice("system memory", 32 * GIB, 16 * GIB), CARDS, unified=False, note="")


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reclaim, "machine", lambda: HERE)
    monkeypatch.setattr(reclaim, "process_bytes", lambda _: 8 * GIB)


def test_without_a_process_the_machine_is_as_it_is() -> None:
    assert machine_without(None) is HERE


def test_a_process_that_has_ended_gives_nothing_more_of_system_memory() -> None:
    done = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    assert machine_without(int(done.stdout)).host == HERE.host


def test_what_a_process_holds_is_added_to_what_is_free() -> None:
    code = (
        "import sys; data = bytearray(256 << 20); data[::4096] = b'x' * (len(data) // 4096); print(flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        then = machine_without(process.pid)
        process.communicate(b"\n")
    assert 256 * MIB <= then.host.free_bytes - HERE.host.free_bytes < 400 * MIB
    # 12 and 4 GiB are taken: its 8 GiB are shared out alike.
    assert [gpu.free_bytes for gpu in then.gpus] == [18 * GIB, 22 * GIB]


def test_no_device_gets_more_than_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    full = replace(HERE, host=replace(HERE.host, free_bytes=32 * GIB), gpus=(MemoryDevice("a", GIB, GIB),))
    monkeypatch.setattr(reclaim, "machine", lambda: full)
    monkeypatch.setattr(reclaim, "_private_bytes", lambda _: GIB)
    assert machine_without(1) == full


def test_where_memory_is_shared_both_get_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = replace(HERE, gpus=(MemoryDevice("a chip", 24 * GIB, 16 * GIB),), unified=True)
    monkeypatch.setattr(reclaim, "machine", lambda: shared)
    monkeypatch.setattr(reclaim, "_private_bytes", lambda _: 4 * GIB)
    then = machine_without(1)
    assert (then.host.free_bytes, then.gpus[0].free_bytes) == (20 * GIB, 20 * GIB)
