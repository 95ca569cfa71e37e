"""Which graphics cards count: those that the installed llama.cpp can use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from localspec.errors import EngineError
from localspec.memory.devices import Machine

__all__ = ["build_supports_gpu", "with_usable_cards"]


def build_supports_gpu() -> bool:
    """Whether llama.cpp computes on a card here. Asked of a process of its own, in about half a second.

    Where it cannot be asked, it counts as able: loading a model will say what is wrong with it.
    """
    from localspec.llama.inspection import inspect_build

    try:
        return inspect_build().supports_gpu
    except EngineError:
        return True


def with_usable_cards(machine: Machine, supports_gpu: Callable[[], bool] = build_supports_gpu) -> Machine:
    """The machine without its cards where this build cannot use them. Only where there are some is it asked."""
    return machine if not machine.gpus or supports_gpu() else replace(machine, gpus=(), unified=False)
