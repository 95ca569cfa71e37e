"""From the items of a response's input to the turns of a chat, as chat templates read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from localspec.engine.requests import Message
from localspec.server.errors import RefusedFieldError
from localspec.server.response_items import FunctionCall, FunctionCallOutput, InputItem, InputMessage, ReasoningItem

__all__ = ["messages_of"]


@dataclass(slots=True)
class _AssistantTurn:
    """What one reply said, gathered from its items."""

    reasoning: list[str] = field(default_factory=list)
    text: str | None = None
    calls: list[dict[str, Any]] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not self.reasoning and self.text is None and not self.calls

    def message(self) -> Message:
        more: dict[str, Any] = {}
        if self.reasoning:
            more["reasoning_content"] = "".join(self.reasoning)
        if self.calls:
            more["tool_calls"] = self.calls
        return Message("assistant", self.text or "", more)


class _Turns:
    """Turns so far, and the assistant's turn that is being gathered."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._turn = _AssistantTurn()
        self._names: dict[str, str] = {}  # of functions, by the id of the call

    def lead(self, text: str) -> None:
        """An instruction. Those at the beginning are one: many templates take a single system message, and first."""
        self.end_turn()
        if [message.role for message in self.messages] == ["system"]:
            text = f"{self.messages.pop().content}\n\n{text}"
        self.messages.append(Message("system", text))

    def say(self, role: str, text: str) -> None:
        self.end_turn()
        self.messages.append(Message(role, text))

    def reply(self, text: str) -> None:
        """A turn of the assistant: reasoning, then text, then calls. What comes out of turn begins a new one."""
        if self._turn.text is not None or self._turn.calls:
            self.end_turn()
        self._turn.text = text

    def think(self, text: str) -> None:
        if self._turn.text is not None or self._turn.calls:
            self.end_turn()
        if text:
            self._turn.reasoning.append(text)

    def call(self, item: FunctionCall) -> None:
        self._names[item.call_id] = item.name
        function = {"name": item.name, "arguments": item.arguments}
        self._turn.calls.append({"id": item.call_id, "type": "function", "function": function})

    def answer(self, item: FunctionCallOutput, param: str) -> None:
        self.end_turn()
        name = self._names.get(item.call_id)
        if name is None:
            raise RefusedFieldError(
                f'{param} answers the call "{item.call_id}", which no item before it makes.',
                param=param,
                hint="Send the function_call item before its output.",
            )
        self.messages.append(Message("tool", item.text(), {"tool_call_id": item.call_id, "name": name}))

    def end_turn(self) -> None:
        turn, self._turn = self._turn, _AssistantTurn()
        if not turn.is_empty:
            self.messages.append(turn.message())


def messages_of(given: str | Sequence[InputItem], instructions: str | None) -> tuple[Message, ...]:
    """The chat that a request stands for.

    `developer` is a role of OpenAI's that other templates do not know: it leads like `system`.

    Raises:
        RefusedFieldError: an output belongs to no call.
    """
    turns = _Turns()
    if instructions:
        turns.lead(instructions)
    if isinstance(given, str):
        turns.say("user", given)
        return tuple(turns.messages)
    for index, item in enumerate(given):
        match item:
            case InputMessage(role="system" | "developer"):
                turns.lead(item.text())
            case InputMessage(role="assistant"):
                turns.reply(item.text())
            case InputMessage():
                turns.say(item.role, item.text())
            case ReasoningItem():
                turns.think(item.text())
            case FunctionCall():
                turns.call(item)
            case FunctionCallOutput():
                turns.answer(item, f"input.{index}")
    turns.end_turn()
    return tuple(turns.messages)
