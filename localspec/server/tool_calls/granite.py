"""Granite 3: `<|tool_call|>` and a JSON list of call objects. Its templates print roles and contents, no calls."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from localspec.engine.requests import ChatPrompt, Message
from localspec.server.tool_calls.calls import CallSink, NotACallError
from localspec.server.tool_calls.format import ToolFormat
from localspec.server.tool_calls.gbnf import Rules, trigger
from localspec.server.tool_calls.mistral import call_list_rules, take_call_list
from localspec.server.tool_calls.source import Reading, Source, take_literal, take_space
from localspec.server.tool_calls.turns import calls_of, without_calls

_OPENING = "<|tool_call|>"


class GraniteFormat(ToolFormat):
    """Earlier calls are written out as content, and results have the role that the models were trained with."""

    name: ClassVar[str] = "granite"
    openings: ClassVar[tuple[str, ...]] = (_OPENING,)
    markers: ClassVar[tuple[str, ...]] = (_OPENING,)
    triggers: ClassVar[tuple[str, ...]] = (trigger(_OPENING, '[{"name'),)

    def _prompt(
        self, messages: tuple[Message, ...], tools: tuple[Mapping[str, Any], ...], variables: Mapping[str, Any]
    ) -> ChatPrompt:
        return ChatPrompt(tuple(_plain(message) for message in messages), tools, variables)

    def _rules(self, tools: Sequence[Mapping[str, Any]], parallel: bool) -> Rules:
        return call_list_rules(tools, _OPENING, parallel)

    def read(self, source: Source, calls: CallSink) -> Reading[None]:
        if not (yield from take_literal(source, _OPENING)):
            raise NotACallError
        yield from take_space(source)
        if not (yield from take_literal(source, "[")):
            raise NotACallError
        yield from take_call_list(source, calls)


def _plain(message: Message) -> Message:
    calls = calls_of(message)
    if calls:
        listed = [{"name": call.name, "arguments": dict(call.arguments)} for call in calls]
        return without_calls(message, f"{message.content}{_OPENING}{json.dumps(listed, ensure_ascii=False)}")
    if message.role == "tool":
        return replace(without_calls(message, message.content), role="tool_response")
    return message
