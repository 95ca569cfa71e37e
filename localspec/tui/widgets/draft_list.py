"""The drafts for a target, the best first, and the choice to have none."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from localspec.pairing.chosen import Target, with_path
from localspec.pairing.drafts import DraftOption, ranked
from localspec.printable import one_line
from localspec.tui.figures import file_size
from localspec.tui.pair_figures import VERDICT_SIGNS, draft_fit_text, speed_text
from localspec.tui.widgets.row_list import Row, RowList, columns, remark

_NO_DRAFT: Final = "none"
# Cells of the columns; a negative one is set right.
_PLACE, _DOWNLOAD, _VOCABULARY, _FIT, _SPEED = 11, -9, 12, 11, -7
_WITH_DOWNLOAD: Final = 50
_WITH_VOCABULARY: Final = 72
_WITH_PLACE: Final = 90


class DraftList(Vertical):
    """Grows while drafts are looked for."""

    class Highlighted(Message):
        """Another draft is looked at; None: to have none."""

        def __init__(self, option: DraftOption | None) -> None:
            super().__init__()
            self.option = option

    class Chosen(Message):
        """A draft was chosen, or to have none."""

        def __init__(self, option: DraftOption | None) -> None:
            super().__init__()
            self.option = option

    def __init__(self) -> None:
        super().__init__()
        self._target: Target | None = None
        self._options: dict[str, DraftOption] = {}
        self._notes: Sequence[str] = ()
        self._status = ""
        self._title = Static(markup=False)
        self._put = ""  # where the highlight was put; until the user moves it, it stays on the best
        self.list = RowList()

    def compose(self) -> ComposeResult:
        """The target, the names of the columns, the list."""
        yield self._title
        yield _Heading()
        yield self.list

    @property
    def highlighted(self) -> DraftOption | None:
        """The draft that is looked at; None: to have none."""
        return self._options.get(self.list.highlighted_key)

    @property
    def is_on_none(self) -> bool:
        """Whether the choice to have none is looked at."""
        return self.list.highlighted_key == _NO_DRAFT

    def begin(self, target: Target) -> None:
        """Drafts for another target are looked for."""
        self._target = target
        self._options.clear()
        self._notes = ()
        self._status = "Looking at what is here …"
        self._put = ""
        self.list.show(())
        self._title.update(
            Content.assemble(("Drafts for ", "dim"), (one_line(target.model.name.removesuffix(".gguf")), "bold"))
        )
        self._show()

    @property
    def is_looking(self) -> bool:
        """Whether more may come."""
        return bool(self._status)

    @property
    def was_moved(self) -> bool:
        """Whether the user has moved the highlight away from the best."""
        return self.list.highlighted_key not in {"", self._put}

    def update(self, target: Target) -> None:
        """Another pair is loaded by now."""
        self._target = target
        self._show()

    def note_fetched(self, paths: Mapping[str, Path]) -> None:
        """Files that are here by now, by reference."""
        for key, option in self._options.items():
            self._options[key] = dataclasses.replace(option, model=with_path(option.model, paths))
        self._show()

    def say(self, status: str) -> None:
        """What is looked at now."""
        self._status = status
        self._show()

    def add(self, option: DraftOption) -> None:
        """One more, or the same one in another form."""
        self._options[_key(option)] = option
        self._show()

    def replace(self, old: DraftOption, new: DraftOption) -> None:
        """Another quantization in place of one."""
        self._options.pop(_key(old), None)
        self._options[_key(new)] = new
        self._show()
        self.list.highlight(_key(new))

    def finish(self, notes: Sequence[str]) -> None:
        """All were found."""
        self._notes = notes
        self._status = ""
        self._show()

    @on(RowList.OptionHighlighted)
    def look(self, event: RowList.OptionHighlighted) -> None:
        """Another draft."""
        event.stop()
        self.post_message(self.Highlighted(self._options.get(event.option_id or "")))

    @on(RowList.OptionSelected)
    def choose(self, event: RowList.OptionSelected) -> None:
        """The user takes it."""
        event.stop()
        self.post_message(self.Chosen(self._options.get(event.option_id or "")))

    # --- rows ---------------------------------------------------------------------------------------------------------

    def _show(self) -> None:
        options = ranked(self._options.values())
        usable = [option for option in options if not option.is_refused]
        refused = [option for option in options if option.is_refused]
        rows = [self._row(option) for option in usable]
        rows.append(Row(_NO_DRAFT, _line_of_none))
        rows += [self._row(option) for option in refused]
        if not usable and not self._status:
            rows.append(remark("  No draft model was found for this target. It works without: drafts are then copied."))
        rows += [remark(f"  {one_line(note)}") for note in self._notes]
        if self._status:
            rows.append(remark(f"  {one_line(self._status)}"))
        has_moved = self.was_moved
        self.list.show(rows)
        if not has_moved:
            self._put = _key(options[0]) if options and options[0].fits else _NO_DRAFT
            self.list.highlight(self._put)

    def _row(self, option: DraftOption) -> Row:
        loaded = self._target.loaded.draft if self._target is not None and self._target.loaded is not None else None
        is_loaded = loaded is not None and option.model.path == loaded.path
        return Row(_key(option), lambda width: _line(option, width, is_loaded=is_loaded))


class _Heading(Widget):
    """The names of the columns."""

    def render(self) -> Content:
        texts = "download", "vocabulary", "fits beside", "speed"
        name = Content("  draft model")
        return _columns(self.content_size.width, name, "where", *(Content(each) for each in texts)).stylize("dim")


def _key(option: DraftOption) -> str:
    return f"draft {option.model.name}"


def _line(option: DraftOption, width: int, *, is_loaded: bool) -> Content:
    n_bytes = option.model.n_download_bytes
    name = Content(("● " if is_loaded else "  ") + one_line(option.model.name.removesuffix(".gguf")))
    fit = draft_fit_text(option)
    if option.warnings and not option.is_refused:
        fit += Content.styled(f" !{len(option.warnings)}", "$warning")
    verdict = option.verdict.verdict
    line = _columns(
        width,
        name,
        option.place.value,
        Content(file_size(n_bytes) if n_bytes else "here"),
        Content(f"{VERDICT_SIGNS[verdict]} {verdict.value}"),
        fit,
        speed_text(option),
    )
    return line.stylize("dim") if option.is_refused else line


def _line_of_none(width: int) -> Content:
    return Content("  no draft model: drafts are copied from the text so far").truncate(width, ellipsis=True)


def _columns(width: int, name: Content, place: str, *texts: Content) -> Content:
    download, vocabulary, fit, speed = texts
    others: list[tuple[Content | str, int]] = [(place, _PLACE)] if width >= _WITH_PLACE else []
    if width >= _WITH_DOWNLOAD:
        others.append((download, _DOWNLOAD))
    if width >= _WITH_VOCABULARY:
        others.append((vocabulary, _VOCABULARY))
    return columns(width, name, *others, (fit, _FIT), (speed, _SPEED))
