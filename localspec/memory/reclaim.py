"""What there will be when the models that are loaded now have made room for others."""

from __future__ import annotations

from dataclasses import replace

import psutil

from localspec.memory.devices import Machine, MemoryDevice, machine
from localspec.memory.nvidia import process_bytes

__all__ = ["machine_without"]


def machine_without(pid: int | None) -> Machine:
    """The machine as if the process `pid` held nothing; None: as it is.

    Pages that are mapped from a file, as weights are, count as free already, so only the others are added.
    """
    now = machine()
    if pid is None:
        return now
    host = _freed(now.host, _private_bytes(pid))
    if now.unified:
        return replace(
            now, host=host, gpus=tuple(_freed(gpu, host.free_bytes - now.host.free_bytes) for gpu in now.gpus)
        )
    taken = [gpu.total_bytes - gpu.free_bytes for gpu in now.gpus]
    of_process = process_bytes(pid) or 0
    # The driver tells the sum over the cards; it is split as everything is that they hold.
    gpus = tuple(
        _freed(gpu, of_process * used // max(1, sum(taken))) for gpu, used in zip(now.gpus, taken, strict=True)
    )
    return replace(now, host=host, gpus=gpus)


def _freed(device: MemoryDevice, n_bytes: int) -> MemoryDevice:
    return replace(device, free_bytes=min(device.total_bytes, device.free_bytes + n_bytes))


def _private_bytes(pid: int) -> int:
    try:
        memory = psutil.Process(pid).memory_info()
    except psutil.Error:
        return 0
    return max(0, int(memory.rss) - int(getattr(memory, "shared", 0)))
