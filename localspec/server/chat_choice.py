"""One choice of a chat completion while it is generated: events in, deltas out, and the message that they add up to."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from localspec.engine.events import Finished, FinishReason, Prefilling, RequestEvent, StepDecoded, TokenLogprobs
from localspec.engine.metrics import RequestMetrics
from localspec.server.logprobs import chat_logprobs
from localspec.server.statistics import prompt_progress
from localspec.server.tool_calls import ContentDelta, Delta, ReasoningDelta, ReplyParser, ToolArguments, ToolCallStart

__all__ = ["ChatChoice"]


class ChatChoice:
    """`tells_logprobs`: the request asks for them. `metrics` and `finish_reason` are there once it has ended."""

    def __init__(self, index: int, parser: ReplyParser, *, tells_logprobs: bool) -> None:
        self.index = index
        self.metrics: RequestMetrics | None = None
        self.finish_reason: str | None = None
        self._parser = parser
        self._tells_logprobs = tells_logprobs
        self._pending: list[TokenLogprobs] = []  # of tokens whose text has not been told
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[dict[str, Any]] = []
        self._logprobs: list[TokenLogprobs] = []
        self._prefill_began_s: float | None = None

    def read(self, event: RequestEvent) -> Iterator[dict[str, Any]]:
        """What an event adds, as OpenAI's deltas: one for each run of content, of reasoning, and of calls."""
        if not isinstance(event, StepDecoded | Finished):
            return
        if isinstance(event, StepDecoded):
            self._pending += event.logprobs
            self._logprobs += event.logprobs
        deltas = self._parser.push("".join(span.text for span in event.spans))
        if isinstance(event, Finished):
            deltas = [*deltas, *self._parser.finish()]
        for delta in deltas:
            self._add(delta)
        for _, run in groupby(deltas, key=_kind):
            yield _told(run)
        if isinstance(event, Finished):
            self.metrics = event.metrics
            stopped = "tool_calls" if self._calls else "stop"
            self.finish_reason = stopped if event.reason is FinishReason.STOP else "length"

    def progress(self, event: Prefilling) -> dict[str, int]:
        """How far the prompt was read, in llama.cpp's words."""
        now_s = time.monotonic()
        self._prefill_began_s = began_s = now_s if self._prefill_began_s is None else self._prefill_began_s
        return prompt_progress(event, now_s - began_s)

    def take_logprobs(self) -> dict[str, Any] | None:
        """Of the tokens since the last call; None: there are none to tell."""
        if not self._pending:
            return None
        pending, self._pending = self._pending, []
        return {"content": chat_logprobs(pending), "refusal": None}

    def message(self) -> dict[str, Any]:
        """The whole choice, in OpenAI's form."""
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._content), "refusal": None}
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        if self._calls:
            message["content"] = message["content"] or None
            message["tool_calls"] = self._calls
        logprobs = {"content": chat_logprobs(self._logprobs), "refusal": None} if self._tells_logprobs else None
        return {
            "index": self.index,
            "message": message,
            "logprobs": logprobs,
            "finish_reason": self.finish_reason,
        }

    def _add(self, delta: Delta) -> None:
        match delta:
            case ContentDelta(text):
                self._content.append(text)
            case ReasoningDelta(text):
                self._reasoning.append(text)
            case ToolCallStart(_, call_id, name):
                function = {"name": name, "arguments": ""}
                self._calls.append({"id": call_id, "type": "function", "function": function})
            case ToolArguments(index, text):
                self._calls[index]["function"]["arguments"] += text


def _kind(delta: Delta) -> type:
    return ToolCallStart if isinstance(delta, ToolArguments) else type(delta)


def _told(run: Iterable[Delta]) -> dict[str, Any]:
    """Deltas of one kind as one of OpenAI's."""
    told: dict[str, Any] = {}
    for delta in run:
        match delta:
            case ContentDelta(text):
                told["content"] = told.get("content", "") + text
            case ReasoningDelta(text):
                told["reasoning_content"] = told.get("reasoning_content", "") + text
            case ToolCallStart(index, call_id, name):
                function = {"name": name, "arguments": ""}
                call = {"index": index, "id": call_id, "type": "function", "function": function}
                told.setdefault("tool_calls", []).append(call)
            case ToolArguments(index, text):
                calls = told.setdefault("tool_calls", [])
                if calls and calls[-1]["index"] == index:
                    calls[-1]["function"]["arguments"] += text
                else:
                    calls.append({"index": index, "function": {"arguments": text}})
    return told
