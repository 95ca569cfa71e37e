"""One way to load a pair on a machine: what lies where, and whether it fits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath

from localspec.memory.devices import Machine, MemoryDevice
from localspec.memory.estimate import DeviceBytes, ModelMemory

__all__ = ["Choice", "DeviceLoad", "Margin", "ModelChoice"]


@dataclass(frozen=True, slots=True)
class Margin:
    """Bytes that stay free on a device that is used.

    On a GPU: a process takes more there than its buffers, for the driver's context, kernels and scratch space. A log of
    an RTX 3090 shows 791 MiB between the sum of the buffers and what nvidia-smi counted. In system memory: the process
    itself, the rows of logits that it reads back, scratch space of the CPU backend, and what the system needs.
    """

    host_bytes: int = 512 << 20
    gpu_bytes: int = 800 << 20


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """How one model is loaded. `memory.n_gpu_layers` of `memory.n_layers` are on GPUs."""

    path: PurePath
    kv_type: str
    memory: ModelMemory

    @property
    def name(self) -> str:
        """The name of its file."""
        return self.path.name


@dataclass(frozen=True, slots=True)
class DeviceLoad:
    """A device with what a choice takes there. `missing_bytes`: 0 where it fits."""

    device: MemoryDevice
    target: DeviceBytes
    draft: DeviceBytes
    margin_bytes: int

    @property
    def used_bytes(self) -> int:
        """Of both models."""
        return self.target.total_bytes + self.draft.total_bytes

    @property
    def missing_bytes(self) -> int:
        """What is free too little, the margin included."""
        if self.used_bytes == 0:
            return 0
        return max(0, self.used_bytes + self.margin_bytes - self.device.free_bytes)


@dataclass(frozen=True, slots=True)
class Choice:
    """A target, maybe with a draft model, at a context size, on the devices of a machine."""

    machine: Machine
    margin: Margin
    n_ctx: int
    target: ModelChoice
    draft: ModelChoice | None = None

    @property
    def loads(self) -> tuple[DeviceLoad, ...]:
        """System memory first, then the GPUs."""
        devices = (self.machine.host, *self.machine.gpus)
        of_draft = _per_device(self.draft) if self.draft else (DeviceBytes(),) * len(devices)
        margins = self.margin.host_bytes, *(self._gpu_margin,) * len(self.machine.gpus)
        return tuple(map(DeviceLoad, devices, _per_device(self.target), of_draft, margins))

    @property
    def _gpu_margin(self) -> int:
        return 0 if self.machine.unified else self.margin.gpu_bytes  # a shared pool has one margin: the host's

    @property
    def total_bytes(self) -> int:
        """Of both models on all devices."""
        return self.target.memory.total_bytes + (self.draft.memory.total_bytes if self.draft else 0)

    @property
    def missing_bytes(self) -> int:
        """What is free too little: the sum over the devices, or of the one pool that all share; 0 where it fits."""
        if not self.machine.unified:
            return sum(load.missing_bytes for load in self.loads)
        of_pool = max(0, self.total_bytes + self.margin.host_bytes - self.machine.host.free_bytes)
        return max(of_pool, *(load.missing_bytes for load in self.loads[1:]), 0)

    @property
    def fits(self) -> bool:
        """Everything, with the margins."""
        return self.missing_bytes == 0

    @property
    def is_target_whole_on_gpu(self) -> bool:
        """Every layer of the target is on a GPU."""
        return self.target.memory.is_whole_on_gpu


def _per_device(model: ModelChoice) -> tuple[DeviceBytes, ...]:
    return model.memory.host, *model.memory.gpus
