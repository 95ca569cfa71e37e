"""How fast weights can be read: measured for the system's memory, nominal for NVIDIA cards. In bytes per second.

Generating one token reads every weight that it uses once, so memory bounds the speed of a model:
tokens/s = bandwidth / (bytes of the weights that a token uses + bytes of the KV cache that it attends to).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from localspec.memory.devices import host_memory
from localspec.memory.nvidia import Card, nvml, visible_cards
from localspec.memory.processors import processors

MIB: Final = 2**20
_LEAST_BYTES: Final = 256 * MIB
_MOST_BYTES: Final = 1024 * MIB
# A buffer that is this many times as large as the caches is hardly ever found in them.
_TIMES_CACHE: Final = 4
_SHARE_OF_FREE: Final = 0.25
_BUDGET_S: Final = 0.7
_FEWEST_RUNS: Final = 3
_MOST_RUNS: Final = 15

# For drivers that do not tell the width of the bus, and for cards that have no memory of their own. GB/s, from:
# NVIDIA's Ampere GA102, Ada and Blackwell RTX architecture whitepapers (GeForce), the data sheets of each product (the
# others). Names that stand for several memories are left out.
_NOMINAL_GB_S: Final = {
    "NVIDIA GeForce RTX 3060 Ti": 448,
    "NVIDIA GeForce RTX 3070": 448,
    "NVIDIA GeForce RTX 3080 Ti": 912,
    "NVIDIA GeForce RTX 3090": 936,
    "NVIDIA GeForce RTX 3090 Ti": 1008,
    "NVIDIA GeForce RTX 4060": 272,
    "NVIDIA GeForce RTX 4060 Ti": 288,
    "NVIDIA GeForce RTX 4070 SUPER": 504,
    "NVIDIA GeForce RTX 4070 Ti": 504,
    "NVIDIA GeForce RTX 4070 Ti SUPER": 672,
    "NVIDIA GeForce RTX 4080": 717,
    "NVIDIA GeForce RTX 4080 SUPER": 736,
    "NVIDIA GeForce RTX 4090": 1008,
    "NVIDIA GeForce RTX 5070": 672,
    "NVIDIA GeForce RTX 5070 Ti": 896,
    "NVIDIA GeForce RTX 5080": 960,
    "NVIDIA GeForce RTX 5090": 1792,
    "NVIDIA RTX A6000": 768,
    "NVIDIA RTX 6000 Ada Generation": 960,
    "NVIDIA A10": 600,
    "NVIDIA A100-SXM4-40GB": 1555,
    "NVIDIA A100-SXM4-80GB": 2039,
    "NVIDIA A100 80GB PCIe": 1935,
    "NVIDIA H100 80GB HBM3": 3350,
    "NVIDIA H100 PCIe": 2000,
    "NVIDIA H200": 4800,
    "NVIDIA L4": 300,
    "NVIDIA L40S": 864,
    "NVIDIA GB10": 273,
}


def most_tokens_per_s(read_bytes: int, bandwidth: float) -> float:
    """The speed that memory allows where each token reads `read_bytes`: weights that it uses, and KV cache.

    An upper bound, rarely reached: 60 to 90 % of it is usual, less where the processor has not enough arithmetic.
    """
    return bandwidth / max(1, read_bytes)


def gpu_bandwidths() -> tuple[float | None, ...]:
    """Nominal bandwidth of each NVIDIA card in `machine().gpus`, in that order; None: not known."""
    return tuple(_nominal(card) for card in visible_cards()[0])


def _nominal(card: Card) -> float | None:
    """Memory clock * bus width * 2 (double data rate), as in NVIDIA's "deviceQuery"; instances (MIG) get a share."""
    driver = nvml()
    clock_mhz = width_bits = 0
    if driver is not None and not card.is_instance:
        with suppress(driver.NVMLError):
            clock_mhz = int(driver.nvmlDeviceGetMaxClockInfo(card.handle, driver.NVML_CLOCK_MEM))
            width_bits = int(driver.nvmlDeviceGetMemoryBusWidth(card.handle))
    if clock_mhz > 0 and width_bits > 0:
        return clock_mhz * 1e6 * 2 * width_bits / 8
    known = _NOMINAL_GB_S.get(card.name)
    return None if known is None else known * 1e9


def measured_host_bandwidth(n_bytes: int | None = None) -> float:
    """Reading speed of the system's memory with one thread per core: the median of several runs over one buffer.

    Takes under a second. `n_bytes` is the size of the buffer; None: as much as the caches of this machine ask for, at
    most 1 GiB and a quarter of what is free.

    Raises:
        MemoryError: there is no room for the buffer.
    """
    here = processors()
    n_threads = min(here.n_cores, here.n_threads)
    started = time.perf_counter()
    with ThreadPoolExecutor(n_threads) as threads:
        n_numbers = max(1, (n_bytes or _buffer_bytes()) // n_threads // 8)
        parts = list(threads.map(_filled, [n_numbers] * n_threads))
        n_read = sum(part.nbytes for part in parts)
        times: list[float] = []
        while len(times) < _FEWEST_RUNS or (time.perf_counter() - started < _BUDGET_S and len(times) < _MOST_RUNS):
            began = time.perf_counter()
            list(threads.map(_read, parts))
            times.append(time.perf_counter() - began)
    return n_read / statistics.median(times)


def _filled(n_numbers: int) -> NDArray[np.int64]:
    """Written once: pages that nobody has written are all the same page of zeros."""
    return np.ones(n_numbers, np.int64)


def _read(numbers: NDArray[np.int64]) -> None:
    """The fastest of numpy's ways to touch every byte and keep nothing, without Python's lock."""
    np.bitwise_or.reduce(numbers)


def _buffer_bytes() -> int:
    wanted = max(_LEAST_BYTES, _TIMES_CACHE * _cache_bytes())
    return int(min(wanted, _MOST_BYTES, _SHARE_OF_FREE * host_memory().free_bytes))


def _cache_bytes(cpus: Path = Path("/sys/devices/system/cpu")) -> int:
    """All last-level caches together, each counted once; 0 where the system does not tell."""
    caches: dict[tuple[str, str], int] = {}
    for folder in cpus.glob("cpu[0-9]*/cache/index[23]"):
        with suppress(OSError, ValueError):
            level, shared = _words(folder, ("level", "shared_cpu_list"))
            size = (folder / "size").read_text(encoding="ascii").strip()
            caches[level, shared] = int(size.removesuffix("K")) * 1024
    last = max((level for level, _ in caches), default="")
    return sum(size for (level, _), size in caches.items() if level == last)


def _words(folder: Path, names: Sequence[str]) -> list[str]:
    return [(folder / name).read_text(encoding="ascii").strip() for name in names]
