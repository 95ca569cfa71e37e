"""A name for a pair, under which the configuration keeps it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, Static

from localspec.errors import ConfigError, LocalspecError, UsageError
from localspec.printable import one_line
from localspec.tui.screens.dialog import Dialog

_HINT: Final = "Enter saves it; from then on: localspec chat --pair NAME"


class SavePairDialog(Dialog[str]):
    """Asks for a name and saves. A name that is taken is replaced by a second Enter. Returns what was done.

    `save` is given the name and whether to replace a pair of that name.
    """

    def __init__(self, name: str, save: Callable[[str, bool], Path]) -> None:
        super().__init__()
        self._save = save
        self._refused = ""  # the name that was taken
        self._input = Input(name, compact=True)
        self._answer = Static(Content(_HINT), classes="hint", markup=False)

    def compose(self) -> ComposeResult:
        """The field and what there is to say."""
        with Vertical(classes="dialog") as box:
            box.border_title = "Save the pair"
            yield self._input
            yield self._answer

    @on(Input.Submitted)
    def save(self, event: Input.Submitted) -> None:
        """Write it, or say why not."""
        event.stop()
        name = event.value.strip()
        try:
            file = self._save(name, name == self._refused)
        except LocalspecError as error:
            self._refused = name
            # What the command line would do about a name that is taken is another Enter here.
            is_taken = isinstance(error, UsageError) and not isinstance(error, ConfigError)
            hint = "Enter again replaces it, or choose another name." if is_taken and name else error.hint
            self._answer.update(Content(one_line(f"{error.message} {hint}")).stylize("$text-error"))
            return
        self.dismiss(f"Saved as {one_line(name)} in {one_line(str(file))}.")
