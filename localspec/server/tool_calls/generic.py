"""For templates that know no tools: they are described in the system message, and calls have the Hermes form."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from localspec.engine.requests import ChatPrompt, Message
from localspec.server.tool_calls.calls import CallSink
from localspec.server.tool_calls.gbnf import Rules
from localspec.server.tool_calls.hermes import CLOSING, OPENING, HermesFormat
from localspec.server.tool_calls.json_calls import bare_trigger, take_call_object
from localspec.server.tool_calls.source import Reading, Source
from localspec.server.tool_calls.turns import Call, calls_of, merged, with_instructions, without_calls

_INSTRUCTIONS = f"""# Tools

You can call these functions to help with the user's request. Each is described by a JSON object:
{{tools}}

To call one, answer with its name and arguments as JSON between tags, and nothing after them:
{OPENING}
{{"name": "function name", "arguments": {{"argument name": "value"}}}}
{CLOSING}
The results come in the next message. If no function is needed, answer as usual."""


class GenericFormat(HermesFormat):
    """Calls and results of earlier turns are plain text too. A call without its tags counts, at the content's start."""

    name: ClassVar[str] = "generic"
    stands_bare: ClassVar[bool] = True
    markers: ClassVar[tuple[str, ...]] = ()

    def _prompt(
        self, messages: tuple[Message, ...], tools: tuple[Mapping[str, Any], ...], variables: Mapping[str, Any]
    ) -> ChatPrompt:
        turns = merged(_plain(message) for message in messages)
        if tools:
            described = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
            # Not by format(): descriptions may hold braces.
            turns = with_instructions(turns, _INSTRUCTIONS.replace("{tools}", described))
        return ChatPrompt(turns, (), variables)

    def _rules(self, tools: Sequence[Mapping[str, Any]], parallel: bool) -> Rules:
        tagged = super()._rules(tools, parallel)
        return Rules(tagged.text.replace("calls ::= ", "calls ::= object | ", 1), tagged.schemas)

    def _triggers(self, tools: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
        return (*self.triggers, bare_trigger(tools, "arguments"))

    def read(self, source: Source, calls: CallSink) -> Reading[None]:
        if source.starts_with("{"):
            yield from take_call_object(source, calls)
        else:
            yield from super().read(source, calls)


def _plain(message: Message) -> Message:
    calls = calls_of(message)
    if calls:
        written = "\n".join(map(_written, calls))
        return without_calls(message, f"{message.content}\n{written}".strip())
    if message.role == "tool":
        content = f"<tool_response>\n{message.content}\n</tool_response>"
        return replace(without_calls(message, content), role="user")
    return message


def _written(call: Call) -> str:
    body = json.dumps({"name": call.name, "arguments": dict(call.arguments)}, ensure_ascii=False)
    return f"{OPENING}\n{body}\n{CLOSING}"
