"""What processes take, of this machine and of cards on paper."""

from __future__ import annotations

import os

import pytest

from localspec.memory import nvidia
from localspec.memory.nvidia import driver_versions
from localspec.memory.usage import process_memory
from tests.memory.conftest import Install
from tests.memory.fake_nvml import FakeCard, FakeDriver

HERE = os.getpid()


def test_this_process_takes_memory(install: Install):
    install(None)
    use = process_memory(HERE)
    assert use is not None
    assert use.host_bytes > 1_000_000
    assert use.gpu_bytes is None


def test_a_process_that_is_gone_takes_none():
    assert process_memory(2**22 + 1) is None


@pytest.mark.parametrize(
    ("cards", "expected"),
    [
        ([FakeCard(processes={HERE: 5}), FakeCard(processes={HERE: 7, 1: 100})], 12),
        ([FakeCard(processes={1: 100})], None),
        ([FakeCard(processes={HERE: None})], None),  # Windows does not tell
        ([FakeCard(processes={HERE: 5}, fails=frozenset({"nvmlDeviceGetComputeRunningProcesses"}))], None),
    ],
)
def test_all_cards_count(install: Install, cards: list[FakeCard], expected: int | None):
    install(FakeDriver(*cards))
    use = process_memory(HERE)
    assert use is not None
    assert use.gpu_bytes == expected


def test_versions_of_the_driver_and_of_cuda(install: Install):
    install(FakeDriver())
    assert driver_versions() == ("580.95.05", "13.0")
    install(FakeDriver(fails=frozenset({"nvmlSystemGetDriverVersion"})))
    assert driver_versions() is None
    install(None)
    assert driver_versions() is None


class TestStart:
    """A driver that is not there is nothing special; one that does not work is worth a word."""

    @pytest.mark.parametrize(
        ("error", "word"),
        [
            ("NVMLError_LibraryNotFound", "no NVIDIA driver"),
            ("NVMLError_DriverNotLoaded", "no NVIDIA driver"),
            ("NVMLError_LibRmVersionMismatch", "cannot be used"),
            ("NVMLError_Unknown", "cannot be used"),
        ],
    )
    def test_it_is_told_apart(self, monkeypatch: pytest.MonkeyPatch, error: str, word: str):
        import pynvml

        def fail() -> None:
            raise getattr(pynvml, error)()

        monkeypatch.setattr(pynvml, "nvmlInit", fail)
        nvidia._started.cache_clear()
        try:
            assert nvidia.nvml() is None
            assert word in nvidia.lack()
        finally:
            nvidia._started.cache_clear()

    def test_a_driver_that_starts_has_no_lack(self, monkeypatch: pytest.MonkeyPatch):
        import pynvml

        monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
        nvidia._started.cache_clear()
        try:
            assert nvidia.nvml() is pynvml
            assert nvidia.lack() == ""
        finally:
            nvidia._started.cache_clear()
