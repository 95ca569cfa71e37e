"""A response as it grows, item by item, and the events that tell of each change: OpenAI's sequence, numbered.

    response.created, response.in_progress
      per item      output_item.added, [content_part.added], deltas, the whole, [content_part.done], output_item.done
    response.completed | response.incomplete | error, response.failed

Pure: it is told what the reply says and answers with JSON values. A client that does not stream gets `response` at the
end, built in the same way.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["Event", "ResponseEvents", "new_id"]

Event = dict[str, Any]

_TEXT: Final = "output_text"
_REASONING: Final = "reasoning_text"


def new_id(prefix: str) -> str:
    """An identifier that nothing else has: `resp_` and 32 digits, for one."""
    return f"{prefix}_{uuid.uuid4().hex}"


@dataclass(slots=True)
class _OpenItem:
    """The item that the reply is in. `item` is what clients see of it when it begins."""

    item: dict[str, Any]
    pieces: list[str] = field(default_factory=list)
    logprobs: list[dict[str, Any]] = field(default_factory=list)

    @property
    def kind(self) -> str:
        return str(self.item["type"])


class ResponseEvents:
    """Tells of one response. `head`: its fields that do not change; status, output, usage and the like come here."""

    def __init__(self, head: Mapping[str, Any]) -> None:
        self._head = dict(head)
        self._end: dict[str, Any] = {}
        self._status = "in_progress"
        self._output: list[dict[str, Any]] = []
        self._open: _OpenItem | None = None
        self._n_events = 0

    @property
    def response(self) -> dict[str, Any]:
        """The response as it is now; items that have not ended are not in it."""
        unknown = {"completed_at": None, "error": None, "incomplete_details": None, "usage": None}
        return {**self._head, **unknown, "status": self._status, "output": list(self._output), **self._end}

    def start(self) -> list[Event]:
        """Before anything else."""
        return [self._lifecycle("response.created"), self._lifecycle("response.in_progress")]

    # --- what the reply says -------------------------------------------------------------------------------------

    def text(self, delta: str, logprobs: Sequence[dict[str, Any]] = ()) -> list[Event]:
        """Text for the user."""
        if not delta and not logprobs:
            return []
        events = self._enter("message", {"id": new_id("msg"), "role": "assistant", "content": []})
        opened = self._open
        assert opened is not None
        opened.pieces.append(delta)
        opened.logprobs.extend(logprobs)
        fields = {**self._part_place(), "delta": delta, "logprobs": list(logprobs)}
        return [*events, self._event("response.output_text.delta", fields)]

    def reasoning(self, delta: str) -> list[Event]:
        """Text that the model thinks before it answers."""
        if not delta:
            return []
        events = self._enter("reasoning", {"id": new_id("rs"), "summary": [], "content": []})
        assert self._open is not None
        self._open.pieces.append(delta)
        return [*events, self._event("response.reasoning_text.delta", {**self._part_place(), "delta": delta})]

    def call(self, call_id: str, name: str) -> list[Event]:
        """A call of a function begins; its arguments follow."""
        events = self._close("completed")
        item = {"id": new_id("fc"), "call_id": call_id, "name": name, "arguments": ""}
        return [*events, *self._enter("function_call", item)]

    def arguments(self, delta: str) -> list[Event]:
        """Of the arguments of the call that began last: JSON, in pieces."""
        if not delta:
            return []
        assert self._open is not None
        assert self._open.kind == "function_call"
        self._open.pieces.append(delta)
        return [self._event("response.function_call_arguments.delta", {**self._item_place(), "delta": delta})]

    # --- the end -------------------------------------------------------------------------------------------------

    def end(self, *, usage: Mapping[str, Any], more: Mapping[str, Any], is_cut: bool) -> list[Event]:
        """The reply is complete, or was cut off by a limit. `more`: further keys of the response."""
        events: list[Event] = []
        if not is_cut and not self._has_answer():
            # Clients take the text of the first message: an empty reply has an empty one.
            events = self._enter("message", {"id": new_id("msg"), "role": "assistant", "content": []})
        status = "incomplete" if is_cut else "completed"
        events += self._close(status)
        self._status = status
        self._end = {"usage": dict(usage), **more}
        if is_cut:
            self._end["incomplete_details"] = {"reason": "max_output_tokens"}
        else:
            self._end["completed_at"] = int(time.time())
        return [*events, self._lifecycle(f"response.{status}")]

    def fail(self, *, code: str, message: str, param: str | None = None) -> list[Event]:
        """The reply ends with an error; what was told before it stands."""
        error = self._event("error", {"code": code, "message": message, "param": param})
        if self._open is not None:
            self._output.append(self._finished_item(self._open, "incomplete"))
            self._open = None
        self._status = "failed"
        self._end = {"error": {"code": code, "message": message}}
        return [error, self._lifecycle("response.failed")]

    def _has_answer(self) -> bool:
        kinds = {item["type"] for item in self._output} | {self._open.kind if self._open else None}
        return not kinds.isdisjoint({"message", "function_call"})

    # --- items ---------------------------------------------------------------------------------------------------

    def _enter(self, kind: str, item: dict[str, Any]) -> list[Event]:
        """Go on in the item that is open, if it is of this kind; else close it and begin `item`."""
        if self._open is not None and self._open.kind == kind:
            return []
        events = self._close("completed")
        self._open = _OpenItem({"type": kind, "status": "in_progress", **item})
        added = {"output_index": len(self._output), "item": dict(self._open.item)}
        events.append(self._event("response.output_item.added", added))
        if kind != "function_call":
            events.append(self._event("response.content_part.added", {**self._part_place(), "part": _part(kind)}))
        return events

    def _close(self, status: str) -> list[Event]:
        """End the item that is open, if one is."""
        opened = self._open
        if opened is None:
            return []
        item = self._finished_item(opened, status)
        events: list[Event]
        if opened.kind == "function_call":
            whole = {**self._item_place(), "name": item["name"], "arguments": item["arguments"]}
            events = [self._event("response.function_call_arguments.done", whole)]
        else:
            part = item["content"][0]
            whole = {**self._part_place(), "text": part["text"]}
            if opened.kind == "message":
                events = [self._event("response.output_text.done", {**whole, "logprobs": part["logprobs"]})]
            else:
                events = [self._event("response.reasoning_text.done", whole)]
            events.append(self._event("response.content_part.done", {**self._part_place(), "part": part}))
        events.append(self._event("response.output_item.done", {"output_index": len(self._output), "item": dict(item)}))
        self._output.append(item)
        self._open = None
        return events

    def _finished_item(self, opened: _OpenItem, status: str) -> dict[str, Any]:
        text = "".join(opened.pieces)
        if opened.kind == "function_call":
            return {**opened.item, "arguments": text, "status": status}
        return {**opened.item, "content": [_part(opened.kind, text, opened.logprobs)], "status": status}

    # --- events --------------------------------------------------------------------------------------------------

    def _item_place(self) -> dict[str, Any]:
        assert self._open is not None
        return {"item_id": self._open.item["id"], "output_index": len(self._output)}

    def _part_place(self) -> dict[str, Any]:
        return {**self._item_place(), "content_index": 0}

    def _lifecycle(self, kind: str) -> Event:
        return self._event(kind, {"response": self.response})

    def _event(self, kind: str, fields: Mapping[str, Any]) -> Event:
        number = self._n_events
        self._n_events += 1
        return {"type": kind, "sequence_number": number, **fields}


def _part(kind: str, text: str = "", logprobs: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """The one content part that a message or a piece of reasoning has."""
    if kind == "reasoning":
        return {"type": _REASONING, "text": text}
    return {"type": _TEXT, "text": text, "annotations": [], "logprobs": list(logprobs)}
