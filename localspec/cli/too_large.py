"""A word before a model is downloaded that this machine can never hold. It is fetched all the same."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from localspec.cli.console import say
from localspec.engine.requests import default_n_ctx
from localspec.errors import LocalspecError
from localspec.printable import one_line
from localspec.quantities import memory_size

if TYPE_CHECKING:
    from localspec.cli.fetching import Wanted
    from localspec.hub.client import Hub
    from localspec.memory.devices import Machine, MemoryDevice

__all__ = ["warn_if_too_large"]


def warn_if_too_large(hub: Hub, wanted: Wanted) -> None:
    """Compare what a model needs with all the memory that there is, whatever of it is free now.

    The header is only read where the size of its files leaves a doubt.
    """
    from localspec.memory import devices
    from localspec.models.description import describe
    from localspec.pairing.drafts import Conditions
    from localspec.pairing.fit import choice_of, usual_header
    from localspec.pairing.usable_cards import with_usable_cards

    if wanted.remote is None:
        return
    here = devices.machine()
    if wanted.remote.n_bytes < _room_bytes(here) // 2:
        return
    here = _empty(with_usable_cards(here))
    header = usual_header(wanted.remote.n_bytes)
    with contextlib.suppress(LocalspecError):
        found = hub.header(wanted.remote).header
        if found.tensors:
            header = found
    n_ctx = default_n_ctx(describe(header).n_ctx_train)
    try:
        choice = choice_of(header, Conditions(here, n_ctx))
    except LocalspecError:  # no model that writes: whoever loads it is told
        choice = choice_of(usual_header(wanted.remote.n_bytes), Conditions(here, n_ctx))
    if not choice.fits:
        say(
            f"Mind: {one_line(wanted.text)} needs {memory_size(choice.total_bytes)} of memory with a context of "
            f"{n_ctx:,} tokens, and this machine has {memory_size(_room_bytes(here))}."
        )


def _room_bytes(machine: Machine) -> int:
    return machine.host.total_bytes + (0 if machine.unified else sum(gpu.total_bytes for gpu in machine.gpus))


def _empty(machine: Machine) -> Machine:
    """The machine with nothing else running on it."""

    def empty(device: MemoryDevice) -> MemoryDevice:
        return replace(device, free_bytes=device.total_bytes)

    return replace(machine, host=empty(machine.host), gpus=tuple(map(empty, machine.gpus)))
