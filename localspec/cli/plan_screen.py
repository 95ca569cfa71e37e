"""A memory plan on the terminal: a table of what goes where, a bar for each device, the choice and the alternatives."""

from __future__ import annotations

from typing import Final, TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from localspec.memory.choice import Choice, DeviceLoad, ModelChoice
from localspec.memory.plan import Plan
from localspec.printable import one_line
from localspec.quantities import memory_size

__all__ = ["write_plan"]

_BAR_CELLS: Final = 40
_TARGET, _DRAFT, _MARGIN = "█", "▓", "░"
_FREE: Final = "·"


def write_plan(plan: Plan, stream: TextIO) -> None:
    """Write it for a person to read."""
    console = Console(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=True)
    choice = plan.choice
    console.print(Text(_headline(choice), style="bold" if plan.fits else "bold red"))
    for reason in plan.reasons:
        console.print(f"  {one_line(reason)}")
    if not all(model.memory.is_exact for model in _models(choice)):
        console.print("  An architecture is not known well here: the numbers are estimates.")
    console.print(_table(choice))
    for load in choice.loads:
        if load.used_bytes:
            console.print(_bar(load))
    console.print(Text(f"{_TARGET} target  {_DRAFT} draft  {_MARGIN} margin  {_FREE} free", style="dim"))
    if choice.machine.unified:
        console.print("The graphics card takes its memory from the system's.")
    if plan.alternatives:
        console.print("\nOr:")
        for each in plan.alternatives:
            console.print(Text(f"  {one_line(each.text)}", style="" if each.choice.fits else "dim"))


def _headline(choice: Choice) -> str:
    target = choice.target
    layers = (
        f", {target.memory.n_gpu_layers} of {target.memory.n_layers} layers on the GPU" if choice.machine.gpus else ""
    )
    draft = f", draft {one_line(choice.draft.name)}" if choice.draft else ", no draft model"
    verdict = "Fits" if choice.fits else f"Does not fit, {memory_size(choice.missing_bytes)} too little"
    return f"{verdict}: {one_line(target.name)}{draft}, context {choice.n_ctx:,}, {target.kv_type} cache{layers}"


def _models(choice: Choice) -> list[ModelChoice]:
    return [choice.target, *([choice.draft] if choice.draft else [])]


def _table(choice: Choice) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("device", "model", "weights", "KV cache", "compute", "together"):
        table.add_column(heading, justify="left" if heading in {"device", "model"} else "right")
    for load in choice.loads:
        for what, used in (("target", load.target), ("draft", load.draft)):
            if used.total_bytes:
                parts = used.weights_bytes, used.kv_bytes, used.compute_bytes, used.total_bytes
                table.add_row(one_line(load.device.name), what, *map(memory_size, parts))
    table.add_section()
    table.add_row("all", "", "", "", "", memory_size(choice.total_bytes))
    return table


def _bar(load: DeviceLoad) -> Text:
    """How full a device gets, against what is free of it now."""
    whole = max(load.device.free_bytes, load.used_bytes + load.margin_bytes, 1)
    shares = [load.target.total_bytes, load.draft.total_bytes, load.margin_bytes]
    bar, filled, taken = Text(), 0, 0
    for sign, n_bytes in zip((_TARGET, _DRAFT, _MARGIN), shares, strict=True):
        taken += n_bytes
        end = round(_BAR_CELLS * taken / whole)
        bar.append(sign * (end - filled))
        filled = end
    bar.append(_FREE * (_BAR_CELLS - filled))
    bar.stylize("red" if load.missing_bytes else "green")
    free = f"takes {memory_size(load.used_bytes)} of {memory_size(load.device.free_bytes)} free"
    missing = f", {memory_size(load.missing_bytes)} too little" if load.missing_bytes else ""
    return Text.assemble(bar, f"  {one_line(load.device.name)}: {free}{missing}")
