"""The chat: turns keys into what the session does, and the engine's reports into what the view shows."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from textual import on
from textual.app import ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Footer

from localspec.engine.client import Engine
from localspec.engine.events import Failed, Loaded, LoadFailed, Loading, SwapFailed
from localspec.engine.requests import Mode, PairSpec
from localspec.errors import ContextFullError, LocalspecError
from localspec.printable import printable
from localspec.tui.bridge import EngineBridge, LoadReport, Report, Swapped
from localspec.tui.code_blocks import code_blocks
from localspec.tui.conversation import Exchange, Outcome
from localspec.tui.messages import EngineReported, PairsAsked, PromptSent, ReplyEnded
from localspec.tui.options import ChatOptions
from localspec.tui.screens.copy import CopyDialog
from localspec.tui.screens.help import HelpDialog
from localspec.tui.screens.problem import ProblemDialog
from localspec.tui.session import Readiness, Session
from localspec.tui.widgets.chat_view import ChatView
from localspec.tui.widgets.prompt import Prompt

if TYPE_CHECKING:
    from localspec.pairing.downloads import Download

_log = logging.getLogger(__name__)

_NEW_CHAT: Final = "New chat"
_TRY_AGAIN: Final = "Try again"

# In the order in which the key walks through them.
_MODES: Final = {
    Mode.AUTO: "Each step drafts in the way that promises most, or not at all",
    Mode.DRAFT: "Drafts come from the draft model",
    Mode.LOOKUP: "Drafts are copied from the text so far",
    Mode.PLAIN: "No drafts: one token per step",
}


class ChatScreen(Screen[None]):
    """The one screen of the program; dialogs open over it."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]  # noqa: RUF012 - declared like this by Screen
    VERTICAL_BREAKPOINTS = [(0, "-low"), (20, "-high")]  # noqa: RUF012

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop", "Stop"),
        Binding("ctrl+t", "next_mode", "Mode"),
        Binding("ctrl+o", "origins", "Origins"),
        Binding("ctrl+y", "copy", "Copy"),
        Binding("ctrl+r", "again", "Again", show=False),
        Binding("f3", "edit", "Edit the last prompt", show=False),
        Binding("ctrl+n", "new_chat", "New"),
        Binding("f1", "help", "Help"),
        Binding("f2", "pairs", "Pair"),
    ]

    def __init__(self, engine: Engine, pair: PairSpec | None, options: ChatOptions) -> None:
        super().__init__()
        self._bridge = EngineBridge(self.post_message)
        self._view = ChatView(pair, options)
        self._has_pairs = options.pairs is not None
        self._server = options.server
        self._options = options
        self._by_origin = False
        self.session = Session(engine, pair, options, self._bridge.deliver)

    def compose(self) -> ComposeResult:
        """The chat over the keys."""
        yield self._view
        yield Footer(compact=True)

    def on_mount(self) -> None:
        """Load the models; the prompt can be written meanwhile."""
        self._view.prompt.focus()
        self._load()

    # What the user does.

    @on(PromptSent)
    def send(self, message: PromptSent) -> None:
        """Ask for a reply. While one runs, or without a model, the prompt goes back to the input."""
        if self.session.readiness is Readiness.EMPTY:
            self.notify("F2 chooses models. Your prompt stays in the input.", title="No models are loaded")
            self._view.prompt.give_back(message.text)
        elif self.session.open is not None:
            self.notify("Escape stops the reply that runs. Your prompt stays in the input.", title="One at a time")
            self._view.prompt.give_back(message.text)
        else:
            self._ask(message.text)

    @on(Prompt.Scrolled)
    def scroll(self, message: Prompt.Scrolled) -> None:
        """Page through the transcript from the prompt."""
        self._view.transcript.page(message.pages)

    def action_stop(self) -> None:
        """Stop the reply."""
        if exchange := self.session.stop():
            self._end(exchange)

    def action_next_mode(self) -> None:
        """Use the next mode, from the next reply on."""
        if not self.session.takes_modes:
            self._say_of_server("It drafts, or not, as it was started; only localspec's own server takes a mode.")
            return
        modes = list(self._modes)
        # A chat that was started in a mode without a key to it runs like auto, which is the first.
        at = modes.index(self.session.mode) if self.session.mode in modes else 0
        self.use_mode(modes[(at + 1) % len(modes)])

    def use_mode(self, mode: Mode) -> None:
        """Use a mode from the next reply on."""
        self.session.mode = mode
        self._view.show_next_mode(mode)

    def action_origins(self) -> None:
        """Show the replies by token origin, or as Markdown again."""
        if self._server:
            self._say_of_server("It does not tell where its tokens come from.")
            return
        self._by_origin = not self._by_origin
        self._view.show_origins(self._by_origin)

    def action_copy(self) -> None:
        """Copy the last reply, or ask which of its code blocks."""
        view = self._view.last_reply
        text = printable(view.reply.text) if view else ""
        if not text:
            self.notify("There is no reply to copy.")
        elif blocks := code_blocks(text):
            self.app.push_screen(CopyDialog(text, blocks), self.copy)
        else:
            self.copy(text)

    def copy(self, text: str | None) -> None:
        """Hand a text to the terminal's clipboard."""
        if text:
            self.app.copy_to_clipboard(text)
            self.notify(f"{len(text):,} characters, through the terminal.", title="Copied")

    def action_copy_text(self) -> None:
        """Copy what is selected with the mouse; without a selection the key means something else."""
        super().action_copy_text()
        self.notify("The selection, through the terminal.", title="Copied")

    def action_again(self) -> None:
        """Ask for the last reply again."""
        if exchange := self._take_back():
            self._ask(exchange.prompt)

    def action_edit(self) -> None:
        """Take the last prompt back into the input, and its reply away."""
        if exchange := self._take_back():
            self._view.prompt.give_back(exchange.prompt)

    def action_new_chat(self) -> None:
        """Forget the conversation."""
        self.session.forget()
        self._view.clear()
        self.refresh_bindings()
        self.post_message(ReplyEnded())

    def action_pairs(self) -> None:
        """Choose models."""
        if self._server:
            self._say_of_server("Its models are chosen where it is started. Without --endpoint, models run here.")
        else:
            self.post_message(PairsAsked())

    def use_pair(self, pair: PairSpec) -> None:
        """Load another pair, or exchange the draft model where the target stays; no reply may be running."""
        try:
            is_other = self.session.use(pair)
        except LocalspecError as error:
            self._fail(error)
            return
        if is_other:
            self._view.show_choice(pair)
        else:
            self.notify("This pair is loaded already.")

    def use_drafting(self, mode: Mode, num_speculative_tokens: int | None, fixed_length: bool) -> None:
        """Draft so from the next reply on, since it suits the pair."""
        self._options.num_speculative_tokens = num_speculative_tokens
        self._options.fixed_length = fixed_length
        self._view.show_ceiling(num_speculative_tokens)
        self.use_mode(mode)

    def show_downloads(self, rows: Sequence[Download]) -> None:
        """How downloads stand."""
        self._view.show_downloads(rows)

    def action_help(self) -> None:
        """Show the keys and how to read the screen."""
        self.app.push_screen(HelpDialog())

    def commands(self) -> Iterator[SystemCommand]:
        """What the command palette offers."""
        for mode, help_text in self._modes.items() if self.session.takes_modes else ():
            yield SystemCommand(f"Mode: {mode.value}", help_text, lambda mode=mode: self.use_mode(mode))
        if not self._server:
            yield SystemCommand("Token origins", "Show the replies by token origin, or not", self.action_origins)
        yield SystemCommand("Copy", "The last reply, or a code block of it", self.action_copy)
        yield SystemCommand("Ask again", "Replace the last reply", self.action_again)
        yield SystemCommand("Edit the last prompt", "Take it back into the input", self.action_edit)
        yield SystemCommand("Stop the reply", "Keep what there is", self.action_stop)
        yield SystemCommand("New chat", "Forget the conversation", self.action_new_chat)
        if self._has_pairs:
            yield SystemCommand("Pair: choose models", "Target, draft model and downloads", self.action_pairs)
        yield SystemCommand("Help", "Keys, and how to read the screen", self.action_help)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's signature
        """Stop is there while something can be stopped, and the choice of models where there is one."""
        if action == "stop":
            return self.session.open is not None
        return self._has_pairs or bool(self._server) if action == "pairs" else True

    # What the engine says.

    @on(EngineReported)
    def draw(self) -> None:
        """Show everything that has happened since the last time, at once."""
        for report in self._bridge.drain():
            exchange = self.session.take(report)
            if isinstance(report, Loading | Loaded | LoadFailed | Swapped | SwapFailed):
                self._draw_load(report)
            elif exchange is not None:
                self._draw_reply(report, exchange)

    def _draw_load(self, report: LoadReport) -> None:
        self._view.show_load(report)
        if self.session.mode is Mode.DRAFT and Mode.DRAFT not in self._modes:
            self.use_mode(Mode.AUTO)
        try:
            self.session.submit_waiting()
        except LocalspecError as error:
            self._fail(error)
        if isinstance(report, LoadFailed) or (isinstance(report, SwapFailed) and report.loaded is None):
            self._fail(report.error)
        elif isinstance(report, SwapFailed):
            self._show_problem(report.error)

    def _draw_reply(self, report: Report, exchange: Exchange) -> None:
        self._view.show_progress(report, exchange)
        if exchange.reply.outcome is not Outcome.OPEN:
            self._end(exchange)
        if isinstance(report, Failed):
            self._show_problem(report.error)

    # The rest.

    @property
    def _modes(self) -> dict[Mode, str]:
        """Those with a key to them. Without a draft model, auto is lookup."""
        pair, loaded = self.session.pair, self.session.loaded
        if self._server:
            has_draft = loaded is not None and loaded.draft_name is not None
        else:
            has_draft = pair is None or pair.draft is not None
        return _MODES if has_draft else {mode: _MODES[mode] for mode in (Mode.AUTO, Mode.PLAIN)}

    def _load(self) -> None:
        try:
            self.session.load()
        except LocalspecError as error:
            self._fail(error)

    def _ask(self, prompt: str) -> None:
        try:
            exchange = self.session.send(prompt)
        except LocalspecError as error:
            self._view.prompt.give_back(prompt)
            self._show_problem(error)
            return
        is_ready = self.session.readiness is Readiness.READY
        awaited = "server" if self._server else "engine" if is_ready else "models"
        self._view.begin(exchange, f"waiting for the {awaited}")
        self.refresh_bindings()

    def _end(self, exchange: Exchange) -> None:
        self._view.end(exchange)
        self.refresh_bindings()
        self.post_message(ReplyEnded())

    def _fail(self, error: LocalspecError) -> None:
        """The models could not be loaded, or the prompt that waited for them not be submitted."""
        if exchange := self.session.withdraw():
            self._end(exchange)
        elif self.session.open is not None:
            return  # the engine was asked for a reply and will itself say that it failed
        self._show_problem(error)

    def _show_problem(self, error: LocalspecError) -> None:
        _log.info("shown to the user: %s: %s", type(error).__name__, error)
        remedy = ""
        if isinstance(error, ContextFullError):
            remedy = _NEW_CHAT
        elif self.session.readiness is Readiness.FAILED:
            remedy = _TRY_AGAIN
        self.app.push_screen(ProblemDialog(error, remedy=remedy, loses_something=remedy == _NEW_CHAT), self._apply)

    def _apply(self, remedy: str | None) -> None:
        if remedy == _NEW_CHAT:
            self.action_new_chat()
        elif remedy == _TRY_AGAIN:
            self._load()

    def _say_of_server(self, text: str) -> None:
        self.notify(text, title="A server answers")

    def _take_back(self) -> Exchange | None:
        exchange = self.session.take_back()
        if exchange is None:
            is_open = self.session.open is not None
            self.notify("Escape stops the reply that runs." if is_open else "There is no reply yet.")
            return None
        self._view.transcript.remove_last()
        self._view.prompt.take_out(exchange.prompt)
        return exchange
