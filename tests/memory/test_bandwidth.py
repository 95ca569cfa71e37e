"""Bandwidth: measured on the memory of this machine, computed and looked up for NVIDIA cards."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from localspec.memory import bandwidth
from localspec.memory.bandwidth import gpu_bandwidths, measured_host_bandwidth, most_tokens_per_s
from localspec.memory.devices import MemoryDevice, machine
from tests.memory.conftest import Install
from tests.memory.fake_nvml import GIB, FakeCard, FakeDriver

MIB = 2**20


class TestMeasured:
    def test_it_is_that_of_a_memory_and_not_of_a_cache(self):
        """Between a slow single channel and the fastest server there is; a cache would be far above it."""
        started = time.perf_counter()
        measured = measured_host_bandwidth()
        assert 1e9 < measured < 2e12
        assert time.perf_counter() - started < 20  # generous: it stops by itself after 0.7 s on a free machine

    def test_the_buffer_outgrows_the_caches_within_bounds(self, monkeypatch: pytest.MonkeyPatch):
        def buffer_mib(cache_mib: int, free_mib: int = 64 * 1024) -> int:
            monkeypatch.setattr(bandwidth, "_cache_bytes", lambda: cache_mib * MIB)
            monkeypatch.setattr(bandwidth, "host_memory", lambda: MemoryDevice("", 2**40, free_mib * MIB))
            return bandwidth._buffer_bytes() // MIB

        assert buffer_mib(0) == 256
        assert buffer_mib(32) == 256
        assert buffer_mib(128) == 512
        assert buffer_mib(1152) == 1024
        assert buffer_mib(128, free_mib=800) == 200

    def test_every_byte_of_a_small_buffer_is_read_too(self):
        assert measured_host_bandwidth(8 * MIB) > 1e9

    def test_last_level_caches_count_once_each(self, tmp_path: Path):
        for cpu in range(4):
            for index, (level, size, shared) in enumerate(
                [
                    ("1", "32K", str(cpu)),
                    ("1", "32K", str(cpu)),
                    ("2", "512K", str(cpu)),
                    ("3", "16384K", "01"[cpu > 1]),
                ]
            ):
                folder = tmp_path / f"cpu{cpu}" / "cache" / f"index{index}"
                folder.mkdir(parents=True)
                for name, text in (("level", level), ("size", size), ("shared_cpu_list", shared)):
                    (folder / name).write_text(f"{text}\n")
        assert bandwidth._cache_bytes(tmp_path) == 2 * 16 * MIB
        assert bandwidth._cache_bytes(tmp_path / "nothing") == 0
        (tmp_path / "cpu0/cache/index3/size").write_text("unknown\n")
        assert bandwidth._cache_bytes(tmp_path) > 0


class TestNominal:
    @pytest.mark.parametrize(
        ("clock_mhz", "bus_bits", "gb_s"),
        [(10501, 384, 1008), (9751, 384, 936), (14001, 512, 1792), (5001, 256, 320), (2619, 5120, 3352)],
    )
    def test_clock_times_width_is_what_the_maker_states(
        self, install: Install, clock_mhz: int, bus_bits: int, gb_s: int
    ):
        """RTX 4090, RTX 3090, RTX 5090, T4, H100: GDDR6X, GDDR7, GDDR6 and HBM3 alike."""
        install(FakeDriver(FakeCard("a card that no table has", clock_mhz=clock_mhz, bus_bits=bus_bits)))
        (found,) = gpu_bandwidths()
        assert found == pytest.approx(gb_s * 1e9, rel=0.002)

    @pytest.mark.parametrize("fails", ["nvmlDeviceGetMemoryBusWidth", "nvmlDeviceGetMaxClockInfo"])
    def test_what_the_driver_does_not_tell_is_looked_up(self, install: Install, fails: str):
        names = ("NVIDIA GeForce RTX 4090", "NVIDIA Something New")
        cards = [FakeCard(name, f"GPU-{n}", fails=frozenset({fails})) for n, name in enumerate(names)]
        install(FakeDriver(*cards))
        assert gpu_bandwidths() == (1008e9, None)

    def test_they_belong_to_the_cards_of_the_machine(self, install: Install, monkeypatch: pytest.MonkeyPatch):
        install(
            FakeDriver(
                FakeCard("A", "GPU-1"),
                FakeCard(fails=frozenset({"nvmlDeviceGetName"})),
                FakeCard("B", "GPU-2", bus_bits=128),
            )
        )
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0,1")
        assert [gpu.name for gpu in machine().gpus] == ["B", "A"]
        slow, fast = gpu_bandwidths()
        assert slow is not None
        assert fast is not None
        assert fast == 3 * slow

    def test_a_part_of_a_divided_card_has_an_unknown_part_of_it(self, install: Install):
        part = FakeCard("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "MIG-1", 5 * GIB, 5 * GIB)
        install(FakeDriver(FakeCard("NVIDIA A100-SXM4-40GB", "GPU-1", instances=[part])))
        assert gpu_bandwidths() == (None,)

    def test_no_card_no_bandwidth(self, install: Install):
        install(None)
        assert gpu_bandwidths() == ()


def test_a_model_of_half_the_bandwidth_gives_two_tokens_a_second():
    assert most_tokens_per_s(10**10, 20e9) == 2.0
    assert most_tokens_per_s(0, 20e9) > 0
