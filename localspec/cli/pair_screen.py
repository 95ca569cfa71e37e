"""Pairs on the terminal: a ranking of drafts, one pair in detail, quantizations, and suggestions."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from localspec.cli.plan_screen import write_plan
from localspec.models.compat import Verdict
from localspec.models.description import describe
from localspec.printable import one_line
from localspec.quantities import file_size, memory_size, weights

if TYPE_CHECKING:
    from localspec.memory.devices import Machine
    from localspec.pairing.drafts import DraftOption
    from localspec.pairing.finding import Found
    from localspec.pairing.resolve import ResolvedModel
    from localspec.pairing.suggestions import Suggestion

__all__ = ["write_one", "write_quantizations", "write_ranking", "write_smaller_targets", "write_suggestions"]


def write_one(target: ResolvedModel, option: DraftOption, stream: TextIO) -> None:
    """One pair: the verdict with reasons, what speaks against it, speed and memory."""
    console = _console(stream)
    style = "bold red" if option.is_refused else "bold green"
    said = "cannot draft" if option.is_refused else "can draft"
    verdict = f"{_name(option.model)} {said} for {_name(target)}: {option.verdict.verdict.value}."
    console.print(Text(verdict, style=style))
    for line in _reasons(option):
        console.print(line)
    for line in _speed_lines(option):
        console.print(line)
    if option.plan is not None:
        console.print()
        write_plan(option.plan, stream)


def write_ranking(found: Found, target: ResolvedModel, stream: TextIO) -> None:
    """All drafts, the best first: how fast, what to do next, what to mind, why some are refused, what goes where."""
    console = _console(stream)
    described = describe(target.header)
    title = f"Drafts for {_name(target)} ({weights(described.n_parameters)} weights)"
    console.print(Text(title, style="bold"))
    usable = [option for option in found.options if not option.is_refused]
    if found.options:
        console.print(_ranking(found.options))
    else:
        console.print("No draft was found that can draft for it.")
    if usable:
        for line in (*_speed_lines(usable[0]), _next_step(target, usable[0])):
            console.print(line)
    else:
        command = one_line(shlex.join(["localspec", "chat", "--target", target.exact_reference, "--mode", "lookup"]))
        console.print(f"Without a draft model, drafts are copied from the text so far: {command}")
    for line in _details(found, usable):
        console.print(Text(line, style="dim"))
    if usable and usable[0].plan is not None:
        console.print()
        write_plan(usable[0].plan, stream)


def write_smaller_targets(repo: str, fitting: Sequence[tuple[str, int]], stream: TextIO) -> None:
    """Quantizations of a target that fit whole where the one asked for does not: with their bytes."""
    console = _console(stream)
    if fitting:
        offers = ", ".join(f"{one_line(label)} ({file_size(n_bytes)})" for label, n_bytes in fitting)
        console.print(f"Whole on this machine would be of {one_line(repo)}: {offers}.")
    else:
        console.print(f"No quantization in {one_line(repo)} fits whole: a smaller model would. See: localspec pair")


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
        size = file_size(option.model.n_download_bytes) if option.model.n_download_bytes else "here"
        accepted = option.measured.draft_acceptance_rate if option.measured else None
        row = mark, label, size, _fit(option), _predicted(option), _measured(option)
        table.add_row(*map(one_line, row), "–" if accepted is None else f"{accepted:.0%}")
    console.print()
    console.print(Text(f"{one_line(repo)} comes in", style="bold"))
    console.print(table)
    if best is not None:
        console.print("→ taken by default: the fastest that was measured, else the largest of up to 8 bits that fits.")


def write_suggestions(found: Sequence[Suggestion], machine: Machine, stream: TextIO) -> None:
    """What to begin with."""
    console = _console(stream)
    if machine.gpus:
        names = ", ".join(one_line(gpu.name) for gpu in machine.gpus)
        title = f"For {names} ({memory_size(sum(gpu.total_bytes for gpu in machine.gpus))}):"
    else:
        title = f"For a machine without a card and {memory_size(machine.host.total_bytes)} of memory:"
    console.print(Text(title, style="bold"))
    if machine.note:
        console.print(one_line(machine.note))
    if not machine.gpus:
        console.print("On a CPU, large models write a few tokens per second at most: begin with a small one.")
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
        table.add_row(one_line(each.name), file_size(each.n_bytes), one_line(", ".join(each.drafts)), ", ".join(notes))
    console.print(table)
    console.print(
        "Sizes are guessed from names, for the usual quantization. What fits, and how fast: localspec pair TARGET"
    )


# --- parts ------------------------------------------------------------------------------------------------------------


def _console(stream: TextIO) -> Console:
    width = None if stream.isatty() else 160
    # Lines are left to the terminal to break: a command that is copied must stay one line.
    return Console(file=stream, highlight=False, markup=False, emoji=False, width=width, soft_wrap=True)


def _name(model: ResolvedModel) -> str:
    """Short, as it was named, or without the ending of a file."""
    is_file = model.path is not None and model.reference.endswith(".gguf")
    return one_line(model.path.stem if is_file and model.path is not None else model.reference)


def _ranking(options: Sequence[DraftOption]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    right = {"#", "download", "speed"}
    for heading in ("#", "draft", "download", "fits", "speed", "notes"):
        table.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    number = 0
    for option in options:
        number += not option.is_refused
        table.add_row(
            "" if option.is_refused else str(number),
            _name(option.model),
            file_size(option.model.n_download_bytes) if option.model.n_download_bytes else "here",
            _fit(option),
            _speed(option),
            ", ".join(_notes(option)),
        )
    return table


def _notes(option: DraftOption) -> Iterator[str]:
    if option.verdict.verdict is not Verdict.IDENTICAL:
        yield option.verdict.verdict.value
    if option.measured is not None:
        yield "measured"
    if option.reported is not None:
        yield "reported" + (f" ({option.reported.grade})" if option.reported.grade else "")


def _details(found: Found, usable: Sequence[DraftOption]) -> Iterator[str]:
    """What to mind with each, by its number, why some are refused, and what the search has to say."""
    for number, option in enumerate(usable, 1):
        for text in (*[warning.text for warning in option.warnings], option.measured_note):
            if text:
                yield f"{number}: {one_line(text)}"
    for option in found.options:
        if option.is_refused:
            yield f"✗ {_name(option.model)}"
            yield from _reasons(option)
    for note in found.notes:
        yield f"· {one_line(note)}"
    if found.n_header_bytes:
        yield f"· {file_size(found.n_header_bytes)} of headers were read from the Hub."
    if any(option.reported for option in usable):
        yield "· Reported to work together, in models.toml: by llama.cpp (A), another project (B), somebody (C)."


def _reasons(option: DraftOption) -> Iterator[str]:
    for reason in option.verdict.reasons:
        yield f"  {reason.rule}: {one_line(reason.text)}"
        if option.is_refused and reason.hint:
            yield f"    {one_line(reason.hint)}"
    if not option.is_refused:
        for warning in option.warnings:
            yield f"  mind the {warning.rule}: {one_line(warning.text)}"


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
            f"About {expected.plain_tokens_per_s:.0f} tokens/s without drafts, where memory is read at "
            f"{expected.bandwidth / 1e9:.0f} GB/s; {expected.speedup:.1f} times that if {expected.acceptance:.0%} are "
            "accepted. A forecast from sizes."
        )
        if expected.n_draft == 0:
            lines.append("Drafting is not expected to pay here; mode auto finds out, and steps aside.")
    return lines


def _next_step(target: ResolvedModel, best: DraftOption) -> str:
    """A command to go on with; where the pair does not fit, what stands in the way."""
    names = one_line(shlex.join([target.exact_reference, "--draft", best.model.exact_reference]))
    if best.plan is not None and not best.plan.fits:
        return "The target does not fit this machine: take a smaller quantization, or a smaller model."
    if best.plan is not None and not best.fits:
        return (
            "There is no room for a draft beside the target: take a smaller quantization of it, or a smaller context."
        )
    if target.n_download_bytes or best.model.n_download_bytes:
        return f"Fetch them: localspec pull {names}"
    if best.measured is None:
        return f"Measure it: localspec pair {names} --measure"
    return f"Keep it: localspec pair {names} --pick NAME"


def _fit(option: DraftOption) -> str:
    if option.plan is None:
        return "–"
    if option.fits:
        return "✓"
    return "✗ no room" if option.plan.fits else "✗ too large"


def _speed(option: DraftOption) -> str:
    if option.measured is not None:
        return f"{option.measured.speedup:.2f} x"
    return "–" if option.prediction is None else f"about {option.prediction.speedup:.1f} x"


def _measured(option: DraftOption) -> str:
    return "–" if option.measured is None else f"{option.measured.speedup:.2f} x"


def _predicted(option: DraftOption) -> str:
    return "–" if option.prediction is None else f"{option.prediction.speedup:.1f} x"
