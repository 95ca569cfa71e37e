"""Everything between the top of the window and its footer, and how the engine's reports change it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from textual.app import ComposeResult
from textual.containers import Vertical

from localspec.engine.events import (
    Cancelled,
    Finished,
    FinishReason,
    Loaded,
    LoadFailed,
    Loading,
    Prefilling,
    Queued,
    SwapFailed,
)
from localspec.engine.requests import Mode, PairSpec
from localspec.printable import one_line
from localspec.tui.bridge import Decoded, LoadReport, Report, Swapped
from localspec.tui.conversation import Exchange
from localspec.tui.options import ChatOptions
from localspec.tui.widgets.download_line import DownloadLine
from localspec.tui.widgets.loading import LoadingLine
from localspec.tui.widgets.origin_legend import OriginLegend
from localspec.tui.widgets.prompt import Prompt
from localspec.tui.widgets.reply import ReplyView
from localspec.tui.widgets.statistics import Statistics
from localspec.tui.widgets.transcript import Transcript
from localspec.tui.widgets.welcome import Welcome

if TYPE_CHECKING:
    from localspec.pairing.downloads import Download

_NO_TEMPLATE: Final = "The target carries no chat template: ChatML is assumed, and the replies may suffer."


class ChatView(Vertical):
    """Transcript, statistics and prompt. It shows what it is told and decides nothing."""

    def __init__(self, pair: PairSpec | None, options: ChatOptions) -> None:
        super().__init__()
        self._server = options.server
        self._welcome = Welcome(
            pair.name if pair else "", options.notice, invites=options.is_first_run, server=options.server
        )
        self._has_pair = pair is not None
        self._loaded: Loaded | None = None
        self._download_line = DownloadLine()
        self._legend = OriginLegend()
        self._loading_line = LoadingLine()
        self._mode = options.mode
        self._statistics = Statistics(
            options.mode,
            options.num_speculative_tokens,
            options.memory_probe,
            is_remote=bool(options.server),
        )
        self.transcript = Transcript(self._welcome)
        self.prompt = Prompt()

    def compose(self) -> ComposeResult:
        """From top to bottom; a wide window has the statistics on the right."""
        yield self.transcript
        yield self._legend
        yield self._loading_line
        yield self._download_line
        yield self._statistics
        yield self.prompt

    def on_mount(self) -> None:
        """The legend belongs to the origin view."""
        self._legend.display = False
        self._loading_line.display = self._has_pair

    @property
    def last_reply(self) -> ReplyView | None:
        """The newest reply."""
        return self.transcript.last_reply

    def show_load(self, report: LoadReport) -> None:
        """How the models load."""
        match report:
            case Loading(what=what, fraction=fraction):
                self._loading_line.show(what, fraction)
            case Loaded():
                self._show_loaded(report)
            case Swapped(loaded=loaded):
                self._show_loaded(loaded)
            case SwapFailed(loaded=Loaded() as loaded):
                self._show_loaded(loaded)
            case LoadFailed() | SwapFailed():
                self._loading_line.hide()

    def show_choice(self, pair: PairSpec) -> None:
        """Another pair will be loaded."""
        self._welcome.show_choice(pair.name)
        self._loading_line.show(f"Loading {pair.name}", 0.0)

    def show_ceiling(self, num_speculative_tokens: int | None) -> None:
        """The most that is drafted at once from the next reply on."""
        self._statistics.show_ceiling(num_speculative_tokens)

    def show_downloads(self, rows: Sequence[Download]) -> None:
        """How downloads stand."""
        self._download_line.look(rows)

    def _show_loaded(self, loaded: Loaded) -> None:
        self._loading_line.hide()
        self._welcome.show_loaded(loaded)
        self._statistics.show_loaded(loaded)
        before, self._loaded = self._loaded, loaded
        change = _change(before, loaded, is_remote=bool(self._server)) if before is not None else ""
        template_note = "" if loaded.has_chat_template else _NO_TEMPLATE
        self.transcript.note("\n".join(filter(None, (change, loaded.speculation_note, template_note))))

    def begin(self, exchange: Exchange, status: str) -> None:
        """A prompt was sent; `status` is what its reply waits for."""
        self.transcript.add(exchange).show_status(status)
        self._statistics.begin(exchange.reply.mode or self._mode)
        self._legend.begin()

    def show_progress(self, report: Report, exchange: Exchange) -> None:
        """How the open reply goes."""
        view = self.last_reply
        if view is None:
            return
        match report:
            case Queued(mode=mode, mode_note=note):
                self._statistics.show_running_mode(mode)
                self.transcript.note(note)
            case Prefilling(n_for_draft=n_for_draft) if n_for_draft and report.n_done >= report.n_total - 1:
                view.show_status(f"the draft model reads the prompt, {n_for_draft:,} tokens to go")
            case Prefilling(n_done=n_done, n_total=n_total):
                view.show_status(f"reading the prompt, {n_done:,} of {n_total:,} tokens")
            case Decoded(steps=steps, metrics=metrics):
                view.grow()
                is_thinking, is_empty = exchange.reply.is_thinking, exchange.reply.is_empty
                view.show_status("thinking" if is_thinking else "writing" if is_empty else "")
                self._statistics.advance(metrics, steps)
                self._legend.advance(steps)
            case Finished() | Cancelled():
                view.grow()

    def end(self, exchange: Exchange) -> None:
        """The reply has ended. A prompt that was not answered goes back to where it was written."""
        if view := self.last_reply:
            view.show_outcome()
        self._statistics.end(exchange.reply.metrics)
        if not exchange.is_history:
            self.prompt.give_back(exchange.prompt)
        if exchange.reply.reason is FinishReason.CONTEXT_FULL:
            self.transcript.note("The context is full. Ctrl+N starts a new chat.")

    def show_next_mode(self, mode: Mode) -> None:
        """The mode of the next reply."""
        self._statistics.show_next_mode(mode)

    def show_origins(self, by_origin: bool) -> None:
        """Show the replies by token origin, or as Markdown."""
        self._legend.display = by_origin
        self.transcript.show_origins(by_origin)

    def clear(self) -> None:
        """An empty chat."""
        self.transcript.clear()
        self._statistics.clear()
        self._legend.begin()
        self.prompt.focus()


def _change(before: Loaded, now: Loaded, *, is_remote: bool) -> str:
    """Who answers from here on, if that is somebody else than before."""
    if (before.target_name, before.draft_name) == (now.target_name, now.draft_name):
        return ""
    if is_remote:
        return f"From here on {one_line(now.target_name)} answers."
    draft = one_line(now.draft_name) if now.draft_name else "no draft model"
    if before.target_name == now.target_name:
        return f"The draft model from here on: {draft}."
    return f"From here on {one_line(now.target_name)} answers, with {draft}."
