"""One response while it is generated: the engine's events in, OpenAI's events out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from localspec.engine.events import Finished, FinishReason, RequestEvent, StepDecoded, TokenLogprobs
from localspec.engine.metrics import RequestMetrics
from localspec.errors import LocalspecError
from localspec.server.errors import error_body, error_status
from localspec.server.logprobs import chat_logprobs
from localspec.server.response_events import Event, ResponseEvents
from localspec.server.statistics import reply_metrics, timings
from localspec.server.tool_calls import ContentDelta, Delta, ReasoningDelta, ReplyParser, ToolArguments, ToolCallStart

__all__ = ["ResponseReply"]

# OpenAI's codes of a response that failed.
_FAILURES: Final = {400: "invalid_prompt", 429: "rate_limit_exceeded"}


class ResponseReply:
    """Reads one reply. `queue_s` tells how long it waited for its turn, once it has ended."""

    def __init__(self, events: ResponseEvents, parser: ReplyParser, queue_s: Callable[[], float]) -> None:
        self._events = events
        self._parser = parser
        self._queue_s = queue_s
        self._pending: list[TokenLogprobs] = []  # of tokens whose text has not been told
        self._n_reasoning_tokens = 0
        self._reasons = False

    @property
    def response(self) -> dict[str, Any]:
        """The whole response, once it has ended."""
        return self._events.response

    def start(self) -> list[Event]:
        """Before anything else."""
        return self._events.start()

    def read(self, event: RequestEvent) -> list[Event]:
        """What an event of the engine adds."""
        if not isinstance(event, StepDecoded | Finished):
            return []
        deltas = list(self._parser.push("".join(span.text for span in event.spans)))
        if isinstance(event, Finished):
            deltas += self._parser.finish()
        else:
            self._pending += event.logprobs
            self._count_reasoning(len(event.step.tokens), deltas)
        told = [each for delta in deltas for each in self._tell(delta)]
        if isinstance(event, Finished):
            if self._pending:
                told += self._events.text("", self._take_logprobs())
            more = {
                "timings": timings(event.metrics, self._queue_s()),
                "metrics": reply_metrics(event.metrics),
            }
            is_cut = event.reason is not FinishReason.STOP
            told += self._events.end(usage=self._usage(event.metrics), more=more, is_cut=is_cut)
        return told

    def fail(self, error: LocalspecError) -> list[Event]:
        """The reply cannot go on."""
        told = error_body(error)["error"]
        code = _FAILURES.get(error_status(error), "server_error")
        return self._events.fail(code=code, message=str(told["message"]), param=told["param"])

    def _tell(self, delta: Delta) -> list[Event]:
        match delta:
            case ContentDelta(text):
                return self._events.text(text, self._take_logprobs())
            case ReasoningDelta(text):
                self._pending.clear()  # they are told of the answer only
                return self._events.reasoning(text)
            case ToolCallStart(_, call_id, name):
                self._pending.clear()
                return self._events.call(call_id, name)
            case ToolArguments(_, text):
                self._pending.clear()
                return self._events.arguments(text)

    def _take_logprobs(self) -> list[dict[str, Any]]:
        pending, self._pending = self._pending, []
        return chat_logprobs(pending)

    def _count_reasoning(self, n_tokens: int, deltas: Sequence[Delta]) -> None:
        """Tokens of a step that says several things are counted by the characters of each."""
        texts = [delta for delta in deltas if not isinstance(delta, ToolCallStart)]
        if texts:
            self._reasons = isinstance(deltas[-1], ReasoningDelta)
        n_all = sum(len(delta.text) for delta in texts)
        n_reasoning = sum(len(delta.text) for delta in texts if isinstance(delta, ReasoningDelta))
        share = n_reasoning / n_all if n_all else float(self._reasons)
        self._n_reasoning_tokens += round(n_tokens * share)

    def _usage(self, metrics: RequestMetrics) -> dict[str, Any]:
        """OpenAI's counts. What was read of the prompt is written to the cache, for requests that begin alike."""
        n_prompt, n_cached = metrics.n_prompt_tokens, metrics.n_cached_tokens
        return {
            "input_tokens": n_prompt,
            "input_tokens_details": {"cached_tokens": n_cached, "cache_write_tokens": n_prompt - n_cached},
            "output_tokens": metrics.n_tokens,
            "output_tokens_details": {"reasoning_tokens": self._n_reasoning_tokens},
            "total_tokens": n_prompt + metrics.n_tokens,
        }
