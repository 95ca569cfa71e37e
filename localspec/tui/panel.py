"""How the numbers beside the chat are set: as a column where there is room, else as a bar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from textual.content import Content

from localspec.engine.events import Loaded
from localspec.printable import printable
from localspec.tui import figures
from localspec.tui.drafting import SOURCE_NAMES, Contribution
from localspec.tui.gauges import acceptance_strip, sparkline
from localspec.tui.readings import Readings, Row
from localspec.tui.typeset import BLANK

BAR_HEIGHT: Final = 4  # lines; a low window leaves out the last one

# Cells of the column.
_SHARE_WIDTH: Final = 7
_ACCEPTED_WIDTH: Final = 1 + len("accepted")

# Cells of the bar.
_GUTTER: Final = 3
_VALUE_WIDTH: Final = 7
_MEASURE_WIDTH: Final = _VALUE_WIDTH + 1 + len("accepted") + 1
_LEAST_GAUGE_WIDTH: Final = _VALUE_WIDTH + len(" this reply, lookup next")
_PACE_WIDTH: Final = len("first token") + 1 + _VALUE_WIDTH
_USE_WIDTH: Final = len("context") + 1 + len("9,999/9,999")
_N_GAUGES: Final = 3


def column_lines(readings: Readings, width: int, height: int) -> list[Content]:
    """One number per line; 17 lines hold them all. In less than there is, the models' names go first, then the gaps."""
    speed = [
        _row(readings.subject, readings.mode, width, style="bold"),
        _row("tokens/s", readings.rate, width, style="bold"),
        Content.styled(sparkline(readings.rates, width), "$accent"),
        _row("first token", readings.first_token, width),
        _row("reply tokens", readings.reply, width),
    ]
    note = readings.rest_note
    drafts = [
        _row("accepted", readings.accepted, width, style="bold"),
        acceptance_strip(readings.steps, width),
        _row("tokens per step", readings.per_step, width),
        # In one place: nothing below moves when the one becomes the other.
        Content.styled(note, "bold") if note else _row("draft length", readings.draft_length, width),
    ]
    use = [_row(*row, width) for row in [("context", readings.context), *readings.memory_rows]]
    other_mode = readings.other_mode
    upcoming = [_row("next reply", other_mode.value, width, style="bold")] if other_mode else []
    numbers = [section for section in (speed, drafts, _table(readings, width), use, upcoming) if section]
    names = _names(readings.loaded, width)
    with_names = [names, *numbers] if names else numbers
    sections = with_names if _height(with_names, gap=1) <= height else numbers
    gap = [BLANK] if _height(sections, gap=1) <= height else []
    lines: list[Content] = []
    for section in sections:
        lines += [*(gap if lines else ()), *section]
    return lines


def bar_lines(readings: Readings, width: int, height: int = BAR_HEIGHT) -> list[Content]:
    """Gauges, columns beside them, and who drafts. A narrow window shows fewer columns, never part of a number."""
    pace = [
        ("first token", readings.first_token),
        ("per step", readings.per_step),
        ("draft length", readings.draft_length),
    ]
    use = [("context", readings.context), *readings.memory_rows]
    columns = [_column(pace, _PACE_WIDTH), _column(use, _USE_WIDTH)]
    while columns and _room(columns, width) < _LEAST_GAUGE_WIDTH:
        columns.pop(0)
    room = _room(columns, width)
    n_cells = max(0, room - _MEASURE_WIDTH)
    if other_mode := readings.other_mode:
        mode = _measure(readings.mode, f"{readings.subject},")
        mode += Content.assemble((other_mode.value, "bold"), (" next", "dim"))
    else:
        mode = _measure(readings.mode, "mode")
    gauges = [
        _measure(readings.rate, "tokens/s") + Content.styled(sparkline(readings.rates, n_cells), "$accent"),
        _measure(readings.accepted, "accepted") + acceptance_strip(readings.steps, n_cells),
        mode.pad_right(max(0, room - mode.cell_length)),
    ]
    space = Content(" " * _GUTTER)
    lines = [space.join([gauge, *(column[index] for column in columns)]) for index, gauge in enumerate(gauges)]
    return [*lines, _drafters(readings, width)][:height]


def _names(loaded: Loaded | None, width: int) -> list[Content]:
    if loaded is None:
        return []
    names = [Content(printable(loaded.target_name)).stylize("bold")]
    if loaded.draft_name is not None:
        names.append(Content(f"+ {printable(loaded.draft_name)}").stylize("dim"))
    return [name.truncate(width, ellipsis=True) for name in names]


def _height(sections: Sequence[Sequence[Content]], *, gap: int) -> int:
    return sum(len(section) for section in sections) + gap * (len(sections) - 1)


def _row(label: str, value: str, width: int, *, style: str = "") -> Content:
    """The label on the left, the value on the right."""
    return Content.assemble((label, "dim"), " " * max(1, width - len(label) - len(value)), (value, style))


def _table(readings: Readings, width: int) -> list[Content]:
    """Each source of drafts, its share of the steps and what was accepted of it. The one that drafts now is bold."""
    parts = readings.contributions
    if not parts:
        return []
    name_width = width - _SHARE_WIDTH - _ACCEPTED_WIDTH
    head = f"{'drafts':<{name_width}}{'steps':>{_SHARE_WIDTH}}{'accepted':>{_ACCEPTED_WIDTH}}"
    rows = [
        Content.assemble(
            _name(part, readings).pad_right(name_width - len(SOURCE_NAMES[part.source])),
            figures.share(part.share).rjust(_SHARE_WIDTH),
            "" if part.source is None else figures.share(part.acceptance).rjust(_ACCEPTED_WIDTH),
        )
        for part in parts
    ]
    return [Content.styled(head, "dim"), *rows]


def _name(part: Contribution, readings: Readings) -> Content:
    return Content.styled(SOURCE_NAMES[part.source], "bold" if readings.drafts_now(part.source) else "dim")


def _drafters(readings: Readings, width: int) -> Content:
    """The table in a line. The words in its first entry go where there is no room, then entries, from the last."""
    note = readings.rest_note
    parts = [part for part in readings.contributions if part.share is not None]
    space = Content(" " * _GUTTER)
    entries = [Content.styled(note, "bold")] if note else []
    entries += [_entry(part, readings, words=part is parts[0]) for part in parts]
    if not note and space.join(entries).cell_length > width:
        entries = [_entry(part, readings, words=False) for part in parts]
    while space.join(entries).cell_length > width:
        entries.pop()
    return space.join(entries)


def _entry(part: Contribution, readings: Readings, *, words: bool) -> Content:
    shown = _name(part, readings) + Content(f" {figures.share(part.share)}")
    if words:
        shown += Content.styled(" of steps", "dim")
    if part.acceptance is not None:
        shown += Content(f", {figures.share(part.acceptance)}")
        if words:
            shown += Content.styled(" accepted", "dim")
    return shown


def _column(rows: Sequence[Row], width: int) -> list[Content]:
    """Rows of one width, one beside each gauge. The width does not follow the numbers: nothing moves as they grow."""
    lines = [_row(*row, width) for row in rows]
    return lines + [Content(" " * width)] * (_N_GAUGES - len(lines))


def _room(columns: Sequence[Sequence[Content]], width: int) -> int:
    return width - sum(column[0].cell_length + _GUTTER for column in columns)


def _measure(value: str, name: str) -> Content:
    """A value before its name, in a fixed width, so that the gauges behind start in one column."""
    label = name.ljust(_MEASURE_WIDTH - _VALUE_WIDTH - 2)
    return Content.assemble((value.rjust(_VALUE_WIDTH), "bold"), " ", (label, "dim"), " ")
