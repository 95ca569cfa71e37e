"""An NVIDIA driver on paper, with the names of nvidia-ml-py: cards that work, fail at some call, or are divided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

GIB = 2**30


class NVMLError(Exception):
    pass


class NotSupportedError(NVMLError):
    def __init__(self) -> None:
        super().__init__("Not Supported")


@dataclass
class FakeCard:
    """`fails` names calls that raise; `integrated`: it has no memory to tell of; `instances` divide it (MIG)."""

    name: str | bytes = "NVIDIA GeForce RTX 4090"
    uuid: str | bytes = "GPU-aaaa1111"
    total: int = 24 * GIB
    free: int = 23 * GIB
    fails: frozenset[str] = frozenset()
    integrated: bool = False
    instances: Sequence[FakeCard | None] | None = None
    clock_mhz: int = 10501
    bus_bits: int = 384
    processes: dict[int, int | None] = field(default_factory=dict)


class FakeDriver:
    """What `import pynvml` would give, after nvmlInit."""

    NVMLError = NVMLError
    NVMLError_NotSupported = NotSupportedError
    NVML_CLOCK_MEM = 2

    def __init__(self, *cards: FakeCard, fails: frozenset[str] = frozenset()) -> None:
        self.cards = cards
        self.fails = fails

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def call(*args: Any) -> Any:
            card = args[0] if args and isinstance(args[0], FakeCard) else None
            if name in self.fails or (card is not None and name in card.fails):
                raise NVMLError("GPU is lost")
            return getattr(self, f"_{name}")(*args)

        return call

    def _nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.cards)

    def _nvmlDeviceGetHandleByIndex(self, index: int) -> FakeCard:  # noqa: N802
        if "nvmlDeviceGetHandleByIndex" in self.cards[index].fails:
            raise NVMLError("GPU is lost")
        return self.cards[index]

    def _nvmlDeviceGetName(self, card: FakeCard) -> str | bytes:  # noqa: N802
        return card.name

    def _nvmlDeviceGetUUID(self, card: FakeCard) -> str | bytes:  # noqa: N802
        return card.uuid

    def _nvmlDeviceGetMemoryInfo(self, card: FakeCard) -> Any:  # noqa: N802
        if card.integrated:
            raise NotSupportedError
        return SimpleNamespace(total=card.total, free=card.free)

    def _nvmlDeviceGetMigMode(self, card: FakeCard) -> list[int]:  # noqa: N802
        if card.instances is None:
            raise NotSupportedError
        return [1, 1]

    def _nvmlDeviceGetMaxMigDeviceCount(self, card: FakeCard) -> int:  # noqa: N802
        assert card.instances is not None
        return len(card.instances)

    def _nvmlDeviceGetMigDeviceHandleByIndex(self, card: FakeCard, index: int) -> FakeCard:  # noqa: N802
        assert card.instances is not None
        instance = card.instances[index]
        if instance is None:
            raise NVMLError("Not Found")
        return instance

    def _nvmlDeviceGetMaxClockInfo(self, card: FakeCard, kind: int) -> int:  # noqa: N802
        assert kind == self.NVML_CLOCK_MEM
        return card.clock_mhz

    def _nvmlDeviceGetMemoryBusWidth(self, card: FakeCard) -> int:  # noqa: N802
        return card.bus_bits

    def _nvmlDeviceGetComputeRunningProcesses(self, card: FakeCard) -> list[Any]:  # noqa: N802
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in card.processes.items()]

    def _nvmlSystemGetDriverVersion(self) -> bytes:  # noqa: N802
        return b"580.95.05"

    def _nvmlSystemGetCudaDriverVersion(self) -> int:  # noqa: N802
        return 13000
