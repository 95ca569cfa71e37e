"""What is known of the model that is looked at; it scrolls where that is more than there is room for."""

from __future__ import annotations

from typing import Final

from textual.app import ComposeResult
from textual.containers import VerticalScroll

from localspec.tui.pair_details import Text
from localspec.tui.typeset import Typeset
from localspec.tui.widgets.passage import Passage

_NOTHING: Final = Text()


class SelectionPanel(VerticalScroll):
    """One passage."""

    def __init__(self) -> None:
        super().__init__()
        self._passage = Passage(_NOTHING)

    def compose(self) -> ComposeResult:
        """The text."""
        yield self._passage

    def show(self, details: Typeset | None) -> None:
        """Replace it; None: nothing is looked at."""
        self._passage.show(details or _NOTHING)
        self.scroll_home(animate=False)
