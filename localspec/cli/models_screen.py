"""The list of `localspec models`: a line for each model where there is room, else its name and, below, the rest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len

from localspec.printable import one_line
from localspec.quantities import file_size, weights

if TYPE_CHECKING:
    from localspec.hub.partial import PartialDownload
    from localspec.models.library import LocalModel

__all__ = ["complaints", "models_table", "unfinished"]

_HEADINGS: Final = ("NAME", "ARCH", "WEIGHTS", "SIZE", "QUANT", "CONTEXT", "LICENCE", "WHERE")
_DROPPED_FIRST: Final = ("LICENCE", "ARCH", "CONTEXT")  # where even the second line has no room for all
_MAX_LICENCE: Final = 20
_MAX_DRAFTS: Final = 3
_INDENT: Final = "    "
_GAP: Final = "  "


def models_table(
    models: Sequence[LocalModel], drafts: Mapping[str, Sequence[LocalModel]], width: int | None
) -> list[str]:
    """The models, below each who can draft for it. `width`: cells of the terminal; None: lines may be of any length."""
    rows = [dict(zip(_HEADINGS, row, strict=True)) for row in (_HEADINGS, *map(_row, models))]
    aligned = _aligned(rows, _HEADINGS)
    lines = []
    if width is None or max(map(cell_len, aligned)) <= width:
        heads = [[line] for line in aligned]
    else:
        columns = list(_HEADINGS[1:])
        below = _aligned(rows, columns)
        for dropped in _DROPPED_FIRST:
            if max(map(cell_len, below)) + len(_INDENT) <= width:
                break
            columns.remove(dropped)
            below = _aligned(rows, columns)
        heads = [[row["NAME"], f"{_INDENT}{line}"] for row, line in zip(rows, below, strict=True)]
    for number, head in enumerate(heads):
        lines += head
        fitting = drafts.get(models[number - 1].name, ()) if number else ()
        if fitting:
            names = [one_line(each.name) for each in fitting[:_MAX_DRAFTS]]
            if len(fitting) > _MAX_DRAFTS:
                names[-1] += f" and {len(fitting) - _MAX_DRAFTS} more"
            words = [f"{name}," for name in names[:-1]] + names[-1:]
            lines += _wrapped(["drafts:", *words], width, _INDENT, f"{_INDENT}{' ' * len('drafts: ')}")
    return lines


def complaints(title: str, reasons: Mapping[str, str], width: int | None) -> list[list[str]]:
    """A section of the list, if there is anything to complain of."""
    lines: list[str] = []
    for name, reason in reasons.items():
        lines += _wrapped([f"{one_line(name)}:", *one_line(reason).split()], width, "  ", _INDENT)
    return [[title, *lines]] if lines else []


def unfinished(partials: Iterable[PartialDownload], width: int | None) -> list[list[str]]:
    """A section with downloads that were begun, if there are some."""
    lines: list[str] = []
    for each in partials:
        name, total = one_line(each.name), max(1, each.model.n_bytes)
        done = f"{file_size(each.n_done_bytes)} of {file_size(each.model.n_bytes)} ({each.n_done_bytes / total:.0%})."
        # A command that is copied stays on one line.
        words = [f"{name}:", *done.split(), "Go", "on", "with:", f"localspec pull {name}"]
        lines += _wrapped(words, width, "  ", _INDENT)
    return [["UNFINISHED DOWNLOADS", *lines]] if lines else []


def _row(model: LocalModel) -> tuple[str, ...]:
    description = model.summary.description
    assert description is not None
    licence = one_line(description.licence) or "?"
    return (
        one_line(model.name),
        one_line(description.architecture),
        weights(description.n_parameters),
        file_size(model.n_bytes),
        description.quantization,
        f"{description.n_ctx_train:,}" if description.n_ctx_train else "?",
        licence if len(licence) <= _MAX_LICENCE else f"{licence[: _MAX_LICENCE - 1]}…",
        model.place,
    )


def _aligned(rows: Sequence[Mapping[str, str]], columns: Sequence[str]) -> list[str]:
    widths = {column: max(cell_len(row[column]) for row in rows) for column in columns}
    lines = []
    for row in rows:
        cells = [row[column] + " " * (widths[column] - cell_len(row[column])) for column in columns]
        lines.append(_GAP.join(cells).rstrip())
    return lines


def _wrapped(words: Iterable[str], width: int | None, first: str, others: str) -> Iterator[str]:
    """Lines no longer than `width`, unless a word is."""
    line, is_empty = first, True
    for word in words:
        if not is_empty and width is not None and cell_len(line) + 1 + cell_len(word) > width:
            yield line
            line, is_empty = others, True
        line = f"{line}{word}" if is_empty else f"{line} {word}"
        is_empty = False
    yield line
