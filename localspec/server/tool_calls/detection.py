"""Which form of tool calls a chat template teaches, seen in its text."""

from __future__ import annotations

from typing import Final

from localspec.server.reasoning import Reasoning
from localspec.server.tool_calls.format import ToolFormat
from localspec.server.tool_calls.generic import GenericFormat
from localspec.server.tool_calls.granite import GraniteFormat
from localspec.server.tool_calls.harmony import HarmonyFormat
from localspec.server.tool_calls.hermes import HermesFormat
from localspec.server.tool_calls.llama3 import Llama3Format
from localspec.server.tool_calls.mistral import MistralListFormat, MistralNamedFormat
from localspec.server.tool_calls.qwen_xml import QwenXmlFormat

# What the text of a template holds, and the form that it teaches; the first that fits.
_SIGNS: Final[tuple[tuple[tuple[str, ...], type[ToolFormat]], ...]] = (
    (("<|channel|>", "<|message|>"), HarmonyFormat),
    (("tools", "[TOOL_CALLS]", "[ARGS]"), MistralNamedFormat),
    (("tools", "[TOOL_CALLS]"), MistralListFormat),
    (("tools", "<tool_call>", "<parameter="), QwenXmlFormat),
    (("tools", "<|tool_call|>", "available_tools"), GraniteFormat),
    (("tools", "<tool_call>"), HermesFormat),
    (("tools", "<|start_header_id|>", '"parameters"'), Llama3Format),
)


def tool_format_of(chat_template: str | None) -> ToolFormat:
    """The form that a model with this template was taught; else a generic one."""
    template = chat_template or ""
    return next((form() for signs, form in _SIGNS if all(sign in template for sign in signs)), GenericFormat())


def markers_of(tool_format: ToolFormat | None, reasoning: Reasoning | None) -> tuple[str, ...]:
    """Control tokens whose texts have to be part of the reply, for its parser to see them."""
    markers = (tool_format.markers if tool_format else ()) + (reasoning.markers if reasoning else ())
    return tuple(dict.fromkeys(markers))
