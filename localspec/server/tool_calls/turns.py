"""Earlier turns of a conversation with tool calls, turned into what a chat template can render."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from localspec.engine.requests import Message
from localspec.errors import UsageError


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an assistant's turn; the arguments as an object."""

    call_id: str
    name: str
    arguments: Mapping[str, Any]

    def for_template(self) -> dict[str, Any]:
        """As transformers' templates read it: OpenAI's form, but with an object for arguments."""
        function = {"name": self.name, "arguments": dict(self.arguments)}
        return {"id": self.call_id, "type": "function", "function": function}


def calls_of(message: Message) -> tuple[Call, ...]:
    """The calls of an assistant's turn, whether their arguments are objects or texts.

    Raises:
        UsageError: they are not calls in OpenAI's form.
    """
    calls = message.more.get("tool_calls") or ()
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        raise UsageError("The tool_calls of a message are not a list.")
    return tuple(_read_call(call) for call in calls)


def with_calls(message: Message, calls: Iterable[Call]) -> Message:
    """The turn with these calls; without the key where there are none, as templates look whether it is there."""
    more = {key: value for key, value in message.more.items() if key != "tool_calls"}
    listed = [call.for_template() for call in calls]
    return replace(message, more={**more, "tool_calls": listed} if listed else more)


def without_calls(message: Message, content: str) -> Message:
    """The turn as plain content, for templates that know no calls."""
    more = {key: value for key, value in message.more.items() if key not in ("tool_calls", "tool_call_id", "name")}
    return replace(message, content=content, more=more)


def with_objects(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The turns with the arguments of all calls as objects."""
    return tuple(with_calls(message, calls_of(message)) for message in messages)


def one_call_a_turn(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The turns for a template that knows one call a turn: further ones follow as turns of their own.

    Each is followed by its result, found by its id among the results that follow; content stays with the first.
    """
    turns: list[Message] = []
    waiting = list(messages)
    while waiting:
        message = waiting.pop(0)
        calls = calls_of(message)
        if len(calls) < 2:
            turns.append(with_calls(message, calls))
            continue
        n_results = next((n for n, each in enumerate(waiting) if each.role != "tool"), len(waiting))
        results, waiting = waiting[:n_results], waiting[n_results:]
        for number, call in enumerate(calls):
            turns.append(with_calls(message if number == 0 else Message(message.role, ""), [call]))
            own = next((each for each in results if each.more.get("tool_call_id") == call.call_id), None)
            if own is not None:
                turns.append(own)
                results.remove(own)
        turns += results
    return tuple(turns)


def merged(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Neighbouring user turns as one, for templates that want user and assistant to take turns."""
    turns: list[Message] = []
    for role, group in itertools.groupby(messages, key=lambda message: message.role):
        if role == "user":
            first, *others = group
            turns.append(replace(first, content="\n\n".join([first.content, *(each.content for each in others)])))
        else:
            turns += group
    return tuple(turns)


def with_instructions(messages: Sequence[Message], instructions: str) -> tuple[Message, ...]:
    """The conversation with these words at the end of its system message, which is added where there is none."""
    if messages and messages[0].role in ("system", "developer"):
        first = replace(messages[0], content=f"{messages[0].content}\n\n{instructions}".strip())
        return (first, *messages[1:])
    return (Message("system", instructions), *messages)


def _read_call(call: object) -> Call:
    function = call.get("function") if isinstance(call, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping) or not isinstance(name, str):
        raise UsageError(
            "A tool call of a message has no function with a name.",
            hint='Use {"id": ..., "type": "function", "function": {"name": ..., "arguments": ...}}.',
        )
    return Call(str(call.get("id") or ""), name, _arguments(function.get("arguments")))


def _arguments(given: object) -> Mapping[str, Any]:
    if isinstance(given, str):
        text = given
        try:
            given = json.loads(text or "{}")
        except (ValueError, RecursionError):
            given = text
    if given is None:
        return {}
    # What a model once wrote may be anything, and the conversation has to go on with it.
    return given if isinstance(given, Mapping) else {"arguments": given}
