"""Hermes and Qwen: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from localspec.server.tool_calls.calls import CallSink, NotACallError
from localspec.server.tool_calls.format import ToolFormat
from localspec.server.tool_calls.gbnf import Rules, trigger
from localspec.server.tool_calls.json_calls import call_object_rules, take_call_object
from localspec.server.tool_calls.source import Reading, Source, take_closing, take_literal, take_space

OPENING, CLOSING = "<tool_call>", "</tool_call>"


class HermesFormat(ToolFormat):
    """The form of most templates: Hermes, Qwen 2.5 and 3, SmolLM3, Granite 4."""

    name: ClassVar[str] = "hermes"
    openings: ClassVar[tuple[str, ...]] = (OPENING,)
    markers: ClassVar[tuple[str, ...]] = (OPENING, CLOSING)
    triggers: ClassVar[tuple[str, ...]] = (trigger(OPENING, '{"name'),)

    def _rules(self, tools: Sequence[Mapping[str, Any]], parallel: bool) -> Rules:
        objects = call_object_rules(tools, "arguments")
        calls = "calls ::= call ( ws call )*\n" if parallel else "calls ::= call\n"
        call = f'call ::= "{OPENING}" ws object ws "{CLOSING}"\n'
        return Rules(calls + call + objects.text, objects.schemas)

    def read(self, source: Source, calls: CallSink) -> Reading[None]:
        if not (yield from take_literal(source, OPENING)):
            raise NotACallError
        yield from take_space(source)
        yield from take_call_object(source, calls)
        yield from take_space(source)
        if (yield from take_closing(source, CLOSING)):
            source.hold()
