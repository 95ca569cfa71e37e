"""What the dialogs share: a titled box over the chat that Escape closes."""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

ResultT = TypeVar("ResultT")


class Dialog(ModalScreen[ResultT | None], Generic[ResultT]):
    """Closes with None on Escape."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "close", "Close")]

    def action_close(self) -> None:
        """Close without a choice."""
        self.dismiss(None)
