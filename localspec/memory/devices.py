"""Where models can go: the memory of this machine and of its graphics cards, in total and free."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

import psutil

from localspec.memory.apple import has_apple_silicon, metal_bytes, sysctl
from localspec.memory.cgroups import memory_limit
from localspec.memory.nvidia import visible_cards


@dataclass(frozen=True, slots=True)
class MemoryDevice:
    """A memory that holds weights and caches. `free_bytes` can be taken now without pushing others out."""

    name: str
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Machine:
    """The system's memory, and the graphics cards in the order in which llama.cpp counts them.

    `unified`: the cards take from the system's memory, so the two may not be added. `note` says why cards are missing,
    or is "".
    """

    host: MemoryDevice
    gpus: tuple[MemoryDevice, ...]
    unified: bool
    note: str


def machine() -> Machine:
    """What there is at this moment: every card that is visible to CUDA, or the one of Apple silicon. Never fails."""
    host = host_memory()
    if has_apple_silicon():
        most = metal_bytes(host.total_bytes)
        name = sysctl("machdep.cpu.brand_string") or "Apple silicon"
        return Machine(host, (MemoryDevice(name, most, min(most, host.free_bytes)),), unified=True, note="")
    cards, note = visible_cards()
    gpus = tuple(
        MemoryDevice(card.name, card.total_bytes, card.free_bytes) if card.has_memory else replace(host, name=card.name)
        for card in cards
    )
    return Machine(host, gpus, unified=any(not card.has_memory for card in cards), note=note)


def host_memory() -> MemoryDevice:
    """The system's memory, or what a container gets of it."""
    memory = psutil.virtual_memory()
    total, free = int(memory.total), int(memory.available)
    limit = memory_limit() if sys.platform == "linux" else None
    if limit is not None:
        total, free = min(total, limit.total_bytes), min(free, limit.free_bytes)
    return MemoryDevice("system memory", total, free)
