"""Where the user writes."""

from __future__ import annotations

from typing import ClassVar, Final

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import TextArea

from localspec.printable import printable
from localspec.tui.messages import PromptSent
from localspec.tui.prompt_history import PromptHistory

# Alt+Enter, since many terminals send the same for Shift+Enter as for Enter.
_NEWLINE_KEYS: Final = ("shift+enter", "alt+enter", "ctrl+j")


class Prompt(TextArea):
    """Several lines of text. Enter sends; Up and Down reach earlier prompts from its first and last line."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("pageup", "scroll_transcript(-1)", "Scroll up", show=False),
        Binding("pagedown", "scroll_transcript(1)", "Scroll down", show=False),
    ]

    class Scrolled(Message):
        """The user asks for the page before (-1) or after (1) in the transcript."""

        def __init__(self, pages: int) -> None:
            super().__init__()
            self.pages = pages

    def __init__(self) -> None:
        super().__init__(placeholder="Write a prompt; Enter sends it", highlight_cursor_line=False)
        self.cursor_blink = False  # a blinking cursor redraws a screen on which nothing happens
        self._history = PromptHistory()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's signature
        """No redo: its key, Ctrl+Y, copies the reply."""
        return action != "redo"

    def send(self) -> None:
        """Send what is written, unless it is blank. The receiver gives back what it does not take."""
        prompt = self.text
        if prompt.strip():
            self._history.add(prompt)
            self.text = ""
            self.post_message(PromptSent(prompt))

    def give_back(self, prompt: str) -> None:
        """Put a prompt back that was not answered, before whatever has been written since."""
        written = self.text
        self.text = f"{prompt}\n\n{written}" if written.strip() else prompt
        self.move_cursor(self.document.end)

    def take_out(self, prompt: str) -> None:
        """Remove a prompt that was given back, if it still stands there as it was."""
        if self.text == prompt:
            self.text = ""

    def action_cursor_up(self, select: bool = False) -> None:
        """One line up; from the first, the prompt before."""
        if select or not self.navigator.is_first_wrapped_line(self.cursor_location):
            super().action_cursor_up(select)
        else:
            self._recall(self._history.older(self.text))

    def action_cursor_down(self, select: bool = False) -> None:
        """One line down; from the last, the prompt after."""
        if select or not self.navigator.is_last_wrapped_line(self.cursor_location):
            super().action_cursor_down(select)
        else:
            self._recall(self._history.newer())

    def action_scroll_transcript(self, pages: int) -> None:
        """Page through the transcript: a prompt rarely has pages of its own."""
        self.post_message(self.Scrolled(pages))

    # Textual calls the handlers of TextArea after these, unless they prevent it.

    def _on_key(self, event: events.Key) -> None:  # type: ignore[override]
        # Not bindings: those with priority overtake the letters that were typed just before and wait in the queue.
        if event.key == "enter":
            self.send()
        elif event.key in _NEWLINE_KEYS:
            self.insert("\n")
        else:
            return
        event.stop()
        event.prevent_default()

    def _on_paste(self, event: events.Paste) -> None:  # type: ignore[override]
        event.text = printable(event.text)

    def _recall(self, prompt: str | None) -> None:
        if prompt is not None:
            self.text = prompt
            self.move_cursor(self.document.end)
