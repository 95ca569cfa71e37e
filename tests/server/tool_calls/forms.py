"""Every form of tool calls: how its models write calls, and how a reply in it is read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from localspec.server.reasoning import CHANNELS, Reasoning
from localspec.server.tool_calls import (
    ContentDelta,
    Delta,
    ReasoningDelta,
    ReplyParser,
    ToolArguments,
    ToolCallStart,
    ToolFormat,
    read_tools,
)
from localspec.server.tool_calls.generic import GenericFormat
from localspec.server.tool_calls.granite import GraniteFormat
from localspec.server.tool_calls.harmony import HarmonyFormat
from localspec.server.tool_calls.hermes import HermesFormat
from localspec.server.tool_calls.llama3 import Llama3Format
from localspec.server.tool_calls.mistral import MistralListFormat, MistralNamedFormat
from localspec.server.tool_calls.qwen_xml import QwenXmlFormat

Call = tuple[str, Mapping[str, Any]]
# Parts of a reply: ("content", text), ("reasoning", text), ("call", name, arguments as text).
Part = tuple[str, ...]

TAGS = Reasoning("<think>", "</think>", markers=("<think>", "</think>"))

TOOLS = read_tools(
    [
        {
            "type": "function",
            "function": {
                "name": "weather",
                "description": "Tells the weather",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "city": {"type": "string"},
                        "days": {"type": "integer"},
                        "unit": {"enum": ["celsius", "fahrenheit"]},
                    },
                    "required": ["city"],
                },
            },
        },
        {
            "type": "function",
            "function": {
                "name": "save.note-2",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}},
                        "place": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
                        "pinned": {"type": ["boolean", "null"]},
                    },
                    "required": ["tags", "place"],
                    "$defs": {"tag": {"type": "string"}},
                },
            },
        },
        {"type": "function", "function": {"name": "ping"}},
    ]
)
ROME: Call = ("weather", {"city": "Rome"})
OSLO: Call = ("weather", {"city": 'Oslo "N" \\ æ', "days": 3, "unit": "celsius"})
NOTE: Call = ("save.note-2", {"tags": ["a", "<b>"], "place": {"x": -1.5}, "pinned": None})
PING: Call = ("ping", {})


@dataclass(frozen=True)
class Form:
    """`write`: calls as the form's models write them. `separate`: a model makes one call a reply."""

    tool_format: ToolFormat
    write: Callable[[Sequence[Call]], str]
    separate: bool = False

    @property
    def reasoning(self) -> Reasoning:
        return CHANNELS if self.separate else TAGS

    def thinking(self, thought: str) -> str:
        """Reasoning, and what stands between it and a call."""
        if self.separate:
            return f"{CHANNELS.opening}{thought}{CHANNELS.closing}<|start|>assistant"
        return f"<think>\n{thought}\n</think>\n\n"


def as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _objects(calls: Iterable[Call], key: str = "arguments") -> list[str]:
    return [as_json({"name": name, key: arguments}) for name, arguments in calls]


def _tagged(calls: Iterable[Call]) -> str:
    return "\n".join(f"<tool_call>\n{body}\n</tool_call>" for body in _objects(calls))


def _named(calls: Iterable[Call]) -> str:
    return "".join(f"[TOOL_CALLS]{name}[ARGS]{as_json(arguments)}" for name, arguments in calls)


def _channelled(calls: Sequence[Call]) -> str:
    ((name, arguments),) = calls
    header = f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"
    return f"{header}{as_json(arguments)}<|call|>"


def _xml(calls: Iterable[Call]) -> str:
    written = []
    for name, arguments in calls:
        lines = ["<tool_call>", f"<function={name}>"]
        for key, value in arguments.items():
            lines += [f"<parameter={key}>", value if isinstance(value, str) else as_json(value), "</parameter>"]
        written.append("\n".join([*lines, "</function>", "</tool_call>"]))
    return "\n".join(written)


FORMS = {
    "hermes": Form(HermesFormat(), _tagged),
    "llama3": Form(Llama3Format(), lambda calls: "; ".join(_objects(calls, "parameters"))),
    "mistral": Form(MistralListFormat(), lambda calls: f"[TOOL_CALLS][{', '.join(_objects(calls))}]"),
    "mistral-args": Form(MistralNamedFormat(), _named),
    "granite": Form(GraniteFormat(), lambda calls: f"<|tool_call|>[{', '.join(_objects(calls))}]"),
    "harmony": Form(HarmonyFormat(), _channelled, separate=True),
    "qwen-xml": Form(QwenXmlFormat(), _xml),
    "generic": Form(GenericFormat(), _tagged),
}
PARALLEL = [name for name, form in FORMS.items() if not form.separate]


def read(
    form: Form | None,
    text: str,
    *,
    cuts: Iterable[int] = (),
    reasoning: Reasoning | None = None,
    starts: bool = False,
    tools: Sequence[Mapping[str, Any]] = TOOLS,
    tells_reasoning: bool = True,
) -> list[Part]:
    """What the parser makes of a reply that comes in pieces, cut at these places."""
    if form is not None and form.separate:
        reasoning = CHANNELS
    parser = ReplyParser(form.tool_format if form else None, reasoning, starts, tools, tells_reasoning=tells_reasoning)
    places = sorted({0, len(text), *cuts})
    deltas = [delta for start, end in pairwise(places) for delta in parser.push(text[start:end])]
    deltas += parser.finish()
    parts = list(_joined(deltas))
    assert parser.n_calls == len([part for part in parts if part[0] == "call"])
    return parts


def calls_in(parts: Iterable[Part]) -> list[Call]:
    """The calls of a reply that is nothing else, their arguments read as JSON."""
    read_calls = []
    for kind, *rest in parts:
        assert kind == "call", (kind, rest)
        name, arguments = rest
        read_calls.append((name, json.loads(arguments, parse_constant=_refuse)))
    return read_calls


def _joined(deltas: Iterable[Delta]) -> Iterable[Part]:
    """Neighbours of one kind as one, and each call as a whole; ids and indexes checked."""
    parts: list[list[str]] = []
    ids: set[str] = set()
    for delta in deltas:
        match delta:
            case ContentDelta(text) | ReasoningDelta(text):
                kind = "content" if isinstance(delta, ContentDelta) else "reasoning"
                assert text
                if parts and parts[-1][0] == kind:
                    parts[-1][1] += text
                else:
                    parts.append([kind, text])
            case ToolCallStart(index, call_id, name):
                assert index == len(ids)
                assert re.fullmatch("call_[0-9a-f]{24}", call_id)
                ids.add(call_id)
                assert len(ids) == index + 1
                parts.append(["call", name, ""])
            case ToolArguments(index, text):
                assert index == len(ids) - 1
                assert parts[-1][0] == "call"
                parts[-1][2] += text
    return map(tuple, parts)


def _refuse(name: str) -> float:
    raise AssertionError(f"{name} is no JSON")
