"""Llama 3.x: `{"name": ..., "parameters": {...}}` as the whole content, maybe after `<|python_tag|>`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from localspec.engine.requests import ChatPrompt, Message
from localspec.server.tool_calls.calls import CallSink
from localspec.server.tool_calls.format import ToolFormat
from localspec.server.tool_calls.gbnf import Rules, trigger
from localspec.server.tool_calls.json_calls import bare_trigger, call_object_rules, take_call_object
from localspec.server.tool_calls.source import Reading, Source, take_literal, take_space
from localspec.server.tool_calls.turns import one_call_a_turn

_TAG = "<|python_tag|>"


class Llama3Format(ToolFormat):
    """Its templates know one call a turn; further ones become turns of their own."""

    name: ClassVar[str] = "llama3"
    openings: ClassVar[tuple[str, ...]] = (_TAG,)
    stands_bare: ClassVar[bool] = True
    markers: ClassVar[tuple[str, ...]] = (_TAG,)
    triggers: ClassVar[tuple[str, ...]] = (trigger(_TAG, '{"name'),)

    def _prompt(
        self, messages: tuple[Message, ...], tools: tuple[Mapping[str, Any], ...], variables: Mapping[str, Any]
    ) -> ChatPrompt:
        return ChatPrompt(one_call_a_turn(messages), tools, variables)

    def _rules(self, tools: Sequence[Mapping[str, Any]], parallel: bool) -> Rules:
        objects = call_object_rules(tools, "parameters")
        calls = f'calls ::= "{_TAG}"? ws object' + (' ( ws ";" ws object )*\n' if parallel else "\n")
        return Rules(calls + objects.text, objects.schemas)

    def _triggers(self, tools: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
        return (*self.triggers, bare_trigger(tools, "parameters"))

    def read(self, source: Source, calls: CallSink) -> Reading[None]:
        yield from take_literal(source, _TAG)
        while True:
            yield from take_space(source)
            yield from take_call_object(source, calls)
            yield from take_space(source)
            if not (yield from take_literal(source, ";")):
                return
