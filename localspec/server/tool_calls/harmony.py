"""gpt-oss: replies are messages on channels, and a call is a message to a function.

    <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>commentary to=functions.name
    <|constrain|>json<|message|>{...}<|call|>

in one line. The recipient may also stand before the channel.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

from localspec.engine.requests import ChatPrompt, Message
from localspec.llama.gbnf import literal, one_of
from localspec.server.reasoning import CHANNELS, Reasoning
from localspec.server.tool_calls.calls import CallSink, NotACallError
from localspec.server.tool_calls.format import ToolFormat
from localspec.server.tool_calls.gbnf import Rules, beginning, until
from localspec.server.tool_calls.json_calls import argument_schemas, take_json
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
from localspec.server.tool_calls.tools import name_of
from localspec.server.tool_calls.turns import one_call_a_turn

_START, _CHANNEL, _CONSTRAIN, _MESSAGE, _END = CHANNELS.markers
_CALL, _RETURN = "<|call|>", "<|return|>"
_ENDS: Final = (_END, _CALL, _RETURN, _START, _CHANNEL)
_HEADER_STARTS: Final = (_START, _CHANNEL, _MESSAGE, " to=")
_LONGEST_HEADER: Final = 400
# A reply may begin with the recipient, and space at its start has been read.
_RECIPIENT: Final = re.compile(r"(?:\A| )to=functions\.([^\s<]+)")
_CHANNEL_NAME: Final = re.compile(re.escape(_CHANNEL) + r"(\w+)")


class HarmonyFormat(ToolFormat):
    """One call a turn; what was thought before it is the turn's `thinking`."""

    name: ClassVar[str] = "harmony"
    markers: ClassVar[tuple[str, ...]] = CHANNELS.markers
    triggers: ClassVar[tuple[str, ...]] = (
        f"(?:{re.escape(_CHANNEL)}(?:commentary|analysis)|{re.escape(_START)}assistant|\\A)"
        f"( to={beginning('functions.')})",
    )

    def _prompt(
        self, messages: tuple[Message, ...], tools: tuple[Mapping[str, Any], ...], variables: Mapping[str, Any]
    ) -> ChatPrompt:
        turns: list[Message] = []
        for message in one_call_a_turn(messages):
            more = dict(message.more)
            thinking = more.pop("reasoning_content", None)
            if thinking:
                more["thinking"] = thinking
            turn = replace(message, more=more)
            if "tool_calls" in more and message.content and thinking:
                # The template takes one of them with a call.
                turns.append(Message(message.role, message.content))
                turn = replace(turn, content="")
            turns.append(turn)
        return ChatPrompt(tuple(turns), tools, variables)

    def _rules(self, tools: Sequence[Mapping[str, Any]], _parallel: bool) -> Rules:
        # The end of a call ends the reply, so there is one.
        choices = one_of(f"{literal(name_of(tool))} header args-{number}" for number, tool in enumerate(tools))
        text = (
            f'calls ::= " to=functions." {choices} "{_CALL}"?\n'
            f'header ::= ( "{_CHANNEL}" channel )? ( ws "{_CONSTRAIN}json" | " " ws "json" )? ws "{_MESSAGE}" ws\n'
            'channel ::= "commentary" | "analysis"\n'
        )
        return Rules(text, argument_schemas(tools))

    def _before(self, _reasoning: Reasoning | None, starts_in_reasoning: bool) -> str:
        opening = "" if starts_in_reasoning else f"{literal(CHANNELS.opening)} "
        analysis = f"{opening}thought {literal(_START + 'assistant')}"
        return (
            f"before ::= {analysis if starts_in_reasoning else f'( {analysis} )?'} ( {literal(_CHANNEL)} channel )?\n"
            + until("thought", CHANNELS.closing)
        )

    def read(self, source: Source, calls: CallSink) -> Reading[None]:
        header = yield from _take_header(source)
        recipient = _RECIPIENT.search(header)
        if recipient is None:
            raise NotACallError
        calls.schema(recipient[1])
        yield from take_literal(source, _MESSAGE)
        yield from take_space(source)
        if (yield from next_char(source)) != "{":
            raise NotACallError
        calls.begin(recipient[1])
        yield from take_json(source, calls.arguments)
        calls.end()
        yield from take_space(source)
        if (yield from take_closing(source, _CALL)) or (yield from take_closing(source, _END)):
            source.hold()


def take_message(
    source: Source, thought: Callable[[str], None], content: Callable[[str], None], *, starts_in_reasoning: bool = False
) -> Reading[bool]:
    """Read one message and pass its text on by its channel; what has no header is content. Whether its end came too."""
    emit = thought if starts_in_reasoning else content
    if not starts_in_reasoning and (yield from _is_header(source)):
        source.hold()
        try:
            header = yield from _take_header(source)
        except NotACallError:
            source.rewind()
            content(source.take(1))
        else:
            source.release()
            yield from take_literal(source, _MESSAGE)
            channel = _CHANNEL_NAME.search(header)
            if channel and channel[1] == "analysis":
                emit = thought
    marker = yield from take_until(source, _ENDS, emit)
    if marker in (_END, _CALL, _RETURN):
        source.take(len(marker))
    return bool(marker)


def _is_header(source: Source) -> Reading[bool]:
    source.hold()
    found = False
    for start in _HEADER_STARTS:
        found = found or (yield from take_literal(source, start))
    source.rewind()
    return found


def _take_header(source: Source) -> Reading[str]:
    """What stands before the next `<|message|>`, which is left unread."""
    header = yield from take_short(source, (_MESSAGE,), _LONGEST_HEADER)
    if header is None:
        raise NotACallError
    return header
