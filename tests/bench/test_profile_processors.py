"""What a profile is tied to of the machine: read from the system, and from an NVIDIA driver where there is one."""

from __future__ import annotations

import os
import pickle

import pytest

from localspec.memory import nvidia
from localspec.memory import processors as module
from localspec.memory.processors import processors


class Driver:
    """Two cards, as nvidia-ml-py shows them; the names may be bytes in older releases, or not be told."""

    class NVMLError(Exception):
        pass

    def __init__(self, *names: str | bytes | None) -> None:
        self.names = names

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802 - the library's name
        return len(self.names)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetName(self, handle: int) -> str | bytes:  # noqa: N802
        name = self.names[handle]
        if name is None:
            raise self.NVMLError
        return name


def test_this_machine_has_a_name_and_cores():
    here = processors()
    assert here == processors() == pickle.loads(pickle.dumps(here))
    assert here.cpu.strip() == here.cpu != ""
    assert here.n_cores >= 1
    assert 1 <= here.n_threads <= (os.cpu_count() or 1)


@pytest.mark.parametrize(
    ("driver", "gpus"),
    [(None, ()), (Driver(), ()), (Driver("NVIDIA A", b"NVIDIA B"), ("NVIDIA A", "NVIDIA B")), (Driver("A", None), ())],
)
def test_cards_are_those_that_the_driver_names(
    monkeypatch: pytest.MonkeyPatch, driver: Driver | None, gpus: tuple[str, ...]
):
    monkeypatch.setattr(nvidia, "nvml", lambda: driver)
    assert processors().gpus == gpus


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity")
def test_only_the_processors_that_may_be_used_count():
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert processors().n_threads == 1
    finally:
        os.sched_setaffinity(0, allowed)


def test_a_system_that_tells_nothing_has_at_least_its_architecture(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module.sys, "platform", "plan9")
    monkeypatch.setattr(module.platform, "processor", lambda: "")
    monkeypatch.setattr(module.platform, "machine", lambda: "mips")
    assert processors().cpu == "mips"
