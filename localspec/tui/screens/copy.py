"""Which part of a reply to copy."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from localspec.tui.code_blocks import CodeBlock
from localspec.tui.screens.dialog import Dialog


class CopyDialog(Dialog[str]):
    """The whole reply or one of its code blocks. Returns the text that was chosen."""

    def __init__(self, reply: str, blocks: list[CodeBlock]) -> None:
        super().__init__()
        self._reply = reply
        self._blocks = blocks

    def compose(self) -> ComposeResult:
        """The choices: code first, since that is what is copied most."""
        with Vertical(classes="dialog") as box:
            box.border_title = "Copy"
            yield OptionList(*(Option(_label(block)) for block in self._blocks), Option(Content("The whole reply")))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Close with the choice."""
        index = event.option_index
        self.dismiss(self._blocks[index].code if index < len(self._blocks) else self._reply)


def _label(block: CodeBlock) -> Content:
    n_lines = block.code.count("\n") + 1
    about = f"{block.language or 'code'}, {n_lines} {'line' if n_lines == 1 else 'lines'}"
    return Content.assemble(f"{about:<20} ", (block.code.lstrip().split("\n", 1)[0], "dim")).truncate(60, ellipsis=True)
