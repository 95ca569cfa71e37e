"""The keys, and how to read the screen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content

from localspec.tui.origins import ORIGIN_MEANINGS, ORIGIN_STYLES
from localspec.tui.screens.dialog import Dialog
from localspec.tui.typeset import LineWriter, Margin
from localspec.tui.widgets.passage import Passage


class Entry(NamedTuple):
    """A line of the help."""

    name: str
    meaning: str
    style: str = "$accent"


_KEYS: Final = (
    Entry("Enter", "Send the prompt"),
    Entry("Ctrl+J, Shift+Enter", "New line"),
    Entry("Up, Down", "Earlier prompts, from the first and last line"),
    Entry("Page Up, Page Down", "Scroll the transcript"),
    Entry("Escape", "Stop the reply"),
    Entry("Ctrl+T", "Next reply: auto, draft, lookup or plain"),
    Entry("Ctrl+O", "Replies by token origin"),
    Entry("Ctrl+Y", "Copy the reply or a code block"),
    Entry("Ctrl+R", "Ask for the last reply again"),
    Entry("F3", "Edit the last prompt"),
    Entry("Ctrl+N", "New chat"),
    Entry("F2", "Choose models: target, draft model, downloads"),
    Entry("Ctrl+P", "All commands"),
    Entry("Ctrl+C", "Copy what is selected; without a selection, stop the reply"),
    Entry("Ctrl+Q", "Quit"),
)
_PAIR_KEYS: Final = (
    Entry("Letters", "Filter the targets by name; Enter in the field searches the Hub"),
    Entry("Enter", "Choose the target; load the pair, or download and then load it"),
    Entry("F3", "Other quantizations of what is not here yet"),
    Entry("F4", "Search the Hub for more drafts"),
    Entry("Ctrl+S", "Save the pair under a name"),
    Entry("Tab", "To the details, and to the downloads"),
    Entry("Delete, Enter", "Stop or take away a download; resume it"),
    Entry("Escape", "One step back; downloads go on"),
)
_READING: Final = (
    Entry("tokens/s", "over the last two seconds; after the reply, its average"),
    Entry("accepted", "share of the drafted tokens that the target kept"),
    Entry("per step", "tokens that one pass of the target yields, on average"),
    Entry("draft length", "tokens drafted at once of late, on average"),
    Entry("draft model", "its share of the steps, and of its tokens those accepted"),
    Entry("copied", "the same for drafts copied from the text so far"),
    Entry("none", "share of the steps that had no draft"),
    Entry("resting", "drafts would cost more than they bring; tried again now and then"),
    Entry("first token", "from sending the prompt to the first text"),
    Entry("▁▃▅█", "one cell per step: the higher, the more drafted tokens were accepted"),
    Entry("·", "a step without a draft"),
)


class HelpDialog(Dialog[None]):
    """Scrolls with the arrow keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("f1", "close", "Close", show=False)]

    def __init__(self, *, of_pairs: bool = False) -> None:
        """`of_pairs`: what is about choosing models comes first."""
        super().__init__()
        self._of_pairs = of_pairs

    def compose(self) -> ComposeResult:
        """Four lists."""
        origins = [Entry(origin.value, meaning, ORIGIN_STYLES[origin]) for origin, meaning in ORIGIN_MEANINGS.items()]
        of_chat = [
            EntryList("Keys", _KEYS),
            EntryList("The numbers", _READING),
            EntryList("Tokens by origin", tuple(origins)),
        ]
        pairs = EntryList("Choosing models, after F2", _PAIR_KEYS)
        with VerticalScroll(classes="dialog -help") as box:
            box.border_title = "Help"
            for entries in [pairs, *of_chat] if self._of_pairs else [*of_chat, pairs]:
                yield Passage(entries)


@dataclass(frozen=True, slots=True)
class EntryList:
    """Names and what they mean, in two columns."""

    title: str
    entries: tuple[Entry, ...]

    def lines(self, width: int) -> list[Content]:
        """See `Typeset`."""
        name_width = 2 + max(len(entry.name) for entry in self.entries)
        writer = LineWriter(width)
        writer.write(Content.styled(self.title, "bold"))
        for entry in self.entries:
            name = Content.styled(entry.name, entry.style).pad_right(name_width - len(entry.name)).pad_left(2)
            writer.margins = [Margin(name, Content(" " * name.cell_length))]
            writer.write(Content(entry.meaning))
        return writer.lines
