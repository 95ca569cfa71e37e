"""What memory a process uses: psutil for the system, pynvml for NVIDIA cards."""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from localspec.memory.nvidia import process_bytes


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
    return MemoryUse(host_bytes=int(host_bytes), gpu_bytes=process_bytes(pid))
