"""The grammar of one reply: awake from its start, or from where the text so far ends with a trigger.

llama.cpp can wait for triggers too, but searches the whole reply with `std::regex` at every token: that takes
milliseconds in long replies, recurses as deep as a match is long, and ends the process where one is not valid. So the
waiting is done here, and the native sampler begins where the trigger was found, maybe in the middle of a token.
"""

from __future__ import annotations

import re
from typing import Any, Final, Self

import llama_cpp

from localspec.errors import UsageError
from localspec.llama.grammar import grammar_sampler, grammar_source
from localspec.llama.model import Model
from localspec.llama.sampling_params import SamplingParams

# Triggers are looked for in so many bytes at the text's end: far more than any of them matches.
_WINDOW: Final = 2048


class ReplyGrammar:
    """The state of a request's grammar over the tokens of its reply."""

    def __init__(self, model: Model, source: str, params: SamplingParams) -> None:
        """Check the grammar, and wake it up unless it has triggers.

        Raises:
            UsageError: the grammar or a trigger is not valid.
        """
        self._model = model
        self._source = source
        self._triggers = [_compiled(trigger) for trigger in params.grammar_triggers]
        self._passage = params.grammar_passes_over if self._triggers else None
        self._text = b""
        self._tokens: list[int] = []
        # What the native sampler does at the moment; None while the grammar sleeps.
        self.handle: Any = grammar_sampler(model, source)
        if self._triggers:
            self.close()

    @classmethod
    def of(cls, model: Model, params: SamplingParams) -> Self | None:
        """The request's grammar, if it has one."""
        source = grammar_source(params)
        return None if source is None else cls(model, source, params)

    def close(self) -> None:
        """Free the native sampler. Repeated calls do nothing."""
        handle, self.handle = self.handle, None
        if handle is not None:
            llama_cpp.llama_sampler_free(handle)

    def accept(self, token: int) -> None:
        """Advance over a committed token."""
        if self.handle is not None:
            llama_cpp.llama_sampler_accept(self.handle, token)
            return
        self._tokens.append(token)
        self._text += self._model.token_bytes(token, special=True)
        if self._passage is not None and not self._is_past(*self._passage):
            return
        for trigger in self._triggers:
            match = trigger.search(self._text, max(0, len(self._text) - _WINDOW))
            if match is not None:
                self._wake_up(match.start(1) if match.re.groups and match.start(1) >= 0 else match.start())
                return

    def copy_from(self, other: ReplyGrammar) -> None:
        """Take over the state of the same grammar elsewhere."""
        self._text, self._tokens, self._passage = other._text, other._tokens.copy(), other._passage
        if other.handle is None:
            self.close()
        elif self.handle is None:
            self.handle = llama_cpp.llama_sampler_clone(other.handle)
        else:
            llama_cpp.llama_sampler_copy(other.handle, self.handle)

    def _is_past(self, opening: str, closing: str) -> bool:
        """Whether the text is after the passage without triggers, or has none. The text then begins after it."""
        text, start, end = self._text.lstrip(), opening.encode(), closing.encode()
        if not text.startswith(start):
            if start.startswith(text):
                return False
        else:
            place = self._text.find(end, max(0, len(self._text) - _WINDOW))
            if place < 0:
                return False
            self._text = self._text[place + len(end) :]
        self._passage = None
        return True

    def _wake_up(self, start: int) -> None:
        """Let the native sampler see the text from its byte `start` on."""
        first, place = len(self._tokens), len(self._text)
        while place > start:
            first -= 1
            place -= len(self._model.token_bytes(self._tokens[first], special=True))
        # A lazy one would let the next token pass where it begins after the text so far.
        n_skipped = start - place if first < len(self._tokens) else None
        self.handle = grammar_sampler(self._model, self._source, n_skipped_bytes=n_skipped)
        for token in self._tokens[first:]:
            llama_cpp.llama_sampler_accept(self.handle, token)


def _compiled(trigger: str) -> re.Pattern[bytes]:
    try:
        return re.compile(f"(?:{trigger})\\Z".encode())
    except (re.error, RecursionError) as error:
        raise UsageError(f"A grammar trigger is not a regular expression: {error}.") from error
