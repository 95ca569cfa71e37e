"""llama.cpp's own answers: one object for a reply, or one for each step and a last one, as `/completion` sends them.

Two things differ from llama-server, since a step may commit several tokens: a chunk of a stream may hold several
(`tokens` and `completion_probabilities` are lists there, too), and `id_slot` is always -1.
"""

from __future__ import annotations

import codecs
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from localspec.engine.events import (
    Finished,
    FinishReason,
    Prefilling,
    Queued,
    RequestEvent,
    StepDecoded,
    TextSpan,
    TokenChance,
    TokenLogprobs,
)
from localspec.server.statistics import prompt_progress, timings

__all__ = ["NativeReply", "pick_fields", "piece_text", "probabilities"]

# JSON has no infinity; this is what llama.cpp writes for a token that cannot come.
_LOWEST_LOGPROB: Final = -3.4028234663852886e38


@dataclass(slots=True)
class NativeReply:
    """Collects the events of one reply and tells it in llama.cpp's words.

    `settings` are those that `generation_settings` makes of the request; `prompt_text` is the prompt as text.
    """

    index: int
    model: str
    prompt_text: str
    settings: Mapping[str, Any]
    streams: bool = False
    returns_tokens: bool = False
    tells_timings: bool = False
    tells_progress: bool = False
    response_fields: Sequence[str] | None = None
    now: Callable[[], float] = time.monotonic
    _prefill_began_s: float | None = None
    _seed: int | None = None
    _has_new_line: bool = False
    _text: list[str] = field(default_factory=list)
    _tokens: list[int] = field(default_factory=list)
    _logprobs: list[TokenLogprobs] = field(default_factory=list)

    def chunk(self, event: RequestEvent) -> dict[str, Any] | None:
        """What a stream says after this event, if anything; the text is kept for `answer` if there is no stream."""
        if isinstance(event, Queued):
            self._seed = event.seed
        if isinstance(event, Prefilling) and self.tells_progress:
            return self._progress(event)
        if isinstance(event, Finished):
            text = self._add_text(event.spans)
            # The last object of a stream is `answer`; its text would be said twice if it were in both.
            return self._partial(event, text, (), ()) if text and self.streams else None
        if not isinstance(event, StepDecoded):
            return None
        text = self._add_text(event.spans)
        if self.streams:
            return self._partial(event, text, event.step.tokens, event.logprobs)
        self._tokens.extend(event.step.tokens if self.returns_tokens else ())
        self._logprobs.extend(event.logprobs)
        return None

    def answer(self, finished: Finished, queue_s: float = 0.0) -> dict[str, Any]:
        """The whole reply, or the end of the stream, after `chunk` has seen every event.

        `queue_s`: seconds that the request waited for its turn.
        """
        metrics = finished.metrics
        answer: dict[str, Any] = {
            "index": self.index,
            "content": "" if self.streams else "".join(self._text),
            "tokens": self._tokens,
            "id_slot": -1,
            "stop": True,
            "model": self.model,
            "tokens_predicted": metrics.n_tokens,
            "tokens_evaluated": metrics.n_prompt_tokens,
            "generation_settings": {"seed": self._seed, **self.settings},
            "prompt": self.prompt_text,
            "has_new_line": self._has_new_line,
            "truncated": finished.reason is FinishReason.CONTEXT_FULL,
            "stop_type": _stop_type(finished),
            "stopping_word": finished.stop or "",
            # What the cache holds now: all but the last token, which was never fed.
            "tokens_cached": metrics.n_prompt_tokens + max(0, metrics.n_tokens - 1),
            "timings": timings(metrics, queue_s),
        }
        if self._logprobs:
            answer["completion_probabilities"] = probabilities(self._logprobs)
        return pick_fields(answer, self.response_fields) if self.response_fields else answer

    def _add_text(self, spans: Sequence[TextSpan]) -> str:
        text = "".join(span.text for span in spans)
        self._has_new_line = self._has_new_line or "\n" in text
        if not self.streams:
            self._text.append(text)
        return text

    def _partial(
        self,
        event: StepDecoded | Finished,
        text: str,
        tokens: Sequence[int],
        logprobs: Sequence[TokenLogprobs],
    ) -> dict[str, Any]:
        chunk: dict[str, Any] = {
            "index": self.index,
            "content": text,
            "tokens": list(tokens),
            "stop": False,
            "id_slot": -1,
            "tokens_predicted": event.metrics.n_tokens,
            "tokens_evaluated": event.metrics.n_prompt_tokens,
        }
        if self.tells_timings:
            chunk["timings"] = timings(event.metrics)
        if logprobs:
            chunk["completion_probabilities"] = probabilities(logprobs)
        return chunk

    def _progress(self, event: Prefilling) -> dict[str, Any]:
        began_s = self._prefill_began_s = self._prefill_began_s or self.now()
        return {
            "index": self.index,
            "content": "",
            "tokens": [],
            "stop": False,
            "id_slot": -1,
            "tokens_predicted": 0,
            "tokens_evaluated": event.n_total,
            "prompt_progress": prompt_progress(event, self.now() - began_s),
        }


def probabilities(logprobs: Sequence[TokenLogprobs]) -> list[dict[str, Any]]:
    """`completion_probabilities`: each token with its log-probability, and the likeliest in its place."""
    return [
        _chance(token.chosen) | {"top_logprobs": [_chance(other) for other in token.likeliest]} for token in logprobs
    ]


def _chance(chance: TokenChance) -> dict[str, Any]:
    return {
        "id": chance.token,
        "token": piece_text(chance.piece),
        "bytes": list(chance.piece),
        "logprob": max(chance.logprob, _LOWEST_LOGPROB),
    }


def piece_text(piece: bytes) -> str:
    """The text of a token: without a character that only begins in it; other bytes that are no text become U+FFFD."""
    return codecs.getincrementaldecoder("utf-8")("replace").decode(piece)


def pick_fields(answer: Mapping[str, Any], paths: Sequence[str]) -> dict[str, Any]:
    """The named fields, without unknown ones; "timings/prompt_n" is `prompt_n` of `timings`, under that whole name."""
    picked = {}
    for path in paths:
        value: Any = answer
        for key in path.split("/"):
            if not isinstance(value, Mapping) or key not in value:
                break
            value = value[key]
        else:
            picked[path] = value
    return picked


def _stop_type(finished: Finished) -> str:
    """llama.cpp's word for why a reply ended: limits of lines and of the context are limits."""
    if finished.reason is not FinishReason.STOP:
        return "limit"
    return "eos" if finished.stop is None else "word"
