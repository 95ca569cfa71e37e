"""A reply as it comes, taken apart: reasoning, content, tool calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from localspec.server.reasoning import CHANNELS, Reasoning
from localspec.server.tool_calls.calls import CallSink, NotACallError
from localspec.server.tool_calls.deltas import ContentDelta, Delta, ReasoningDelta, ToolCallStart
from localspec.server.tool_calls.format import ToolFormat
from localspec.server.tool_calls.harmony import take_message
from localspec.server.tool_calls.source import (
    WHITESPACE,
    Reading,
    Source,
    next_char,
    take_literal,
    take_space,
    take_until,
)


class ReplyParser:
    """Feed it the reply's text in any pieces; the same text gives the same deltas, put together.

    What only looks like a call is content. Left out are the marks around reasoning and calls, white space that borders
    on them, and nothing else.
    """

    def __init__(
        self,
        tool_format: ToolFormat | None,
        reasoning: Reasoning | None,
        starts_in_reasoning: bool = False,
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        tells_reasoning: bool = True,
    ) -> None:
        """`tools`: those that the reply may call (of `read_tools`); without them nothing is a call.

        `tells_reasoning` false: reasoning is content, with the marks around it, and no call begins within it.
        """
        self._format = tool_format if tools else None
        self._reasoning = reasoning
        self._starts_in_reasoning = starts_in_reasoning
        self._tells_reasoning = tells_reasoning
        self._source = Source()
        self._deltas: list[Delta] = []
        self._content = _Passage(lambda text: self._deltas.append(ContentDelta(text)))
        self._calls = CallSink(self._source, tools, self._add_call)
        is_channelled = reasoning is not None and reasoning.in_channels
        self._reader = self._read_channels() if is_channelled else self._read_reply()
        next(self._reader)

    def push(self, text: str) -> list[Delta]:
        """What is certain of the reply with this piece."""
        if text:
            self._source.feed(text)
            self._reader.send(None)
        return self._drained()

    def finish(self) -> list[Delta]:
        """The reply has ended: what was held back."""
        self._source.has_ended = True
        for _ in self._reader:
            pass
        self._content.end()
        return self._drained()

    @property
    def n_calls(self) -> int:
        """How many tool calls have begun."""
        return self._calls.n_begun

    def _drained(self) -> list[Delta]:
        deltas = list(self._deltas)
        self._deltas.clear()
        return deltas

    def _add_call(self, delta: Delta) -> None:
        if isinstance(delta, ToolCallStart):
            self._content.cut()
        self._deltas.append(delta)

    def _thought(self) -> _Passage:
        if not self._tells_reasoning:
            return self._content
        passage = _Passage(lambda text: self._deltas.append(ReasoningDelta(text)))
        passage.strips_start = True
        return passage

    def _read_reply(self) -> Reading[None]:
        # The first piece is waited for, so that a new parser has something to be told.
        yield
        answer_end = ""
        if self._reasoning is not None and (yield from self._opens_reasoning(self._reasoning)):
            yield from self._read_reasoning(self._reasoning)
            answer_end = yield from self._take_answer_start(self._reasoning)
        yield from self._read_content(answer_end)
        while (yield from next_char(self._source)):
            # What comes after the answer's end.
            yield from self._read_content("")

    def _opens_reasoning(self, reasoning: Reasoning) -> Reading[bool]:
        source = self._source
        source.hold()
        yield from take_space(source)
        opens = yield from take_literal(source, reasoning.opening)
        if opens or self._starts_in_reasoning:
            # A model that repeats the mark which the prompt ends with is forgiven.
            source.release()
            if opens and not self._tells_reasoning:
                self._content.add(reasoning.opening)
            return True
        source.rewind()
        return False

    def _read_reasoning(self, reasoning: Reasoning) -> Reading[None]:
        thought = self._thought()
        yield from take_until(self._source, (reasoning.closing,), thought.add)
        is_closed = yield from take_literal(self._source, reasoning.closing)
        if self._tells_reasoning:
            self._content.strips_start = True
        elif is_closed:
            self._content.add(reasoning.closing)

    def _take_answer_start(self, reasoning: Reasoning) -> Reading[str]:
        """The mark that will end the answer, if it has begun with one."""
        start, end = reasoning.answer
        if not start:
            return ""
        yield from take_space(self._source)
        return end if (yield from take_literal(self._source, start)) else ""

    def _read_content(self, answer_end: str) -> Reading[None]:
        """Content and calls, to the answer's or the reply's end."""
        form, source = self._format, self._source
        openings = form.openings if form else ()
        markers = (*openings, answer_end) if answer_end else openings
        if form and form.stands_bare:
            yield from self._try(form)
        while marker := (yield from take_until(source, markers, self._content.add)):
            if marker == answer_end:
                source.take(len(marker))
                self._content.cut()
                return
            if form and not (yield from self._try(form)):
                self._content.add(source.take(len(marker)))

    def _try(self, form: ToolFormat) -> Reading[bool]:
        """Read calls that may begin here; whether there was one. What is none is left unread."""
        source, calls = self._source, self._calls
        n_before = calls.n_begun
        source.hold()
        try:
            yield from take_space(source)
            yield from form.read(source, calls)
        except NotACallError:
            if calls.is_open:
                # Broken off or broken: what was passed on stands.
                calls.is_open = False
                return True
        source.rewind()
        return calls.n_begun > n_before

    def _read_channels(self) -> Reading[None]:
        yield
        starts = self._starts_in_reasoning
        self._content.strips_start = True
        while (yield from next_char(self._source)):
            if self._format is None or starts or not (yield from self._try(self._format)):
                yield from self._read_message(starts)
            starts = False

    def _read_message(self, starts_in_reasoning: bool) -> Reading[None]:
        thought, opening = self._thought(), "" if starts_in_reasoning else CHANNELS.opening
        is_marked = False

        def think(text: str) -> None:
            nonlocal is_marked
            if not (is_marked or self._tells_reasoning):
                thought.add(opening)
            is_marked = True
            thought.add(text)

        has_ended = yield from take_message(
            self._source, think, self._content.add, starts_in_reasoning=starts_in_reasoning
        )
        if is_marked and has_ended and not self._tells_reasoning:
            thought.add(CHANNELS.closing)


class _Passage:
    """Text of one kind, whose white space at the borders is dropped: it waits until more text follows."""

    def __init__(self, emit: Callable[[str], None]) -> None:
        self._emit = emit
        self._space = ""
        self._is_cut = False
        self.strips_start = False

    def add(self, text: str) -> None:
        text = self._space + text
        if self.strips_start:
            text = text.lstrip(WHITESPACE)
        kept = text.rstrip(WHITESPACE)
        self._space = text[len(kept) :]
        if kept:
            self.strips_start = self._is_cut = False
            self._emit(kept)

    def cut(self) -> None:
        """Something else begins here."""
        self._space = ""
        self._is_cut = True

    def end(self) -> None:
        """The reply's end: the white space there is text, unless nothing but a call is before it."""
        if self._space and not self._is_cut:
            self._emit(self._space)
