"""Qwen3-Coder: `<tool_call><function=name><parameter=key>value</parameter></function></tool_call>`.

A value is written as it is if it is a text, else as JSON; which of both is told by the tool's schema. Arguments are
passed on as a JSON object all the same, texts as they come.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final

from localspec.errors import UsageError
from localspec.llama.gbnf import literal, one_of
from localspec.llama.sampling_params import GrammarSchema
from localspec.server.tool_calls import json_text
from localspec.server.tool_calls.calls import CallSink, NotACallError
from localspec.server.tool_calls.format import ToolFormat
from localspec.server.tool_calls.gbnf import Rules, beginning, trigger, until
from localspec.server.tool_calls.json_calls import owner, take_json
from localspec.server.tool_calls.qwen_values import (
    TextValue,
    is_text,
    json_of,
    may_be_any_text,
    texts_allowed,
    without_texts,
)
from localspec.server.tool_calls.source import (
    Reading,
    Source,
    next_char,
    take_closing,
    take_literal,
    take_short,
    take_space,
    take_until,
)
from localspec.server.tool_calls.tools import name_of, parameters_of

_CALL, _CALL_END = "<tool_call>", "</tool_call>"
_FUNCTION, _FUNCTION_END = "<function=", "</function>"
_PARAMETER, _PARAMETER_END = "<parameter=", "</parameter>"
_BRACKETS: Final = ("{", "[", '"')
_LONGEST_NAME: Final = 200
# Of a name, so much may come with the end of the tag before it.
_LONGEST_TOKEN: Final = 16


class QwenXmlFormat(ToolFormat):
    """Parameters stand in the order of the schema."""

    name: ClassVar[str] = "qwen-xml"
    # Some replies leave the outer tag out.
    openings: ClassVar[tuple[str, ...]] = (_CALL, _FUNCTION)
    markers: ClassVar[tuple[str, ...]] = (_CALL, _CALL_END)
    triggers: ClassVar[tuple[str, ...]] = (trigger(_CALL, _FUNCTION),)

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

    def _triggers(self, tools: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
        names = "|".join(beginning(name_of(tool)[:_LONGEST_TOKEN]) for tool in tools)
        return (*self.triggers, f"({_FUNCTION}(?:{names}))")

    def read(self, source: Source, calls: CallSink) -> Reading[None]:
        is_tagged = yield from take_literal(source, _CALL)
        yield from take_space(source)
        if not (yield from take_literal(source, _FUNCTION)):
            raise NotACallError
        name = (yield from _take_name(source)).strip()
        properties = calls.schema(name)["properties"]
        calls.begin(name)
        calls.arguments("{")
        given: set[str] = set()
        while (yield from take_until(source, (_PARAMETER, _FUNCTION_END), lambda _: None)) == _PARAMETER:
            yield from take_literal(source, _PARAMETER)
            key = yield from _take_name(source)
            key = key if key in properties else key.strip()
            schema = properties.get(key, {})
            if key in given:
                yield from take_until(source, (_PARAMETER_END,), lambda _: None)
            else:
                calls.arguments((", " if given else "") + json_text.write(key) + ": ")
                yield from _take_value(source, calls, schema if isinstance(schema, Mapping) else {})
            given.add(key)
            yield from take_literal(source, _PARAMETER_END)
        if not (yield from take_literal(source, _FUNCTION_END)):
            raise NotACallError
        calls.arguments("}")
        calls.end()
        yield from take_space(source)
        if is_tagged and (yield from take_closing(source, _CALL_END)):
            source.hold()


def _take_name(source: Source) -> Reading[str]:
    name = yield from take_short(source, (">",), _LONGEST_NAME)
    if name is None:
        if len(source.rest) <= _LONGEST_NAME:
            # The reply ends here: no content comes of it.
            source.take(len(source.rest))
        raise NotACallError
    yield from take_literal(source, ">")
    return name


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
    if not may_be_any_text(schema) and not any(text.startswith(_BRACKETS) for text in texts_allowed(schema)):
        # The tag may stand in a string of JSON.
        pieces.append((yield from take_space(source)))
        if (yield from next_char(source)) in _BRACKETS:
            with suppress(NotACallError):
                yield from take_json(source, pieces.append)
    if not (yield from take_until(source, (_PARAMETER_END,), pieces.append)):
        raise NotACallError
    calls.arguments(json_of("".join(pieces).removesuffix("\n"), schema))


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
        values = []
        if may_be_any_text(schema):
            values.append("text")
        else:
            allowed, others = texts_allowed(schema), without_texts(schema)
            if allowed:
                # The last line feed before the tag is not part of a text.
                values.append(f'{one_of(map(literal, allowed))} "\\n{_PARAMETER_END}"')
            if others is not None:
                values.append(f'args-{number}-{place} ws "{_PARAMETER_END}"')
                schemas.append(GrammarSchema(f"args-{number}-{place}", owner(tool), _within(parameters, others)))
        lines.append(f'{rule} ::= {literal(_PARAMETER + key + ">")} "\\n" {one_of(values)} ws\n')
        sequence.append(rule if isinstance(required, list) and key in required else f"{rule}?")
    return f"tool-{number} ::= {' '.join(sequence)}\n" + "".join(lines), schemas


def _within(parameters: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """A property's schema as one of its own: what its references lead to, from the root of all parameters, is in it."""
    text = json.dumps(schema)
    if '"$ref"' not in text:
        return text
    return json.dumps({**_rebased(schema), "$defs": {"parameters": _rebased(parameters)}})


def _rebased(part: Any) -> Any:
    if isinstance(part, list):
        return [_rebased(each) for each in part]
    if not isinstance(part, Mapping):
        return part
    rebased = {key: _rebased(value) for key, value in part.items()}
    reference = part.get("$ref")
    if isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):
        rebased["$ref"] = "#/$defs/parameters" + reference[1:]
    return rebased
