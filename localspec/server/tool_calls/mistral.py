"""Mistral: `[TOOL_CALLS][{"name": ..., "arguments": {...}}]`, and the newer `[TOOL_CALLS]name[ARGS]{...}`."""

from __future__ import annotations

import hashlib
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

from localspec.engine.requests import ChatPrompt, Message
from localspec.llama.gbnf import literal, one_of
from localspec.server.tool_calls.calls import CallSink, NotACallError
from localspec.server.tool_calls.format import ToolFormat
from localspec.server.tool_calls.gbnf import Rules, trigger
from localspec.server.tool_calls.json_calls import argument_schemas, call_object_rules, take_call_object, take_json
from localspec.server.tool_calls.source import Reading, Source, next_char, take_literal, take_short, take_space
from localspec.server.tool_calls.tools import name_of
from localspec.server.tool_calls.turns import calls_of, with_calls

OPENING, ARGS, CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
_ID: Final = re.compile(r"[A-Za-z0-9]{9}")
_LONGEST_NAME: Final = 200


class _MistralFormat(ToolFormat):
    """What both have in common: ids of nine letters or digits, which the templates insist on, and one reader."""

    openings: ClassVar[tuple[str, ...]] = (OPENING,)

    def _prompt(
        self, messages: tuple[Message, ...], tools: tuple[Mapping[str, Any], ...], variables: Mapping[str, Any]
    ) -> ChatPrompt:
        return ChatPrompt(tuple(_with_short_ids(message) for message in messages), tools, variables)

    def read(self, source: Source, calls: CallSink) -> Reading[None]:
        if not (yield from take_literal(source, OPENING)):
            raise NotACallError
        yield from take_space(source)
        if (yield from take_literal(source, "[")):
            yield from take_call_list(source, calls)
        else:
            yield from _take_named_call(source, calls)


class MistralListFormat(_MistralFormat):
    """A list of objects after one `[TOOL_CALLS]`."""

    name: ClassVar[str] = "mistral"
    markers: ClassVar[tuple[str, ...]] = (OPENING,)
    triggers: ClassVar[tuple[str, ...]] = (trigger(OPENING, '[{"name'),)

    def _rules(self, tools: Sequence[Mapping[str, Any]], parallel: bool) -> Rules:
        return call_list_rules(tools, OPENING, parallel)


class MistralNamedFormat(_MistralFormat):
    """Name and arguments apart, with a `[TOOL_CALLS]` before each call."""

    name: ClassVar[str] = "mistral-args"
    markers: ClassVar[tuple[str, ...]] = (OPENING, ARGS, CALL_ID)
    triggers: ClassVar[tuple[str, ...]] = (trigger(OPENING),)

    def _rules(self, tools: Sequence[Mapping[str, Any]], parallel: bool) -> Rules:
        choices = one_of(
            f'{literal(name_of(tool))} call-id? "{ARGS}" ws args-{number}' for number, tool in enumerate(tools)
        )
        text = (
            f"calls ::= call{' ( ws call )*' if parallel else ''}\n"
            f'call ::= "{OPENING}" ws {choices}\n'
            f'call-id ::= "{CALL_ID}" [A-Za-z0-9]{{9}}\n'
        )
        return Rules(text, argument_schemas(tools))


def call_list_rules(tools: Sequence[Mapping[str, Any]], opening: str, parallel: bool) -> Rules:
    """The rule `calls` of a JSON list of call objects after a marker."""
    objects = call_object_rules(tools, "arguments")
    more = ' ( ws "," ws object )*' if parallel else ""
    return Rules(f'calls ::= {literal(opening)} ws "[" ws object{more} ws "]"\n{objects.text}', objects.schemas)


def take_call_list(source: Source, calls: CallSink) -> Reading[None]:
    """The rest of a list of call objects, after its bracket.

    Raises:
        NotACallError: one of them is none.
    """
    while True:
        yield from take_space(source)
        yield from take_call_object(source, calls)
        yield from take_space(source)
        if (yield from take_literal(source, "]")):
            source.hold()
            return
        if not (yield from take_literal(source, ",")):
            raise NotACallError


def _take_named_call(source: Source, calls: CallSink) -> Reading[None]:
    name = ((yield from take_short(source, (ARGS, CALL_ID, "{"), _LONGEST_NAME)) or "").strip()
    calls.schema(name)
    if source.starts_with(CALL_ID):
        yield from take_short(source, (ARGS, "{"), _LONGEST_NAME)
    yield from take_literal(source, ARGS)
    yield from take_space(source)
    if (yield from next_char(source)) != "{":
        raise NotACallError
    calls.begin(name)
    yield from take_json(source, calls.arguments)
    calls.end()


def _with_short_ids(message: Message) -> Message:
    calls = [replace(call, call_id=_short_id(call.call_id)) for call in calls_of(message)]
    message = with_calls(message, calls)
    if message.role != "tool":
        return message
    return replace(message, more={**message.more, "tool_call_id": _short_id(str(message.more.get("tool_call_id", "")))})


def _short_id(call_id: str) -> str:
    """Nine letters or digits: the id itself where it has that form, else always the same for the same id."""
    if _ID.fullmatch(call_id):
        return call_id
    alphabet = string.ascii_letters + string.digits
    number = int.from_bytes(hashlib.sha256(call_id.encode("utf-8", "replace")).digest())
    digits = []
    for _ in range(9):
        number, digit = divmod(number, len(alphabet))
        digits.append(alphabet[digit])
    return "".join(digits)
