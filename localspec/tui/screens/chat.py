"""The chat: draws what the session and the engine say, and turns keys into what the session does."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import ClassVar, Final

from textual import on
from textual.app import ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import Screen
from textual.widgets import Footer

from localspec.engine.client import Engine
from localspec.engine.events import (
    Cancelled,
    Failed,
    Finished,
    FinishReason,
    Loaded,
    LoadFailed,
    Loading,
    Prefilling,
    Queued,
)
from localspec.engine.requests import Mode, PairSpec
from localspec.errors import ContextFullError, LocalspecError
from localspec.tui.bridge import Decoded, EngineBridge, Report
from localspec.tui.code_blocks import code_blocks
from localspec.tui.conversation import Exchange
from localspec.tui.messages import EngineReported, PromptSent
from localspec.tui.options import ChatOptions, MemoryFigures
from localspec.tui.printable import printable
from localspec.tui.screens.copy import CopyDialog
from localspec.tui.screens.help import Entry, HelpDialog
from localspec.tui.screens.problem import ProblemDialog
from localspec.tui.session import Readiness, Session
from localspec.tui.widgets.loading import LoadingLine
from localspec.tui.widgets.origin_legend import OriginLegend
from localspec.tui.widgets.prompt import Prompt
from localspec.tui.widgets.reply import ReplyView
from localspec.tui.widgets.statistics import Statistics
from localspec.tui.widgets.transcript import Transcript
from localspec.tui.widgets.welcome import Welcome

_log = logging.getLogger(__name__)

_MEMORY_INTERVAL_S: Final = 2.0
_NEW_CHAT: Final = "New chat"
_TRY_AGAIN: Final = "Try again"
_MODES: Final = tuple(Mode)
_KEYS: Final = (
    Entry("Enter", "Send the prompt"),
    Entry("Ctrl+J, Shift+Enter", "New line"),
    Entry("Up, Down", "Earlier prompts, from the first and last line"),
    Entry("Page Up, Page Down", "Scroll the transcript"),
    Entry("Escape", "Stop the reply"),
    Entry("Ctrl+T", "Mode of the next reply: draft, lookup, plain"),
    Entry("Ctrl+O", "Replies by token origin"),
    Entry("Ctrl+Y", "Copy the reply or a code block"),
    Entry("Ctrl+R", "Ask for the last reply again"),
    Entry("F2", "Edit the last prompt"),
    Entry("Ctrl+N", "New chat"),
    Entry("Ctrl+P", "All commands"),
    Entry("Ctrl+C", "Copy what is selected; without a selection, stop the reply"),
    Entry("Ctrl+Q", "Quit"),
)


class ChatScreen(Screen[None]):
    """Transcript, statistics and prompt."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]  # noqa: RUF012 - declared like this by Screen
    VERTICAL_BREAKPOINTS = [(0, "-low"), (20, "-high")]  # noqa: RUF012

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop", "Stop"),
        Binding("ctrl+t", "next_mode", "Mode"),
        Binding("ctrl+o", "origins", "Origins"),
        Binding("ctrl+y", "copy", "Copy"),
        Binding("ctrl+r", "again", "Again"),
        Binding("f2", "edit", "Edit the last prompt", show=False),
        Binding("ctrl+n", "new_chat", "New"),
        Binding("f1", "help", "Help"),
    ]

    def __init__(self, engine: Engine, pair: PairSpec, options: ChatOptions) -> None:
        super().__init__()
        self._bridge = EngineBridge(self.post_message)
        self.session = Session(engine, pair, options, self._bridge.deliver)
        self._memory_probe = options.memory_probe
        self._by_origin = False
        self._welcome = Welcome(pair.name, options.notice)
        self._transcript = Transcript(self._welcome)
        self._legend = OriginLegend()
        self._loading = LoadingLine()
        self._statistics = Statistics(options.mode, options.num_speculative_tokens)
        self._prompt = Prompt()

    def compose(self) -> ComposeResult:
        """Everything but the footer shares the body, so that the statistics can stand beside all of it."""
        with Vertical(id="body"):
            yield self._transcript
            yield self._legend
            yield self._loading
            yield self._statistics
            yield self._prompt
        yield Footer(compact=True)

    def on_mount(self) -> None:
        """Load the models; the prompt can be written meanwhile."""
        self._legend.display = False
        self._prompt.focus()
        self._ask_for_memory()
        self.set_interval(_MEMORY_INTERVAL_S, self._ask_for_memory)
        self._load()

    # What the user does.

    @on(PromptSent)
    def send(self, message: PromptSent) -> None:
        """Ask for a reply. While one runs, the prompt stays where it is."""
        if self.session.open is not None:
            self.notify("Escape stops the reply that runs. Your prompt stays in the input.", title="One at a time")
            self._prompt.give_back(message.text)
        else:
            self._ask(message.text)

    @on(Prompt.Scrolled)
    def scroll(self, message: Prompt.Scrolled) -> None:
        """Page through the transcript from the prompt."""
        self._transcript.page(message.pages)

    def action_stop(self) -> None:
        """Stop the reply."""
        exchange = self.session.stop()
        if exchange is not None:
            self._end(exchange)

    def action_next_mode(self) -> None:
        """Use the next mode, from the next reply on."""
        self.use_mode(_MODES[(_MODES.index(self.session.mode) + 1) % len(_MODES)])

    def use_mode(self, mode: Mode) -> None:
        """Use a mode from the next reply on."""
        self.session.mode = mode
        self._statistics.show_next_mode(mode)

    def action_origins(self) -> None:
        """Colour the replies by token origin, or show them as Markdown again."""
        self._by_origin = not self._by_origin
        self._legend.display = self._by_origin
        self._transcript.show_origins(self._by_origin)

    def action_copy(self) -> None:
        """Copy the last reply, or ask which of its code blocks."""
        view = self._transcript.last_reply
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
        """Copy what is selected with the mouse."""
        super().action_copy_text()
        self.notify("The selection.", title="Copied")

    def action_again(self) -> None:
        """Ask for the last reply again."""
        if exchange := self._take_back():
            if self._prompt.text == exchange.prompt:  # a failure put it there
                self._prompt.text = ""
            self._ask(exchange.prompt)

    def action_edit(self) -> None:
        """Take the last prompt back into the input, and its reply away."""
        if (exchange := self._take_back()) and self._prompt.text != exchange.prompt:
            self._prompt.give_back(exchange.prompt)

    def action_new_chat(self) -> None:
        """Forget the conversation."""
        self.session.forget()
        self._transcript.clear()
        self._statistics.clear()
        self._legend.begin()
        self._prompt.focus()
        self.refresh_bindings()

    def action_help(self) -> None:
        """Show the keys and how to read the screen."""
        self.app.push_screen(HelpDialog(_KEYS))

    def commands(self) -> Iterator[SystemCommand]:
        """What the command palette offers."""
        for mode, what in zip(
            _MODES, ("the draft model", "repeats of the text so far", "nowhere: one token per step"), strict=True
        ):
            yield SystemCommand(
                f"Mode: {mode.value}", f"Drafts come from {what}", lambda mode=mode: self.use_mode(mode)
            )
        yield SystemCommand("Token origins", "Colour the replies by origin, or not", self.action_origins)
        yield SystemCommand("Copy", "The last reply, or a code block of it", self.action_copy)
        yield SystemCommand("Ask again", "Replace the last reply", self.action_again)
        yield SystemCommand("Edit the last prompt", "Take it back into the input", self.action_edit)
        yield SystemCommand("Stop the reply", "Keep what there is", self.action_stop)
        yield SystemCommand("New chat", "Forget the conversation", self.action_new_chat)
        yield SystemCommand("Help", "Keys and how to read the screen", self.action_help)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's signature
        """Stop is there while something can be stopped."""
        return self.session.open is not None if action == "stop" else True

    # What the engine says.

    @on(EngineReported)
    def draw(self) -> None:
        """Draw everything that has happened since the last time, at once."""
        for report in self._bridge.drain():
            try:
                exchange = self.session.take(report)
            except LocalspecError as error:
                self._fail(error)
                continue
            if isinstance(report, Loading | Loaded | LoadFailed):
                self._draw_load(report)
            elif exchange is not None and (view := self._transcript.last_reply) is not None:
                self._draw_reply(report, exchange, view)

    def _draw_load(self, report: Loading | Loaded | LoadFailed) -> None:
        match report:
            case Loading(what=what, fraction=fraction):
                self._loading.show(what, fraction)
            case Loaded():
                self._loading.hide()
                self._welcome.show_loaded(report)
                self._statistics.show_loaded(report)
                self._transcript.note(report.speculation_note)
                self._ask_for_memory()
            case LoadFailed(error=error):
                self._loading.hide()
                self._fail(error)

    def _draw_reply(self, report: Report, exchange: Exchange, view: ReplyView) -> None:
        match report:
            case Queued(mode_note=note):
                self._transcript.note(note)
            case Prefilling(n_done=n_done, n_total=n_total):
                view.show_status(f"reading the prompt, {n_done:,} of {n_total:,} tokens")
            case Decoded(spans=spans, steps=steps, metrics=metrics):
                view.grow(spans)
                view.show_status("" if not exchange.reply.is_empty else "thinking")
                self._statistics.advance(metrics, steps)
                self._legend.advance(steps)
            case Finished(spans=spans) | Cancelled(spans=spans):
                view.grow(spans)
                self._end(exchange)
            case Failed(error=error):
                self._end(exchange)
                self._show_problem(error)

    # The rest.

    def _load(self) -> None:
        try:
            self.session.load()
        except LocalspecError as error:
            self._fail(error)

    def _ask(self, prompt: str) -> None:
        try:
            exchange = self.session.send(prompt)
        except LocalspecError as error:
            self._prompt.give_back(prompt)
            self._show_problem(error)
            return
        view = self._transcript.add(exchange)
        view.show_status(
            "waiting for the engine" if self.session.readiness is Readiness.READY else "waiting for the models"
        )
        self._statistics.begin(exchange.reply.mode)
        self._legend.begin()
        self.refresh_bindings()

    def _end(self, exchange: Exchange) -> None:
        if view := self._transcript.last_reply:
            view.show_outcome()
        self._statistics.end(exchange.reply.metrics)
        if not exchange.is_history:
            self._prompt.give_back(exchange.prompt)
        if exchange.reply.reason is FinishReason.CONTEXT_FULL:
            self._transcript.note("The context is full. Ctrl+N starts a new chat.")
        self.refresh_bindings()

    def _fail(self, error: LocalspecError) -> None:
        """The models could not be loaded, or a prompt that waited for them not be submitted."""
        if exchange := self.session.withdraw():
            self._end(exchange)
        elif self.session.open is not None:
            return  # the engine was asked for a reply and will say itself that it failed
        self._show_problem(error)

    def _show_problem(self, error: LocalspecError) -> None:
        _log.info("shown to the user: %s: %s", type(error).__name__, error)
        remedies = {_NEW_CHAT: self.action_new_chat, _TRY_AGAIN: self._load}
        remedy = ""
        if isinstance(error, ContextFullError):
            remedy = _NEW_CHAT
        elif self.session.readiness is Readiness.FAILED:
            remedy = _TRY_AGAIN

        def act(choice: str | None) -> None:
            if choice in remedies:
                remedies[choice]()

        self.app.push_screen(ProblemDialog(error, remedy=remedy), act)

    def _take_back(self) -> Exchange | None:
        exchange = self.session.take_back()
        if exchange is None:
            self.notify(
                "There is no finished reply." if self.session.open is None else "Escape stops the reply that runs."
            )
        else:
            self._transcript.remove_last()
        return exchange

    def _ask_for_memory(self) -> None:
        # The probe asks drivers and the system, which may take milliseconds: not on the loop that draws.
        self.run_worker(self._probe_memory, group="memory", exclusive=True, thread=True)

    def _probe_memory(self) -> None:
        memory: MemoryFigures | None
        try:
            memory = self._memory_probe()
        except Exception:
            _log.exception("memory probe")
            memory = None
        self.app.call_from_thread(self._statistics.show_memory, memory)
