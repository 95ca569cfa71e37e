"""What the panel says of the target or the draft that is looked at: facts, memory as bars, reasons and warnings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from textual.content import Content

from localspec.models.description import describe
from localspec.printable import one_line
from localspec.tui import figures
from localspec.tui.figures import file_size
from localspec.tui.pair_figures import parameters, tokens
from localspec.tui.typeset import LineWriter, Margin

if TYPE_CHECKING:
    from localspec.memory.choice import Choice, DeviceLoad
    from localspec.pairing.chosen import Target
    from localspec.pairing.drafts import DraftOption
    from localspec.pairing.targets import TargetEntry

# As `localspec plan` draws them.
_TARGET, _DRAFT, _MARGIN, _FREE = "█", "▓", "░", "·"
_LEGEND: Final = f"{_TARGET} target  {_DRAFT} draft  {_MARGIN} margin  {_FREE} free"
_MOST_BAR: Final = 40
_LEAST_BAR: Final = 8
_MOST_NAME: Final = 24


@dataclass(frozen=True, slots=True)
class Text:
    """A passage of plain text."""

    text: str = ""

    def lines(self, width: int) -> list[Content]:
        """See `Typeset`."""
        return Content(self.text).wrap(width) if self.text else []


@dataclass(frozen=True, slots=True)
class EntryDetails:
    """A target in the list, of which no header was read yet."""

    entry: TargetEntry

    def lines(self, width: int) -> list[Content]:
        """See `Typeset`."""
        entry, writer = self.entry, LineWriter(width)
        writer.write(Content.styled(one_line(entry.name), "bold"))
        size = file_size(entry.n_bytes, is_guess=entry.is_guess)
        facts = [
            parameters(entry.n_parameters),
            one_line(entry.quantization),
            "" if entry.n_bytes is None else f"{size}{', guessed' if entry.is_guess else ''}",
            f"context {entry.n_ctx_train:,}" if entry.n_ctx_train else "",
            one_line(entry.licence),
        ]
        writer.write(Content(" · ".join(filter(None, facts))))
        speed = "" if entry.tokens_per_s is None else f"; at most {entry.tokens_per_s:.0f} tokens/s without drafts"
        writer.write(Content(f"By its size: {entry.fit.value}{speed}."))
        if entry.is_gated:
            writer.write(Content.styled("Its licence is to be accepted on the Hub before it can be downloaded.", ""))
        writer.write(Content.styled(one_line(entry.note), "dim"))
        return writer.lines


@dataclass(frozen=True, slots=True)
class DraftDetails:
    """A target that was chosen, with a draft or without one."""

    target: Target
    option: DraftOption | None

    def lines(self, width: int) -> list[Content]:
        """See `Typeset`."""
        writer = LineWriter(width)
        option = self.option
        if option is not None:
            self._write_verdict(writer, option)
        made = option.plan if option is not None else self.target.plan
        is_short = made is not None and not (option.fits if option is not None else made.fits)
        if made is not None:
            _write_bars(writer, made.choice, width)
            if is_short:
                _write_points(writer, made.reasons, "✗", "$error")
        if option is not None and not option.is_refused:
            _write_speed(writer, option)
            _write_points(writer, [f"{each.rule}: {each.text}" for each in option.warnings], "!", "$warning")
            _write_points(writer, [f"{each.rule}: {each.text}" for each in option.verdict.reasons], "≈", "")
        if made is not None:
            if not is_short:
                _write_points(writer, made.reasons, "·", "dim")
            writer.write(Content.styled(_how_loaded(made.choice), "dim"))
            writer.write(Content.styled(_LEGEND, "dim"))
        return writer.lines

    def _write_verdict(self, writer: LineWriter, option: DraftOption) -> None:
        described = describe(option.model.header)
        facts = [parameters(described.n_parameters), one_line(described.quantization), option.place.value]
        if described.n_ctx_train:
            facts.append(f"context {tokens(described.n_ctx_train)}")
        if option.model.n_download_bytes:
            facts.append(f"{file_size(option.model.n_download_bytes)} to download")
        if option.reported is not None:
            facts.append(f"pair reported{f' (grade {option.reported.grade})' if option.reported.grade else ''}")
        name = option.model.name.removesuffix(".gguf")
        writer.write(Content.assemble((one_line(name), "bold"), f"  {' · '.join(filter(None, facts))}"))
        if option.is_refused:
            writer.write(Content.styled("It cannot draft for this target.", "$error"))
            for reason in option.verdict.reasons:
                _write_points(writer, [f"{reason.rule}: {reason.text}"], "✗", "$error")
                _write_points(writer, [reason.hint] if reason.hint else [], " ", "")


def _write_bars(writer: LineWriter, choice: Choice, width: int) -> None:
    for load in choice.loads:
        if load.used_bytes:
            writer.write_lines(_bar(load, width))


def _how_loaded(choice: Choice) -> str:
    layers = ""
    if choice.machine.gpus and not choice.is_target_whole_on_gpu:
        memory = choice.target.memory
        layers = f", {memory.n_gpu_layers} of {memory.n_layers} layers on the GPU"
    draft = f", draft {choice.draft.kv_type}" if choice.draft is not None else ""
    return f"context {choice.n_ctx:,}, cache {choice.target.kv_type}{draft}{layers}"


def _bar(load: DeviceLoad, width: int) -> list[Content]:
    """How full a device gets, against what is free of it: in a line, or in two where that is narrow."""
    name = one_line(load.device.name)
    name = name if len(name) <= _MOST_NAME else f"{name[: _MOST_NAME - 1]}…"
    text = f"{figures.size(load.used_bytes)} of {figures.size(load.device.free_bytes)} free"
    if load.missing_bytes:
        text += f", ✗ {figures.size(load.missing_bytes)} too little"
    room = width - len(name) - len(text) - 4
    if room >= _LEAST_BAR:
        return [Content("  ").join([Content(name), _cells(load, min(_MOST_BAR, room)), Content(text)])]
    return [Content(f"{name}  {text}").truncate(width, ellipsis=True), _cells(load, min(_MOST_BAR, width))]


def _cells(load: DeviceLoad, n_cells: int) -> Content:
    whole = max(load.device.free_bytes, load.used_bytes + load.margin_bytes, 1)
    shares = (
        (_TARGET, load.target.total_bytes, "$accent"),
        (_DRAFT, load.draft.total_bytes, "$secondary"),
        (_MARGIN, load.margin_bytes, "dim"),
    )
    parts, filled, taken = [], 0, 0
    for sign, n_bytes, style in shares:
        taken += n_bytes
        end = round(n_cells * taken / whole)
        parts.append(Content.styled(sign * (end - filled), "$error" if load.missing_bytes else style))
        filled = end
    return Content("").join([*parts, Content.styled(_FREE * (n_cells - filled), "dim")])


def _write_speed(writer: LineWriter, option: DraftOption) -> None:
    if option.measured is not None:
        speed = option.measured
        accepted = "" if speed.draft_acceptance_rate is None else f", {speed.draft_acceptance_rate:.0%} accepted"
        text = (
            f"Measured on {speed.measured_at:%Y-%m-%d}: {speed.speedup:.2f} times {speed.plain_tokens_per_s:.1f} "
            f"tokens/s ({speed.low:.2f} to {speed.high:.2f}{accepted})."
        )
    elif option.prediction is not None:
        expected = option.prediction
        text = (
            f"Predicted: {expected.speedup:.1f} times {expected.plain_tokens_per_s:.0f} tokens/s "
            f"({expected.bandwidth / 1e9:.0f} GB/s), if {expected.acceptance:.0%} are accepted."
        )
        if expected.n_draft == 0:
            text = "Drafting is not expected to pay here; mode auto finds out, and steps aside."
    else:
        return
    writer.write(Content(text))
    if option.measured_note:
        writer.write(Content.styled(one_line(option.measured_note), "dim"))


def _write_points(writer: LineWriter, texts: Sequence[str], sign: str, style: str) -> None:
    for text in texts:
        writer.margins = [Margin(Content.styled(f"{sign} ", style), Content("  "))]
        writer.write(Content(one_line(text)))
    writer.margins = []
