"""What computes here, and what memory a process uses: psutil for the system, pynvml for NVIDIA cards."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes in use. `gpu_bytes` None: no NVIDIA GPU, or the driver does not tell."""

    host_bytes: int
    gpu_bytes: int | None


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
    return Processors(_cpu_model(), psutil.cpu_count(logical=False) or n_threads, n_threads, _gpu_names())


def busy_share(seconds: float) -> float:
    """How much of the processor is in use while this process waits for `seconds`; 1.0: all of it."""
    return float(psutil.cpu_percent(seconds)) / 100


def process_memory(pid: int) -> MemoryUse | None:
    """Memory of a process; None when it is gone. Weights that are mapped from a file count once they were read."""
    try:
        host_bytes = psutil.Process(pid).memory_info().rss
    except psutil.Error:
        return None
    return MemoryUse(host_bytes=int(host_bytes), gpu_bytes=_gpu_bytes(pid))


def available_host_bytes() -> int:
    """System memory that can be taken without swapping."""
    return int(psutil.virtual_memory().available)


def _cpu_model() -> str:
    """As the system calls it; only the architecture where it does not say."""
    with suppress(OSError, subprocess.SubprocessError):
        if sys.platform == "linux":
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
        elif sys.platform == "darwin":
            asked = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
            return subprocess.run(asked, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    return platform.processor() or platform.machine()


def _gpu_names() -> tuple[str, ...]:
    nvml = _nvml()
    if nvml is None:
        return ()
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        names = [nvml.nvmlDeviceGetName(handle) for handle in handles]
    except nvml.NVMLError:
        return ()
    return tuple(name.decode() if isinstance(name, bytes) else str(name) for name in names)


def _gpu_bytes(pid: int) -> int | None:
    nvml = _nvml()
    if nvml is None:
        return None
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        running = [each for handle in handles for each in nvml.nvmlDeviceGetComputeRunningProcesses(handle)]
    except nvml.NVMLError:
        return None
    used = [each.usedGpuMemory for each in running if each.pid == pid and each.usedGpuMemory is not None]
    return sum(used) if used else None


@functools.cache
def _nvml() -> Any | None:
    """The initialised module, or None without a driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml
