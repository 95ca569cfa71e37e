"""The targets: on this machine, of models.toml, and found on the Hub; with a field that filters and searches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input

from localspec.errors import LocalspecError
from localspec.pairing.drafts import Place
from localspec.pairing.fit import Fit
from localspec.pairing.service import Listing
from localspec.pairing.targets import TargetEntry
from localspec.printable import one_line
from localspec.tui.figures import file_size
from localspec.tui.pair_figures import fit_text, tokens
from localspec.tui.widgets.row_list import Row, RowList, columns, remark

_TITLES: Final = {
    Place.HERE: "On this machine",
    Place.REGISTRY: "To download, from models.toml",
    Place.HUB: "On the Hub",
}
_SIGNS: Final = {"target": "● ", "draft": "○ ", "": "  "}
# Cells of the columns; a negative one is set right.
_QUANTIZATION, _SIZE, _CONTEXT, _FIT = 9, -9, -7, 11
_WITH_CONTEXT: Final = 70
_WITH_QUANTIZATION: Final = 50


@dataclass(slots=True)
class _Section:
    """What is known of one place: entries, or why there are none, or that somebody looks."""

    listing: Listing | None = None
    error: LocalspecError | None = None
    status: str = ""


class TargetList(Vertical):
    """Filters while one types; Enter in the field asks for a search on the Hub."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("down", "into_list", "List", show=False)]

    class Highlighted(Message):
        """Another entry is looked at, or none."""

        def __init__(self, entry: TargetEntry | None) -> None:
            super().__init__()
            self.entry = entry

    class Chosen(Message):
        """An entry was chosen."""

        def __init__(self, entry: TargetEntry) -> None:
            super().__init__()
            self.entry = entry

    class SearchAsked(Message):
        """The Hub is to be searched for a text."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, *, begins_anew: bool = False) -> None:
        """`begins_anew`: the highlight goes to the first target that is not loaded and fits."""
        super().__init__()
        self._begins_anew = begins_anew
        self._put = ""  # where the highlight was put; until the user moves it, it goes to a better one
        self._sections = {place: _Section(status="Looking …") for place in (Place.HERE, Place.REGISTRY)}
        self._sections[Place.HUB] = _Section(status="Type a name above and press Enter to search the Hub.")
        self._searched = ""
        self.search = Input(placeholder="Filter by name; Enter searches the Hub", compact=True, select_on_focus=False)
        self.list = RowList()

    def compose(self) -> ComposeResult:
        """The field, the names of the columns, the list."""
        yield self.search
        yield _Heading()
        yield self.list

    def on_mount(self) -> None:
        """Say that somebody looks."""
        self._show()

    @property
    def highlighted(self) -> TargetEntry | None:
        """The entry that is looked at."""
        return self._entry(self.list.highlighted_key)

    @property
    def searched(self) -> str:
        """What the Hub was asked for last."""
        return self._searched

    def begin(self, place: Place, text: str = "") -> None:
        """Somebody looks; what was known before stays until there is an answer."""
        section = self._sections[place]
        section.error = None
        section.status = f"Searching the Hub for {one_line(text)!r} …" if place is Place.HUB else "Looking …"
        if place is Place.HUB:
            self._searched = text
        self._show()

    def fill(self, place: Place, listing: Listing) -> None:
        """What there is at a place. Who waits for the Hub's answer gets it highlighted."""
        self._sections[place] = _Section(listing)
        self._show()
        if place is Place.HUB and listing.entries and self.search.has_focus:
            self.screen.set_focus(self.list)
            self.list.highlight(_key(place, listing.entries[0]))

    def fail(self, place: Place, error: LocalspecError) -> None:
        """Why nobody knows what there is; what was known before stays."""
        self._sections[place] = _Section(self._sections[place].listing, error)
        self._show()

    def action_into_list(self) -> None:
        """From the field into the list; at once, since the next key may be there already."""
        self.screen.set_focus(self.list)

    @on(Input.Changed)
    def filter(self, event: Input.Changed) -> None:
        """Only what has all words of the field."""
        event.stop()
        self._show()

    @on(Input.Submitted)
    def ask(self, event: Input.Submitted) -> None:
        """Search the Hub for what the field holds."""
        event.stop()
        if event.value.strip():
            self.post_message(self.SearchAsked(event.value.strip()))
        else:
            self.screen.set_focus(self.list)

    @on(RowList.OptionHighlighted)
    def look(self, event: RowList.OptionHighlighted) -> None:
        """Another entry."""
        event.stop()
        self.post_message(self.Highlighted(self._entry(event.option_id or "")))

    @on(RowList.OptionSelected)
    def choose(self, event: RowList.OptionSelected) -> None:
        """The user takes it."""
        event.stop()
        if entry := self._entry(event.option_id or ""):
            self.post_message(self.Chosen(entry))

    # --- rows ---------------------------------------------------------------------------------------------------------

    def _entry(self, key: str) -> TargetEntry | None:
        entries = ((place, entry) for place in self._sections for entry in self._entries(place))
        return next((entry for place, entry in entries if _key(place, entry) == key), None)

    @property
    def _first_to_try(self) -> str:
        keys = (
            _key(place, entry)
            for place in (Place.HERE, Place.REGISTRY)
            for entry in self._entries(place)
            if not entry.loaded_as and entry.fit is Fit.FITS
        )
        return next(keys, "")

    def _entries(self, place: Place) -> tuple[TargetEntry, ...]:
        listing = self._sections[place].listing
        return listing.entries if listing is not None else ()

    def _show(self) -> None:
        words = self.search.value.lower().split()
        rows = [row for place, section in self._sections.items() for row in self._rows(place, section, words)]
        has_moved = self.list.highlighted_key not in {"", self._put}
        self.list.show(rows)
        if self._begins_anew and not has_moved:
            self.list.highlight(self._first_to_try)
        if not has_moved:
            self._put = self.list.highlighted_key
        if not self.list.highlighted_key:
            self.post_message(self.Highlighted(None))

    def _rows(self, place: Place, section: _Section, words: list[str]) -> Iterator[Row]:
        title = _TITLES[place]
        if place is Place.HUB and self._searched:
            title += f", for {one_line(self._searched)!r}"
        yield remark(title, "bold")
        entries = self._entries(place)
        # What the Hub found for the very text of the field is not filtered again: it knows names that we do not.
        is_answer = place is Place.HUB and self._searched.lower().split() == words
        shown = [entry for entry in entries if is_answer or _matches(entry, words)]
        for entry in shown:
            yield Row(_key(place, entry), lambda width, entry=entry: _line(entry, width))  # type: ignore[misc]
        if entries and not shown:
            yield remark(f"  none of {len(entries)} has that name")
        for note in section.listing.notes if section.listing is not None else ():
            yield remark(f"  {one_line(note)}")
        if section.error is not None:
            yield remark(f"  ✗ {one_line(section.error.message)}", "$error")
            if section.error.hint:
                yield remark(f"    {one_line(section.error.hint)}")
        if section.status:
            yield remark(f"  {section.status}")


class _Heading(Widget):
    """The names of the columns."""

    def render(self) -> Content:
        width = self.content_size.width
        return _columns(width, Content("  target"), "quant", "size", "context", Content("fits here")).stylize("dim")


def _key(place: Place, entry: TargetEntry) -> str:
    return f"{place.name} {entry.text}"


def _matches(entry: TargetEntry, words: list[str]) -> bool:
    text = f"{entry.name} {entry.text} {entry.quantization}".lower()
    return all(word in text for word in words)


def _line(entry: TargetEntry, width: int) -> Content:
    name = Content(_SIGNS[entry.loaded_as] + one_line(entry.name))
    if entry.is_gated:
        name += Content.styled(" (gated)", "dim")
    return _columns(
        width,
        name,
        one_line(entry.quantization) or "any",
        file_size(entry.n_bytes, is_guess=entry.is_guess),
        tokens(entry.n_ctx_train),
        fit_text(entry.fit),
    )


def _columns(width: int, name: Content, quantization: str, size: str, context: str, fit: Content) -> Content:
    others: list[tuple[Content | str, int]] = [(quantization, _QUANTIZATION)] if width >= _WITH_QUANTIZATION else []
    others.append((size, _SIZE))
    if width >= _WITH_CONTEXT:
        others.append((context, _CONTEXT))
    return columns(width, name, *others, (fit, _FIT))
