"""The tools of a request and which of them the reply may or must call, checked: they come from anybody."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Self

from localspec.errors import UsageError

MAX_TOOLS: Final = 128
MAX_TOOL_BYTES: Final = 64 * 1024
MAX_TOOLS_BYTES: Final = 512 * 1024
# OpenAI's own rule is letters, digits, "_" and "-", at most 64; servers of MCP tools also use dots, slashes and colons.
_NAME: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")


class CallMode(StrEnum):
    """Whether a reply calls tools."""

    NONE = "none"
    AUTO = "auto"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Which tools the reply may call (`names`; empty: all of them), and whether it has to."""

    mode: CallMode = CallMode.AUTO
    names: tuple[str, ...] = ()

    @classmethod
    def read(cls, value: object, tools: Sequence[Mapping[str, Any]]) -> Self:
        """The `tool_choice` of a request, in the forms of chat completions and of responses; None: the default.

        Raises:
            UsageError: it is none of these forms, or names a tool that the request does not have.
        """
        if value is None:
            return cls(CallMode.AUTO if tools else CallMode.NONE)
        choice = cls._read(value)
        known = {name_of(tool) for tool in tools}
        for name in choice.names:
            if name not in known:
                raise UsageError(
                    f'tool_choice names "{name[:100]}", which is not among the tools.',
                    hint=f"Name one of: {_listed(known)}." if known else "Give the tools that may be called.",
                )
        if choice.mode is CallMode.REQUIRED and not tools:
            raise UsageError(
                "tool_choice asks for a call, but there are no tools.", hint="Give tools, or leave it out."
            )
        return choice if tools else cls(CallMode.NONE)

    @classmethod
    def _read(cls, value: object) -> Self:
        if isinstance(value, str) and value in list(CallMode):
            return cls(CallMode(value))
        if isinstance(value, Mapping):
            kind = value.get("type")
            if kind == "function":
                function = value.get("function", value)
                name = function.get("name") if isinstance(function, Mapping) else None
                if isinstance(name, str):
                    return cls(CallMode.REQUIRED, (name,))
            if kind == "allowed_tools":
                allowed = value.get("allowed_tools", value)
                mode, listed = (
                    (allowed.get("mode"), allowed.get("tools")) if isinstance(allowed, Mapping) else (None, None)
                )
                if mode in (CallMode.AUTO, CallMode.REQUIRED) and isinstance(listed, Sequence) and listed:
                    names = tuple(name_of(tool) for tool in listed if isinstance(tool, Mapping))
                    if len(names) == len(listed) and all(names):
                        return cls(CallMode(mode), names)
        raise UsageError(
            "tool_choice is not one of the known forms.",
            hint='Use "none", "auto", "required", or {"type": "function", "function": {"name": ...}}.',
        )

    def allowed(self, tools: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
        """The tools that the reply may call; none in mode none."""
        if self.mode is CallMode.NONE:
            return ()
        return tuple(tool for tool in tools if not self.names or name_of(tool) in self.names)


def read_tools(tools: Sequence[object]) -> tuple[dict[str, Any], ...]:
    """The tools of a request in OpenAI's form for chat completions, `{"type": "function", "function": {...}}`.

    The flat form of responses (`{"type": "function", "name": ...}`) is turned into it. Every function of the result has
    a description and parameters, which chat templates count on.

    Raises:
        UsageError: there are too many or too large ones, two of one name, or one that is no function.
    """
    if len(tools) > MAX_TOOLS:
        raise UsageError(f"There are {len(tools)} tools; at most {MAX_TOOLS} can be offered.")
    read = tuple(_read_tool(tool, place) for place, tool in enumerate(tools))
    sizes = [len(json.dumps(tool)) for tool in read]
    for tool, size in zip(read, sizes, strict=True):
        if size > MAX_TOOL_BYTES:
            raise UsageError(f'The tool "{name_of(tool)}" has {size} bytes of JSON; at most {MAX_TOOL_BYTES} are read.')
    if sum(sizes) > MAX_TOOLS_BYTES:
        raise UsageError(f"The tools have {sum(sizes)} bytes of JSON; at most {MAX_TOOLS_BYTES} are read.")
    names = [name_of(tool) for tool in read]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f'Two tools have the name "{name}".', hint="Give every tool a name of its own.")
    return read


def name_of(tool: Mapping[str, Any]) -> str:
    """The function's name; "" where there is none."""
    function = tool.get("function", tool)
    name = function.get("name") if isinstance(function, Mapping) else None
    return name if isinstance(name, str) else ""


def parameters_of(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """The JSON schema of the arguments of a tool that `read_tools` made."""
    parameters: Mapping[str, Any] = tool["function"]["parameters"]
    return parameters


def _read_tool(tool: object, place: int) -> dict[str, Any]:
    if not isinstance(tool, Mapping):
        raise UsageError(f"Tool {place} is not an object.")
    if tool.get("type", "function") != "function":
        raise UsageError(
            f'Tool {place} is of type "{str(tool["type"])[:100]}"; only functions can be called.',
            hint='Use {"type": "function", ...}.',
        )
    function = tool.get("function", tool)
    if not isinstance(function, Mapping):
        raise UsageError(f"The function of tool {place} is not an object.")
    name = _read_name(function.get("name"), place)
    description = function.get("description")
    if description is not None and not isinstance(description, str):
        raise UsageError(f'The description of the tool "{name}" is not a text.')
    parameters = function.get("parameters")
    if parameters is not None and not isinstance(parameters, Mapping):
        raise UsageError(f'The parameters of the tool "{name}" are not a JSON schema object.')
    schema = dict(parameters or {})
    if schema.setdefault("type", "object") != "object":
        raise UsageError(f'The parameters of the tool "{name}" are not of type object.')
    if not isinstance(schema.setdefault("properties", {}), Mapping):
        raise UsageError(f'The properties of the tool "{name}" are not an object.')
    try:
        json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f'The parameters of the tool "{name}" are not JSON.') from error
    return {"type": "function", "function": {"name": name, "description": description or "", "parameters": schema}}


def _read_name(name: object, place: int) -> str:
    if not isinstance(name, str):
        raise UsageError(f"Tool {place} has no name.", hint="Name the function that can be called.")
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"The name of tool {place} cannot be used: {name[:100]!r}.",
            hint="Use 1 to 128 letters, digits and the characters _ - . : /",
        )
    return name


def _listed(names: set[str]) -> str:
    shown = sorted(names)[:10]
    return ", ".join(shown) + (" ..." if len(names) > len(shown) else "")
