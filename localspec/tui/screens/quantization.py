"""In which quantization a model is to be fetched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from localspec.pairing.drafts import DraftOption
from localspec.pairing.service import Quantization
from localspec.printable import one_line
from localspec.tui.figures import file_size
from localspec.tui.pair_figures import draft_fit_text, fit_text, speed_text
from localspec.tui.screens.dialog import Dialog
from localspec.tui.widgets.row_list import Row, RowList, columns

_EXPLAINED: Final = "→ suits this machine best. Fewer bits: smaller and faster, and less like the original."


class QuantizationDialog(Dialog[Quantization]):
    """All forms of a model, the largest first. Returns the one that was chosen."""

    def __init__(self, repo: str, found: Sequence[Quantization]) -> None:
        super().__init__()
        self._repo = repo
        self._found = found
        self._list = RowList()

    def compose(self) -> ComposeResult:
        """The repository, the list."""
        with Vertical(classes="dialog -quantization") as box:
            box.border_title = "Quantization"
            yield Static(Content(one_line(self._repo)).stylize("bold"), markup=False)
            if self._found:
                yield self._list
                yield Static(Content(_EXPLAINED), classes="hint", markup=False)
            else:
                yield Static(Content("The repository holds no model in GGUF format."), markup=False)

    def on_mount(self) -> None:
        """The best is highlighted."""
        self._list.show(
            [
                Row(str(index), lambda width, each=each: _line(each, width))  # type: ignore[misc]
                for index, each in enumerate(self._found)
            ]
        )
        best = next((index for index, each in enumerate(self._found) if each.is_best), 0)
        self._list.highlight(str(best))

    @on(RowList.OptionSelected)
    def choose(self, event: RowList.OptionSelected) -> None:
        """Close with the choice."""
        event.stop()
        self.dismiss(self._found[event.option_index])


def _line(each: Quantization, width: int) -> Content:
    remote = each.remote
    name = one_line(remote.quantization) or one_line(remote.files[0].name)
    if not remote.is_first:
        name = one_line(remote.files[0].name)
    shown = Content(f"{'→' if each.is_best else ' '} {name}")
    if each.draft is None:
        return columns(width, shown, (file_size(remote.n_bytes), -9), (fit_text(each.fit), 11))
    others = (file_size(remote.n_bytes), -9), (draft_fit_text(each.draft), 11), (speed_text(each.draft), -7)
    return columns(width, shown, *others, (_accepted(each.draft), -13))


def _accepted(option: DraftOption) -> str:
    """What was measured of it."""
    rate = option.measured.draft_acceptance_rate if option.measured is not None else None
    return "" if rate is None else f"{rate:.0%} accepted"
