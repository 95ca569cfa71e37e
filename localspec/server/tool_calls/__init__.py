"""Tool calls in the forms that chat templates teach: what the template is given, what the reply may be, what it was.

    tools = read_tools(body.tools)
    choice = ToolChoice.read(body.tool_choice, tools)
    tool_format = tool_format_of(template)                     # template text of the model, or None
    reasoning = reasoning_of(template)                         # localspec.server.reasoning; None: it does not reason
    prompt = tool_format.chat_prompt(messages, tools, choice, variables)
    starts = reasoning is not None and reasoning.starts_in(prompt_text)        # the prompt as the engine renders it
    constraint = tool_format.constraint(tools, choice, parallel, reasoning, starts_in_reasoning=starts)
    sampling = constraint.applied_to(sampling)
    parser = ReplyParser(tool_format, reasoning, starts_in_reasoning=starts, tools=choice.allowed(tools))
    parser.push(text) ... parser.finish()                      # -> list[Delta]

`markers_of(tool_format, reasoning)`: control tokens whose texts the reply has to contain for the parser to see them.
`chat_prompt` is right for every conversation, also one without tools: earlier turns may hold calls.
"""

from __future__ import annotations

from localspec.server.tool_calls.constraint import FREE, Constraint
from localspec.server.tool_calls.deltas import ContentDelta, Delta, ReasoningDelta, ToolArguments, ToolCallStart
from localspec.server.tool_calls.detection import markers_of, tool_format_of
from localspec.server.tool_calls.format import ToolFormat
from localspec.server.tool_calls.reply_parser import ReplyParser
from localspec.server.tool_calls.tools import CallMode, ToolChoice, name_of, read_tools

__all__ = [
    "FREE",
    "CallMode",
    "Constraint",
    "ContentDelta",
    "Delta",
    "ReasoningDelta",
    "ReplyParser",
    "ToolArguments",
    "ToolCallStart",
    "ToolChoice",
    "ToolFormat",
    "markers_of",
    "name_of",
    "read_tools",
    "tool_format_of",
]
