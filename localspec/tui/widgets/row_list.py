"""A list of lines that are set for the width there is; keys, mouse, and what was highlighted stays so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from textual import events
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option


@dataclass(frozen=True, slots=True)
class Row:
    """What `set` draws in so many cells. `key` "": a heading or a remark, which cannot be chosen."""

    key: str
    set: Callable[[int], Content]


def remark(text: str, style: str = "dim") -> Row:
    """A line of text, or several where it is long."""
    return Row("", lambda _: Content.styled(text, style))


class RowList(OptionList):
    """Enter chooses, as does a click on what is highlighted; a click elsewhere only highlights."""

    def __init__(self, **options: str) -> None:
        super().__init__(markup=False, **options)  # type: ignore[arg-type]
        self._rows: Sequence[Row] = ()
        self._set_width = 0

    @property
    def highlighted_key(self) -> str:
        """The key of the highlighted row, or ""."""
        option = self.highlighted_option
        return (option.id or "") if option is not None else ""

    def show(self, rows: Sequence[Row]) -> None:
        """Replace the rows. The highlight stays on its key, else it goes to the first row that can be chosen."""
        self._rows = rows
        self._fill()

    def highlight(self, key: str) -> None:
        """Move the highlight to a row, if there is such a one."""
        if self._has(key):
            self.highlighted = self.get_option_index(key)

    def scroll_to_highlight(self, top: bool = False) -> None:
        """From the first row that can be chosen, the headings above it are seen too."""
        first = next((index for index, option in enumerate(self.options) if not option.disabled), None)
        if self.highlighted == first and first is not None and first < self.scrollable_content_region.height:
            self.scroll_home(animate=False, immediate=True)
        else:
            super().scroll_to_highlight(top)

    def on_resize(self) -> None:
        """Set the lines anew for another width."""
        if self.scrollable_content_region.width != self._set_width:
            self._fill()
        self.call_after_refresh(self.scroll_to_highlight)

    async def _on_click(self, event: events.Click) -> None:
        # Textual would call OptionList's own handler after this one: it chooses at the first click.
        event.prevent_default()
        index: int | None = event.style.meta.get("option")
        if index is None or self.options[index].disabled:
            return
        if index == self.highlighted:
            self.action_select()
        else:
            self.highlighted = index

    def _fill(self) -> None:
        key, scrolled = self.highlighted_key, self.scroll_offset.y
        self._set_width = width = self.scrollable_content_region.width
        self.set_options(Option(row.set(max(1, width)), id=row.key or None, disabled=not row.key) for row in self._rows)
        self.scroll_to(y=scrolled, animate=False, immediate=True)
        if self._has(key):
            self.highlighted = self.get_option_index(key)
        else:
            self.action_first()

    def _has(self, key: str) -> bool:
        return bool(key) and any(row.key == key for row in self._rows)


def columns(width: int, name: Content, *others: tuple[Content | str, int]) -> Content:
    """A line: a name that takes what is left, and columns of fixed widths after it; negative ones are set right."""
    cells = []
    for text, cell_width in others:
        cell = Content(text) if isinstance(text, str) else text
        cell = cell.truncate(abs(cell_width), ellipsis=True)
        gap = abs(cell_width) - cell.cell_length
        cells += [Content(" "), cell.pad_right(gap) if cell_width > 0 else cell.pad_left(gap)]
    room = max(0, width - sum(abs(cell_width) + 1 for _, cell_width in others))
    shown = name.truncate(room, ellipsis=True)
    return Content.assemble(shown.pad_right(room - shown.cell_length), *cells)
