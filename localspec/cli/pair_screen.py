"""Pairs on the terminal: a ranking of drafts, one pair in detail, quantizations, and suggestions."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from localspec.cli.plan_screen import write_plan
from localspec.models.compat import Verdict
from localspec.models.description import describe
from localspec.printable import one_line

if TYPE_CHECKING:
    from localspec.memory.devices import Machine
    from localspec.pairing.drafts import DraftOption
    from localspec.pairing.finding import Found
    from localspec.pairing.resolve import ResolvedModel
    from localspec.pairing.suggestions import Suggestion

__all__ = ["write_one", "write_quantizations", "write_ranking", "write_suggestions"]

_SIGNS: Final = {Verdict.IDENTICAL: "=", Verdict.COMPATIBLE: "≈", Verdict.REFUSED: "✗"}


def write_one(target: ResolvedModel, option: DraftOption, stream: TextIO) -> None:
    """One pair: the verdict with reasons, what speaks against it, memory and speed."""
    console = _console(stream)
    verdict = option.verdict.verdict
    style = "bold red" if option.is_refused else "bold green"
    said = "cannot draft" if option.is_refused else "can draft"
    console.print(
        Text(f"{one_line(option.model.name)} {said} for {one_line(target.name)}: {verdict.value}.", style=style)
    )
    _write_reasons(console, option)
    if option.plan is not None:
        console.print()
        write_plan(option.plan, stream)
        console.print()
    for line in _speed_lines(option):
        console.print(line)


def write_ranking(found: Found, target: ResolvedModel, stream: TextIO) -> None:
    """All drafts, the best first, and below them why some are refused and what else to know."""
    console = _console(stream)
    described = describe(target.header)
    console.print(
        Text(
            f"Drafts for {one_line(target.name)} ({_weights(described.n_parameters)}, "
            f"{one_line(described.tokenizer)} vocabulary of {described.n_vocab:,})",
            style="bold",
        )
    )
    usable = [option for option in found.options if not option.is_refused]
    if found.options:
        console.print(_ranking(found.options))
    if not usable:
        console.print("No draft was found that can draft for it.")
    _write_details(console, found, usable)
    if not usable:
        console.print(
            "Without a draft model: localspec chat --mode lookup copies from the text so far, and needs none."
        )
        return
    best = usable[0]
    if best.plan is not None:
        console.print()
        write_plan(best.plan, stream)
    console.print()
    for line in (*_speed_lines(best), _next_step(target, best)):
        console.print(line)


def write_quantizations(repo: str, options: Sequence[DraftOption], best: DraftOption | None, stream: TextIO) -> None:
    """What a draft comes in."""
    console = _console(stream)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    right = {"download", "predicted", "measured", "accepted"}
    for heading in ("", "quantization", "download", "fits", "predicted", "measured", "accepted"):
        table.add_column(heading, justify="right" if heading in right else "left")
    for option in options:
        remote = option.model.remote
        label = (remote.quantization if remote else "") or "?"
        mark = "→" if best is not None and option is best else ""
        size = _size(option.model.n_download_bytes) if option.model.n_download_bytes else "here"
        accepted = option.measured.draft_acceptance_rate if option.measured else None
        row = mark, label, size, _fit(option), _predicted(option), _measured(option)
        table.add_row(*map(one_line, row), "–" if accepted is None else f"{accepted:.0%}")
    console.print()
    console.print(Text(f"{one_line(repo)} comes in", style="bold"))
    console.print(table)
    if best is not None:
        console.print("→ the largest of up to 8 bits that leaves the target whole; what is measured goes before.")


def write_suggestions(found: Sequence[Suggestion], machine: Machine, stream: TextIO) -> None:
    """What to begin with."""
    console = _console(stream)
    devices = machine.gpus or (machine.host,)
    names = ", ".join(f"{one_line(device.name)} with {device.total_bytes / 2**30:.0f} GiB" for device in devices)
    console.print(Text(f"For {names}:", style="bold"))
    if machine.note:
        console.print(one_line(machine.note))
    if not found:
        console.print(
            "No model of models.toml fits into so little memory. Try the embedded pair: localspec chat --demo"
        )
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("target", "about", "drafts", ""):
        table.add_column(heading, justify="right" if heading == "about" else "left", overflow="fold")
    for each in found:
        notes = [*(["here"] if each.is_here else []), *(["pair reported"] if each.is_reported else [])]
        table.add_row(one_line(each.name), _size(each.n_bytes), one_line(", ".join(each.drafts)), ", ".join(notes))
    console.print(table)
    console.print("Sizes are guessed from names. What fits exactly, and how fast: localspec pair TARGET")


# --- parts ------------------------------------------------------------------------------------------------------------


def _console(stream: TextIO) -> Console:
    width = None if stream.isatty() else 160
    return Console(file=stream, highlight=False, markup=False, emoji=False, width=width)


def _ranking(options: Sequence[DraftOption]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    right = {"#", "weights", "download", "predicted", "measured"}
    for heading in ("#", "draft", "where", "weights", "download", "vocabulary", "fits", "predicted", "measured"):
        table.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    number = 0
    for option in options:
        number += not option.is_refused
        where = option.place.value + (f", pair reported ({option.reported.grade})" if option.reported else "")
        table.add_row(
            "" if option.is_refused else str(number),
            one_line(option.model.name),
            where,
            _weights(describe(option.model.header).n_parameters),
            _size(option.model.n_download_bytes) if option.model.n_download_bytes else "here",
            f"{_SIGNS[option.verdict.verdict]} {option.verdict.verdict.value}",
            _fit(option),
            _predicted(option),
            _measured(option),
        )
    return table


def _write_details(console: Console, found: Found, usable: Sequence[DraftOption]) -> None:
    """Why some are refused, what to mind with the others, by their number, and what the search has to say."""
    for option in found.options:
        if option.is_refused:
            console.print(Text(f"✗ {one_line(option.model.name)}", style="red"))
            _write_reasons(console, option)
    for number, option in enumerate(usable, 1):
        for text in (*[warning.text for warning in option.warnings], option.measured_note):
            if text:
                console.print(Text(f"{number}: {one_line(text)}", style="dim"))
    for note in found.notes:
        console.print(Text(f"· {one_line(note)}", style="dim"))
    if found.n_header_bytes:
        console.print(Text(f"· {_size(found.n_header_bytes)} of headers were read from the Hub.", style="dim"))


def _write_reasons(console: Console, option: DraftOption) -> None:
    for reason in option.verdict.reasons:
        console.print(f"  {reason.rule}: {one_line(reason.text)}")
        if option.is_refused and reason.hint:
            console.print(f"    {one_line(reason.hint)}")
    if not option.is_refused:
        for warning in option.warnings:
            console.print(f"  mind the {warning.rule}: {one_line(warning.text)}")


def _speed_lines(option: DraftOption) -> list[str]:
    lines = []
    if option.measured is not None:
        speed = option.measured
        accepted = "" if speed.draft_acceptance_rate is None else f", {speed.draft_acceptance_rate:.0%} accepted"
        lines.append(
            f"Measured here on {speed.measured_at:%Y-%m-%d}: {speed.plain_tokens_per_s:.1f} tokens/s without drafts, "
            f"{speed.speedup:.2f} times that in mode auto ({speed.low:.2f} to {speed.high:.2f} over "
            f"{speed.n_prompts} prompts{accepted})."
        )
    elif option.prediction is not None:
        expected = option.prediction
        lines.append(
            f"Predicted from sizes and memory bandwidth: {expected.plain_tokens_per_s:.0f} tokens/s without drafts, "
            f"{expected.speedup:.1f} times that if {expected.acceptance:.0%} are accepted."
        )
        if expected.n_draft == 0:
            lines.append("Drafting is not expected to pay here; mode auto finds out, and steps aside.")
    return lines


def _next_step(target: ResolvedModel, best: DraftOption) -> str:
    names = one_line(shlex.join([target.exact_reference, "--draft", best.model.exact_reference]))
    if target.n_download_bytes or best.model.n_download_bytes:
        return f"Fetch them: localspec pull {names}"
    if best.measured is None:
        return f"Measure it: localspec pair {names} --measure"
    return f"Keep it: localspec pair {names} --pick NAME"


def _fit(option: DraftOption) -> str:
    if option.plan is None:
        return "–"
    if option.fits:
        return "✓ fits"
    return "✗ no room beside it" if option.plan.fits else "✗ target too large"


def _predicted(option: DraftOption) -> str:
    return "–" if option.prediction is None else f"{option.prediction.speedup:.1f} x"


def _measured(option: DraftOption) -> str:
    return "–" if option.measured is None else f"{option.measured.speedup:.2f} x"


def _weights(count: int) -> str:
    return f"{count / 1e9:.2f} B" if count >= 10**9 else f"{count / 1e6:.0f} M"


def _size(n_bytes: float) -> str:
    return f"{n_bytes / 1e9:.2f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.0f} MB"
