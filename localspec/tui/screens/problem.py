"""An error, and what can be done about it."""

from __future__ import annotations

from typing import Final

from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Button, Static

from localspec.errors import (
    DoesNotFitError,
    EndpointAnswerError,
    EndpointError,
    EndpointRefusedError,
    EndpointUnreachableError,
    EngineDiedError,
    EngineError,
    LocalspecError,
    ModelError,
    UsageError,
)
from localspec.printable import printable
from localspec.tui.screens.dialog import Dialog

# The first that matches names the dialog: special before general.
_TITLES: Final[tuple[tuple[type[LocalspecError], str], ...]] = (
    (EngineDiedError, "The engine has ended"),
    (EngineError, "The engine failed"),
    (ModelError, "The models cannot be used"),
    (DoesNotFitError, "It does not fit"),
    (EndpointUnreachableError, "No whole answer from the server"),
    (EndpointRefusedError, "The server refuses"),
    (EndpointAnswerError, "The answer cannot be used"),
    (EndpointError, "The server failed"),
    (UsageError, "The request cannot be used"),
)


class ProblemDialog(Dialog[str]):
    """Message and hint of an error. Returns `remedy` if the user chose it."""

    def __init__(self, error: LocalspecError, *, remedy: str = "", loses_something: bool = False) -> None:
        super().__init__()
        self._error = error
        self._remedy = remedy
        self._loses_something = loses_something

    def compose(self) -> ComposeResult:
        """The text and the buttons."""
        title = next((title for kind, title in _TITLES if isinstance(self._error, kind)), "Something went wrong")
        with VerticalScroll(classes="dialog -problem", can_focus=False) as box:
            box.border_title = title
            yield Static(Content(printable(self._error.message)), markup=False)
            if self._error.hint:
                yield Static(Content(printable(self._error.hint)), classes="hint", markup=False)
            with Horizontal(classes="buttons"):
                close = Button("Close", id="close", compact=True)
                if self._remedy:
                    remedy = Button(self._remedy, id="remedy", variant="primary", compact=True)
                    # Enter, typed for something else, presses the first: it must not lose anything.
                    yield from (close, remedy) if self._loses_something else (remedy, close)
                else:
                    yield close

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Close with the choice."""
        self.dismiss(self._remedy if event.button.id == "remedy" else None)
