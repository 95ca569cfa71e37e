"""What memory a process uses: system memory by psutil, GPU memory by pynvml where there is an NVIDIA driver."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import psutil


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes in use. `gpu_bytes` None: no NVIDIA GPU, or the driver does not tell."""

    host_bytes: int
    gpu_bytes: int | None


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
