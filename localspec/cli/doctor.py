"""`localspec doctor`: whether everything that localspec needs is there, and what to do where it is not."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from localspec.cli.console import write_json
from localspec.cli.doctor_findings import Check, Finding

if TYPE_CHECKING:
    from pathlib import Path


def doctor(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="A list of objects: name, state, value, advice.")] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Do not ask the Hub whether it answers.")] = False,
) -> None:
    """Look at this machine and at what is installed: one line each, with what to do where something is amiss.

    Takes some seconds: memory bandwidth is measured, llama.cpp is loaded.
    Exit codes: 0, 1 there is a problem.
    """
    from localspec.cli.doctor_findings import State, run_check

    findings: list[Finding] = []
    for name, check in _checks(context.obj.config, offline=offline):
        findings += run_check(name, check)
    if as_json:
        write_json([asdict(finding) for finding in findings])
    else:
        _write_table(findings)
    sys.stdout.flush()
    if any(finding.state is State.PROBLEM for finding in findings):
        raise typer.Exit(1)


def _checks(config: Path | None, *, offline: bool) -> list[tuple[str, Check]]:
    """What is looked at, in the order of the lines; the name is for a check that fails itself."""
    from localspec.cli import doctor_llama, doctor_machine, doctor_surroundings

    return [
        ("localspec", doctor_surroundings.program),
        ("Python", doctor_machine.python),
        ("processor", doctor_machine.processor),
        ("memory", doctor_machine.memory),
        ("memory bandwidth", doctor_machine.memory_bandwidth),
        ("graphics cards", doctor_machine.graphics),
        ("CUDA toolkit", doctor_machine.cuda_toolkit),
        ("llama.cpp", doctor_llama.library),
        ("backend", doctor_llama.backend),
        ("CPU instructions", doctor_llama.instructions),
        ("folders", doctor_surroundings.folders),
        ("configuration", partial(doctor_surroundings.configuration, config)),
        ("registry", doctor_surroundings.registry),
        ("demo pair", doctor_surroundings.demo_pair),
        ("Hub", partial(doctor_surroundings.hub, offline=offline)),
        ("terminal", doctor_surroundings.terminal),
    ]


def _write_table(findings: Sequence[Finding]) -> None:
    """Advice stands below what it is about, where it has the whole width."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from localspec.cli.doctor_findings import State

    styles = {State.OK: "green", State.WARNING: "yellow", State.PROBLEM: "bold red"}
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for overflow in ("fold", "fold", "fold"):
        table.add_column(overflow=overflow)
    for finding in findings:
        text = Text(finding.value)
        if finding.advice:
            text.append(f"\n{finding.advice}", style="dim" if finding.state is State.OK else "bold")
        table.add_row(Text(finding.state.value, style=styles[finding.state]), finding.name, text)
    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    console.print(table)
    counts = [sum(each.state is state for each in findings) for state in (State.PROBLEM, State.WARNING)]
    console.print(f"\nProblems: {counts[0]}, warnings: {counts[1]}.")
