"""One reply in the transcript."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from localspec.engine.events import FinishReason
from localspec.printable import printable
from localspec.tui import figures
from localspec.tui.conversation import Outcome, Reply
from localspec.tui.markdown_text import link_definitions
from localspec.tui.origins import OriginPieces
from localspec.tui.pieces import MarkdownPieces, Pieces
from localspec.tui.widgets.passage import Passage


class ReplyView(Vertical):
    """The text of a reply, as Markdown or by origin, and a line below that says how it stands.

    Only the last passage changes while the reply grows; the others are laid out once.
    """

    def __init__(self, reply: Reply, *, by_origin: bool) -> None:
        super().__init__()
        self.reply = reply
        self._by_origin = by_origin
        self._pieces = self._new_pieces()
        self._n_shown = 0  # spans
        self._last: Passage | None = None
        self._is_composed = False
        self._status = Static(classes="status", markup=False)
        self._status_text: str | None = None

    def compose(self) -> ComposeResult:
        """The status line; passages are mounted above it as they come."""
        yield self._status

    def on_mount(self) -> None:
        """Show what was written before there was a place for it."""
        self._is_composed = True
        self.grow()

    def grow(self) -> None:
        """Show text that was added to the reply."""
        spans = self.reply.spans[self._n_shown :]
        if not spans or not self._is_composed:
            return
        self._n_shown += len(spans)
        first, *rest = self._pieces.feed(spans)
        passages = [Passage(typeset) for typeset in rest]
        if self._last is None:
            passages.insert(0, Passage(first))
            self.add_class("-written")
        else:
            self._last.show(first)
        if passages:
            self._last = passages[-1]
            self.mount(*passages, before=self._status)

    def show_origins(self, by_origin: bool) -> None:
        """Show the whole reply the one way or the other."""
        if by_origin == self._by_origin:
            return
        self._by_origin = by_origin
        self.query(Passage).remove()
        self._last = None
        self._pieces = self._new_pieces()
        self._n_shown = 0
        self.grow()

    def show_status(self, text: str) -> None:
        """What the reply waits for; an empty text hides the line."""
        if text != self._status_text:  # each update is a layout of the whole screen
            self._status_text = text
            self._status.update(Content(text))
            self._status.display = bool(text)

    def show_outcome(self) -> None:
        """How the reply ended."""
        self.set_class(self.reply.outcome is Outcome.FAILED, "-failed")
        self.show_status(summary(self.reply))
        self._resolve_links()

    def _resolve_links(self) -> None:
        """Models define their links at the end, where the passages above could not know them."""
        if self._last is not None and not self._by_origin and link_definitions(printable(self.reply.text)):
            for passage, typeset in zip(self.query(Passage), self._new_pieces().feed(self.reply.spans), strict=True):
                passage.show(typeset)

    def _new_pieces(self) -> Pieces:
        if self._by_origin:
            return OriginPieces()
        is_complete = self.reply.outcome is not Outcome.OPEN
        return MarkdownPieces(link_definitions(printable(self.reply.text)) if is_complete else None)


def summary(reply: Reply) -> str:
    """One line on a reply that has ended."""
    parts = []
    match reply.outcome:
        case Outcome.STOPPED:
            parts.append("stopped" if not reply.is_empty else "stopped before the first word; the prompt is back below")
        case Outcome.FAILED:
            parts.append("failed; the prompt is back below")
        case _ if reply.is_empty:
            parts.append("an empty reply")
    match reply.reason:
        case FinishReason.LENGTH:
            parts.append("cut at the token limit")
        case FinishReason.CONTEXT_FULL:
            parts.append("cut where the context is full")
    metrics = reply.metrics
    if metrics is not None and metrics.n_tokens:
        if reply.mode is not None:
            parts.append(f"{reply.mode.value} mode")
        parts.append(f"{figures.count(metrics.n_tokens)} tokens")
        if metrics.tokens_per_second is not None:
            parts.append(f"{figures.rate(metrics.tokens_per_second)} tokens/s")
        if metrics.draft_acceptance_rate is not None:
            parts.append(f"{figures.percent(metrics.draft_acceptance_rate)} accepted")
    return " · ".join(parts)
