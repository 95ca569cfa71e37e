"""Calls as JSON objects, `{"name": ..., "arguments": {...}}`: how to read one as it comes, and its grammar."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from localspec.llama.gbnf import literal, one_of
from localspec.llama.sampling_params import GrammarSchema
from localspec.server.tool_calls import json_text
from localspec.server.tool_calls.calls import CallSink, NotACallError
from localspec.server.tool_calls.gbnf import SPACE, Rules, any_of, beginning
from localspec.server.tool_calls.source import WHITESPACE, Reading, Source, next_char, take_literal, take_space
from localspec.server.tool_calls.tools import name_of, parameters_of

_ARGUMENTS: Final = ("arguments", "parameters")
# Keys besides name and arguments that some models write; any other makes the object content.
_IGNORED: Final = ("id", "type")
# Keywords that allow arguments besides `properties`.
_OTHER_PARAMETERS: Final = ("additionalProperties", "patternProperties", "$ref", "allOf", "anyOf", "oneOf")
_LONGEST_NAME: Final = 200
_TEXT: Final = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
# JSON has no "<" but in strings: there a tag begins, and the value is broken.
_PLAIN: Final = re.compile(r'[^"{}\[\]<]+')
_IN_TEXT: Final = re.compile(r'[^"\\]+')
_IN_SCALAR: Final = re.compile(r'[^\s,\]}\[{":<]+')


def take_call_object(source: Source, calls: CallSink) -> Reading[None]:
    """Read one call; its arguments are passed on as they come, if the name stands before them.

    Raises:
        NotACallError: it is not one.
    """
    if not (yield from take_literal(source, "{")):
        raise NotACallError
    held = _Held()
    while True:
        yield from _take_member(source, calls, held)
        if (yield from take_literal(source, "}")):
            break
        if not (yield from take_literal(source, ",")):
            raise NotACallError
    if not held.name:
        raise NotACallError
    if calls.is_open:
        calls.end()
    else:
        calls.call(held.name, _as_object(held.arguments))


@dataclass(slots=True)
class _Held:
    """What was read of a call. `arguments`: those that came before the name, or as a text."""

    name: str = ""
    arguments: str = ""


def _take_member(source: Source, calls: CallSink, held: _Held) -> Reading[None]:
    """A key, a value and the space around them."""
    yield from take_space(source)
    key = yield from _take_text(source, _LONGEST_NAME)
    yield from take_space(source)
    if not (yield from take_literal(source, ":")):
        raise NotACallError
    yield from take_space(source)
    if key == "name" and not held.name:
        held.name = yield from _take_text(source, _LONGEST_NAME)
        calls.schema(held.name)
    elif key in _ARGUMENTS and not held.arguments and not calls.is_open:
        if held.name and (yield from next_char(source)) == "{":
            calls.begin(held.name)
            yield from take_json(source, calls.arguments)
        else:
            pieces: list[str] = []
            yield from take_json(source, pieces.append)
            held.arguments = "".join(pieces)
    elif key in _IGNORED:
        yield from take_json(source, _ignore)
    else:
        raise NotACallError
    yield from take_space(source)


def take_json(source: Source, emit: Callable[[str], None]) -> Reading[None]:
    """Pass one JSON value to `emit`, piece by piece, as it is written. Brackets are matched, the rest is not checked.

    Raises:
        NotACallError: no value begins here, a bracket closes what was not opened, or it is broken off.
    """
    char = yield from next_char(source)
    if not char or char in ",:]}":
        raise NotACallError
    closers: list[str] = []
    while True:
        char = yield from next_char(source)
        if not char or char == "<":
            raise NotACallError
        if char == '"':
            emit(source.take(1))
            yield from _pass_text(source, emit)
        elif char in "{[":
            closers.append("}" if char == "{" else "]")
            emit(source.take(1))
        elif char in "}]":
            if not closers or closers.pop() != char:
                raise NotACallError
            emit(source.take(1))
        elif closers:
            emit(source.take(_length(_PLAIN, source)))
        else:
            yield from _pass_scalar(source, emit)
        if not closers:
            return


def _pass_text(source: Source, emit: Callable[[str], None]) -> Reading[None]:
    """The rest of a JSON string, after its opening quote."""
    while True:
        char = yield from next_char(source)
        if not char:
            raise NotACallError
        if char == "\\":
            while len(source.peek(2)) < 2 and not source.has_ended:
                yield
            emit(source.take(2))
        elif char == '"':
            emit(source.take(1))
            return
        else:
            emit(source.take(_length(_IN_TEXT, source)))


def _pass_scalar(source: Source, emit: Callable[[str], None]) -> Reading[None]:
    """A number, true, false or null: until something that belongs to none of them."""
    while (char := (yield from next_char(source))) and char not in WHITESPACE and char not in ',]}[{":<':
        emit(source.take(_length(_IN_SCALAR, source)))


def _take_text(source: Source, longest: int) -> Reading[str]:
    """A JSON string that is read as a whole."""
    if (yield from next_char(source)) != '"':
        raise NotACallError
    while (match := _TEXT.match(source.peek(longest + 2))) is None:
        if source.has_ended or len(source.peek(longest + 2)) > longest + 1:
            raise NotACallError
        yield
    try:
        return str(json_text.read(source.take(match.end())))
    except ValueError as error:
        raise NotACallError from error


def _length(pattern: re.Pattern[str], source: Source) -> int:
    match = pattern.match(source.rest)
    assert match is not None
    return match.end()


def _ignore(_text: str) -> None:
    pass


def _as_object(text: str) -> str:
    """Arguments that did not come as an object behind the name: a text with an object in it, null, or nothing."""
    try:
        value = json_text.read(text or "{}")
        if isinstance(value, str):
            text = value
            value = json_text.read(text or "{}")
        if value is None or not text:
            return "{}"
        if not isinstance(value, Mapping):
            raise NotACallError
        return json_text.checked(text)
    except ValueError as error:
        raise NotACallError from error


def call_object_rules(tools: Sequence[Mapping[str, Any]], key: str) -> Rules:
    """The rule `object` of one call of any of the tools, its arguments under `key`. It refers to `ws`."""
    names = one_of(f"tool-{number}" for number in range(len(tools)))
    lines = [
        f'object ::= "{{" ws kind? "\\"name\\"" ws ":" ws {names} ws "}}"\n',
        # Some models begin as descriptions of tools do.
        'kind ::= "\\"type\\"" ws ":" ws "\\"function\\"" ws "," ws\n',
    ]
    for number, tool in enumerate(tools):
        name = literal(json.dumps(name_of(tool)))
        lines.append(f'tool-{number} ::= {name} ws "," ws "\\"{key}\\"" ws ":" ws args-{number}\n')
    return Rules("".join(lines), argument_schemas(tools))


def bare_trigger(tools: Sequence[Mapping[str, Any]], key: str) -> str:
    """A trigger at an `object` that the content begins with.

    Other JSON may be the answer itself: this is a call once it names a tool.
    """
    kind = f'(?:"type"{SPACE}:{SPACE}"function"{SPACE},{SPACE})?'
    name = f'"name"{SPACE}:{SPACE}"{any_of(map(name_of, tools))}"'
    # The token that ends the name may hold some of what comes after it.
    key_begins = beginning(f'"{key}')
    return f"\\A[{WHITESPACE}]*(\\{{{SPACE}{kind}{name}{SPACE}(?:,{SPACE}{key_begins})?)"


def argument_schemas(tools: Sequence[Mapping[str, Any]]) -> tuple[GrammarSchema, ...]:
    """The rules `args-0`, `args-1` ...: the arguments of each tool as a JSON object."""
    return tuple(
        GrammarSchema(f"args-{number}", owner(tool), json.dumps(_arguments_schema(parameters_of(tool))))
        for number, tool in enumerate(tools)
    )


def _arguments_schema(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """A tool that lists no parameters takes none, where a schema that lists no properties would allow any."""
    if parameters["properties"] or any(key in parameters for key in _OTHER_PARAMETERS):
        return parameters
    return {**parameters, "additionalProperties": False}


def owner(tool: Mapping[str, Any]) -> str:
    """Whose schema it is, for error messages."""
    return f'the tool "{name_of(tool)}"'
