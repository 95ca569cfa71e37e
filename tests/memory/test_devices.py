"""The memory of a machine: cards that work, fail, are hidden or divided; containers; Apple silicon."""

from __future__ import annotations

import pickle
import sys
from types import SimpleNamespace

import psutil
import pytest

from localspec.memory import apple, devices
from localspec.memory.cgroups import MemoryLimit
from localspec.memory.devices import MemoryDevice, host_memory, machine
from tests.memory.conftest import Install
from tests.memory.fake_nvml import GIB, FakeCard, FakeDriver

ROME = FakeCard("NVIDIA A", "GPU-aaaa1111", 8 * GIB, 7 * GIB)
OSLO = FakeCard(b"NVIDIA B", b"GPU-bbbb2222", 24 * GIB, 20 * GIB)
BONN = FakeCard("NVIDIA A", "GPU-aaaa3333", 8 * GIB, 6 * GIB)
A = MemoryDevice("NVIDIA A", 8 * GIB, 7 * GIB)
B = MemoryDevice("NVIDIA B", 24 * GIB, 20 * GIB)
C = MemoryDevice("NVIDIA A", 8 * GIB, 6 * GIB)


@pytest.fixture(autouse=True)
def on_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "has_apple_silicon", lambda: False)


class TestHost:
    def test_this_machine_has_memory_and_not_more_than_the_system_says(self):
        here = machine()
        assert here == pickle.loads(pickle.dumps(here))
        assert 0 < here.host.free_bytes <= here.host.total_bytes <= psutil.virtual_memory().total

    @pytest.mark.skipif(sys.platform != "linux", reason="control groups are Linux's")
    def test_a_container_has_what_its_limit_leaves(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=64 * GIB, available=50 * GIB))
        monkeypatch.setattr(devices, "memory_limit", lambda: MemoryLimit(4 * GIB, 3 * GIB))
        assert host_memory() == MemoryDevice("system memory", 4 * GIB, 3 * GIB)

    @pytest.mark.skipif(sys.platform != "linux", reason="control groups are Linux's")
    def test_a_limit_above_what_there_is_changes_nothing(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=8 * GIB, available=1 * GIB))
        monkeypatch.setattr(devices, "memory_limit", lambda: MemoryLimit(2**63, 2**62))
        assert host_memory() == MemoryDevice("system memory", 8 * GIB, 1 * GIB)


class TestCards:
    def test_without_a_driver_there_are_none_and_the_note_says_so(self, install: Install):
        install(None, "The NVIDIA driver cannot be used: Driver/library version mismatch.")
        here = machine()
        assert here.gpus == ()
        assert not here.unified
        assert "version mismatch" in here.note

    def test_all_are_listed_in_the_drivers_order(self, install: Install):
        install(FakeDriver(ROME, OSLO, BONN))
        here = machine()
        assert here.gpus == (A, B, C)
        assert here.note == ""
        assert not here.unified

    def test_a_driver_without_cards_says_so(self, install: Install):
        install(FakeDriver())
        assert machine().gpus == ()
        assert "no card" in machine().note

    @pytest.mark.parametrize(
        "call", ["nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetMemoryInfo"]
    )
    def test_one_that_fails_at_any_call_costs_no_other(self, install: Install, call: str):
        broken = FakeCard("NVIDIA X", "GPU-cccc", fails=frozenset({call}))
        install(FakeDriver(ROME, broken, OSLO))
        here = machine()
        assert here.gpus == (A, B)
        assert here.note == "NVIDIA card 1 cannot be used: GPU is lost."

    def test_a_driver_that_cannot_count_is_told(self, install: Install):
        install(FakeDriver(ROME, fails=frozenset({"nvmlDeviceGetCount"})))
        assert machine().gpus == ()
        assert "GPU is lost" in machine().note

    def test_an_integrated_card_shares_the_systems_memory(self, install: Install):
        install(FakeDriver(FakeCard("NVIDIA GB10", integrated=True)))
        here = machine()
        assert here.unified
        assert here.gpus[0].name == "NVIDIA GB10"
        assert here.gpus[0].total_bytes == here.host.total_bytes


class TestVisibleDevices:
    @pytest.mark.parametrize(
        ("variable", "gpus", "word"),
        [
            ("0,1,2", (A, B, C), ""),
            ("2,0", (C, A), ""),
            (" 1 , 0 ", (B, A), ""),
            ("GPU-bbbb2222", (B,), ""),
            ("GPU-bb,GPU-aaaa3", (B, C), ""),
            ("1,GPU-aaaa1111", (B, A), ""),
            ("", (), "hides all"),
            ("-1", (), "hides the cards"),
            ("0,-1,1", (A,), "hides the cards"),
            ("1,7,0", (B,), "'7' names no card"),
            ("GPU-aaaa", (), "names no card"),  # the beginning of two
            ("GPU-ffff", (), "names no card"),
            ("0,0", (), "twice"),
            ("2,GPU-aaaa3333", (), "twice"),
            ("none", (), "names no card"),
            ("0x1", (), "names no card"),
        ],
    )
    def test_as_cuda_reads_it(
        self,
        install: Install,
        monkeypatch: pytest.MonkeyPatch,
        variable: str,
        gpus: tuple[MemoryDevice, ...],
        word: str,
    ):
        install(FakeDriver(ROME, OSLO, BONN))
        monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
        here = machine()
        assert here.gpus == gpus
        assert word in here.note
        assert bool(word) == bool(here.note)

    def test_a_hidden_card_that_fails_is_nobodys_business(self, install: Install, monkeypatch: pytest.MonkeyPatch):
        install(FakeDriver(ROME, FakeCard(fails=frozenset({"nvmlDeviceGetName"}))))
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
        assert machine().gpus == (A,)
        assert machine().note == ""

    def test_numbers_of_unlike_cards_come_with_a_warning(self, install: Install, monkeypatch: pytest.MonkeyPatch):
        install(FakeDriver(ROME, OSLO))
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
        assert machine().gpus == (B,)
        assert "CUDA_DEVICE_ORDER" in machine().note
        install(FakeDriver(ROME, BONN))
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
        assert machine().note == ""


class TestDivided:
    """Multi-instance GPUs: a process computes on one instance, whatever else there is."""

    SMALL = FakeCard("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "MIG-1111", 5 * GIB, 4 * GIB)
    LARGE = FakeCard("NVIDIA A100-SXM4-40GB MIG 3g.20gb", "MIG-2222", 20 * GIB, 19 * GIB)
    CARD = FakeCard("NVIDIA A100-SXM4-40GB", "GPU-dddd", 40 * GIB, 39 * GIB, instances=[None, SMALL, LARGE])

    def test_the_first_instance_counts_and_the_rest_is_told(self, install: Install):
        install(FakeDriver(self.CARD, ROME))
        here = machine()
        assert here.gpus == (MemoryDevice(str(self.SMALL.name), 5 * GIB, 4 * GIB),)
        assert "one instance" in here.note

    def test_another_is_chosen_by_its_uuid(self, install: Install, monkeypatch: pytest.MonkeyPatch):
        install(FakeDriver(self.CARD))
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-2222")
        here = machine()
        assert [gpu.total_bytes for gpu in here.gpus] == [20 * GIB]
        assert here.note == ""

    def test_a_card_without_instances_leaves_the_others(self, install: Install):
        bare = FakeCard("NVIDIA A100", "GPU-eeee", instances=[None, None])
        install(FakeDriver(bare, ROME))
        here = machine()
        assert here.gpus == (A,)
        assert "no instance" in here.note


class TestAppleSilicon:
    @pytest.fixture
    def mac(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
        values = {"machdep.cpu.brand_string": "Apple M3 Pro"}
        monkeypatch.setattr(devices, "has_apple_silicon", lambda: True)
        monkeypatch.setattr(devices, "sysctl", lambda name: values.get(name, ""))
        monkeypatch.setattr(apple, "sysctl", lambda name: values.get(name, ""))
        return values

    def test_the_card_takes_from_the_systems_memory(self, mac: dict[str, str], monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(devices, "host_memory", lambda: MemoryDevice("system memory", 36 * GIB, 20 * GIB))
        here = machine()
        assert here.unified
        assert here.gpus == (MemoryDevice("Apple M3 Pro", 27 * GIB, 20 * GIB),)
        assert here.note == ""

    @pytest.mark.parametrize(
        ("total_gib", "mib"), [(8, 5461), (16, 10922), (24, 16384), (32, 21845), (36, 27648), (64, 49152)]
    )
    def test_metal_gets_two_thirds_of_a_small_memory_and_three_quarters_of_a_large_one(
        self, mac: dict[str, str], total_gib: int, mib: int
    ):
        """Figures as llama.cpp prints them on such machines."""
        assert apple.metal_bytes(total_gib * GIB) // 2**20 == mib

    @pytest.mark.parametrize("name", ["iogpu.wired_limit_mb", "debug.iogpu.wired_limit_mb"])
    def test_a_limit_that_the_user_has_set_counts(self, mac: dict[str, str], name: str):
        mac[name] = "14000"
        assert apple.metal_bytes(16 * GIB) == 14_000 * 2**20
        mac[name] = "999999"
        assert apple.metal_bytes(16 * GIB) == 16 * GIB
        mac[name] = "0"
        assert apple.metal_bytes(16 * GIB) == 16 * GIB * 2 // 3
        mac[name] = "no such thing"
        assert apple.metal_bytes(16 * GIB) == 16 * GIB * 2 // 3

    def test_a_system_value_that_cannot_be_asked_for_is_empty(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(apple.subprocess, "run", _raise_missing)
        assert apple.sysctl("machdep.cpu.brand_string") == ""


def _raise_missing(*_: object, **__: object) -> None:
    raise FileNotFoundError("/usr/sbin/sysctl")
