"""What computes here, and how busy it is."""

from __future__ import annotations

import os
import platform
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from localspec.memory.apple import sysctl
from localspec.memory.nvidia import card_names


@dataclass(frozen=True, slots=True)
class Processors:
    """What computes here. `n_threads` counts the logical processors that this process may use."""

    cpu: str
    n_cores: int
    n_threads: int
    gpus: tuple[str, ...]


def processors() -> Processors:
    """The processors of this machine; the cards only where there is an NVIDIA driver."""
    n_threads = psutil.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        n_threads = len(os.sched_getaffinity(0))
    return Processors(_cpu_model(), psutil.cpu_count(logical=False) or n_threads, n_threads, card_names())


def busy_share(seconds: float) -> float:
    """How much of the processor is in use while this process waits for `seconds`; 1.0: all of it."""
    return float(psutil.cpu_percent(seconds)) / 100


def cpu_flags() -> frozenset[str]:
    """What an x86 processor can do, by the names of /proc/cpuinfo ("avx2", "avx512f"); empty on other systems."""
    line = _cpuinfo("flags")
    return frozenset(line.split()) if sys.platform == "linux" else frozenset()


def _cpu_model() -> str:
    """As the system calls it; only the architecture where it does not say."""
    name = ""
    if sys.platform == "linux":
        name = _cpuinfo("model name")
    elif sys.platform == "darwin":
        name = sysctl("machdep.cpu.brand_string")
    return name or platform.processor() or platform.machine()


def _cpuinfo(key: str) -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith(key):
                return line.partition(":")[2].strip()
    return ""
