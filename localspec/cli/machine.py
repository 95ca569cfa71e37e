"""The machine that a command plans for: this one, or one with other cards."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from localspec.cli.console import say
from localspec.errors import UsageError
from localspec.memory import devices
from localspec.memory.devices import Machine, MemoryDevice

__all__ = ["machine_for"]

_MAX_CARDS: Final = 15  # GGML_SCHED_MAX_BACKENDS without the CPU


def machine_for(gpu_memory: list[float] | None) -> Machine:
    """Memory of this machine, or with other cards. Cards that this build of llama.cpp cannot use do not count."""
    here = devices.machine()
    if gpu_memory is not None:
        sizes = [int(size * 2**30) for size in gpu_memory if size > 0]
        if len(sizes) > _MAX_CARDS:
            raise UsageError(f"--gpu-memory is given {len(sizes)} times; {_MAX_CARDS} cards are the most.")
        names = [
            f"a card of {size / 2**30:g} GiB" + (f" ({i})" if len(sizes) > 1 else "") for i, size in enumerate(sizes)
        ]
        cards = tuple(MemoryDevice(name, size, size) for name, size in zip(names, sizes, strict=True))
        return replace(here, gpus=cards, unified=False, note="")
    from localspec.pairing.usable_cards import with_usable_cards

    usable = with_usable_cards(here)
    if usable.gpus != here.gpus:
        say("This llama.cpp is built for the CPU, so the graphics card is left out; --gpu-memory plans for one.")
    return usable
