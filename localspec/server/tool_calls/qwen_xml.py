"""Qwen3-Coder: `<tool_call><function=name><parameter=key>value</parameter></function></tool_call>`.

A value is written as it is if it is a text, else as JSON; which of both is told by the tool's schema. Arguments are
passed on as a JSON object all the same, texts as they come.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from localspec.errors import UsageError
from localspec.llama.gbnf import literal, one_of
from localspec.llama.sampling_params import GrammarSchema
from localspec.server.tool_calls.calls import CallSink, NotACallError
from localspec.server.tool_calls.format import ToolFormat
from localspec.server.tool_calls.gbnf import Rules, trigger, until
from localspec.server.tool_calls.json_calls import owner
from localspec.server.tool_calls.qwen_values import TextValue, is_text, texts_allowed, value_of
from localspec.server.tool_calls.source import Reading, Source, take_literal, take_space, take_until
from localspec.server.tool_calls.tools import name_of, parameters_of

_CALL, _CALL_END = "<tool_call>", "</tool_call>"
_FUNCTION, _FUNCTION_END = "<function=", "</function>"
_PARAMETER, _PARAMETER_END = "<parameter=", "</parameter>"
_LONGEST_NAME: Final = 200


class QwenXmlFormat(ToolFormat):
    """Parameters stand in the order of the schema."""

    name: ClassVar[str] = "qwen-xml"
    # Some replies leave the outer tag out.
    openings: ClassVar[tuple[str, ...]] = (_CALL, _FUNCTION)
    markers: ClassVar[tuple[str, ...]] = (_CALL, _CALL_END)
    triggers: ClassVar[tuple[str, ...]] = (trigger(_CALL, _FUNCTION), f"({_FUNCTION})")

    def _rules(self, tools: Sequence[Mapping[str, Any]], parallel: bool) -> Rules:
        names = one_of(f"tool-{number}" for number in range(len(tools)))
        lines = [
            f"calls ::= call{' ( ws call )*' if parallel else ''}\n",
            f'call ::= "{_CALL}" ws function ws "{_CALL_END}" | function\n',
            f'function ::= "{_FUNCTION}" {names} "{_FUNCTION_END}"\n',
            until("text", _PARAMETER_END),
        ]
        schemas: list[GrammarSchema] = []
        for number, tool in enumerate(tools):
            rule, made = _tool_rule(number, tool)
            lines.append(rule)
            schemas += made
        return Rules("".join(lines), tuple(schemas))

    def read(self, source: Source, calls: CallSink) -> Reading[None]:
        is_tagged = yield from take_literal(source, _CALL)
        yield from take_space(source)
        if not (yield from take_literal(source, _FUNCTION)):
            raise NotACallError
        name = yield from _take_name(source)
        properties = calls.schema(name)["properties"]
        calls.begin(name)
        calls.arguments("{")
        given: set[str] = set()
        while (yield from take_until(source, (_PARAMETER, _FUNCTION_END), lambda _: None)) == _PARAMETER:
            yield from take_literal(source, _PARAMETER)
            key = yield from _take_name(source)
            schema = properties.get(key, {})
            if key in given:
                yield from take_until(source, (_PARAMETER_END,), lambda _: None)
            else:
                calls.arguments((", " if given else "") + json.dumps(key, ensure_ascii=False) + ": ")
                yield from _take_value(source, calls, schema if isinstance(schema, Mapping) else {})
            given.add(key)
            yield from take_literal(source, _PARAMETER_END)
        if not (yield from take_literal(source, _FUNCTION_END)):
            raise NotACallError
        calls.arguments("}")
        calls.end()
        yield from take_space(source)
        if is_tagged and (yield from take_literal(source, _CALL_END)):
            source.hold()


def _take_name(source: Source) -> Reading[str]:
    name = ""

    def add(piece: str) -> None:
        nonlocal name
        name += piece
        if len(name) > _LONGEST_NAME:
            raise NotACallError

    yield from take_until(source, (">",), add)
    yield from take_literal(source, ">")
    return name.strip()


def _take_value(source: Source, calls: CallSink, schema: Mapping[str, Any]) -> Reading[None]:
    # The template writes a line feed before and after each value.
    yield from take_literal(source, "\n")
    if is_text(schema):
        text = TextValue(calls.arguments)
        if not (yield from take_until(source, (_PARAMETER_END,), text.add)):
            raise NotACallError
        text.end()
        return
    pieces: list[str] = []
    if not (yield from take_until(source, (_PARAMETER_END,), pieces.append)):
        raise NotACallError
    calls.arguments(json.dumps(value_of("".join(pieces).removesuffix("\n"), schema), ensure_ascii=False))


def _tool_rule(number: int, tool: Mapping[str, Any]) -> tuple[str, list[GrammarSchema]]:
    parameters = parameters_of(tool)
    required = parameters.get("required", [])
    lines, sequence, schemas = [], [literal(name_of(tool) + ">"), "ws"], []
    for place, (key, described) in enumerate(parameters["properties"].items()):
        if not key or ">" in key or "\n" in key or len(key) > _LONGEST_NAME:
            raise UsageError(
                f'A parameter of the tool "{name_of(tool)}" has a name that this model cannot write: {key[:100]!r}.',
                hint="Use a name without > and line breaks.",
            )
        schema = described if isinstance(described, Mapping) else {}
        rule = f"tool-{number}-{place}"
        allowed = texts_allowed(schema)
        if allowed:
            value = f'{one_of(map(literal, allowed))} ws "{_PARAMETER_END}"'
        elif is_text(schema, unless_known=True):
            value = "text"
        else:
            value = f'args-{number}-{place} ws "{_PARAMETER_END}"'
            shared = {name: parameters[name] for name in ("$defs", "definitions") if name in parameters}
            schemas.append(GrammarSchema(f"args-{number}-{place}", owner(tool), json.dumps({**shared, **schema})))
        lines.append(f'{rule} ::= {literal(_PARAMETER + key + ">")} "\\n" {value} ws\n')
        sequence.append(rule if isinstance(required, list) and key in required else f"{rule}?")
    return f"tool-{number} ::= {' '.join(sequence)}\n" + "".join(lines), schemas
