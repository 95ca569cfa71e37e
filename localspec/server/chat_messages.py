"""Messages of a chat as OpenAI's clients send them, and the turns that chat templates read."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Discriminator, Field, JsonValue, Tag

from localspec.engine.requests import Message
from localspec.server.bodies import RequestBody, text_or_list

__all__ = ["ChatMessage", "turn_of"]

_MAX_PARTS: Final = 4096
_MAX_CALLS: Final = 128
_Name = Annotated[str, Field(max_length=256)]


class TextPart(RequestBody):
    """Text; pictures, sounds and files are refused, by the name of their field."""

    type: Literal["text"]
    text: str


Content = Annotated[
    Annotated[str, Tag("[text]")] | Annotated[list[TextPart], Field(max_length=_MAX_PARTS), Tag("[list]")],
    Discriminator(text_or_list),
]


class CalledFunction(RequestBody):
    """A function and its arguments, which are JSON as text."""

    name: _Name
    arguments: str | dict[str, JsonValue]
    parsed_arguments: JsonValue = None  # what OpenAI's client made of them; it sends that back


class ToolCall(RequestBody):
    """A call that an earlier reply made."""

    id: _Name | None = None
    type: Literal["function"] = "function"
    function: CalledFunction
    index: int | None = None  # of a stream, which some clients send back


class InstructionMessage(RequestBody):
    """What leads the model. OpenAI's newer name for the role is not known to templates."""

    role: Literal["system", "developer"]
    content: Content
    name: _Name | None = None


class UserMessage(RequestBody):
    """What the user says."""

    role: Literal["user"]
    content: Content
    name: _Name | None = None


class AssistantMessage(RequestBody):
    """An earlier reply; `content` may be left out where it called tools.

    OpenAI's client sends back all keys of a reply, and what it has parsed of it, which says nothing to the model.
    """

    role: Literal["assistant"]
    content: Content | None = None
    name: _Name | None = None
    reasoning_content: str | None = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=_MAX_CALLS)] | None = None
    refusal: str | None = None
    parsed: JsonValue = None
    annotations: list[JsonValue] | None = None
    audio: None = None
    function_call: None = None


class ToolMessage(RequestBody):
    """The result of a call."""

    role: Literal["tool"]
    content: Content
    tool_call_id: _Name
    name: _Name | None = None


ChatMessage = Annotated[InstructionMessage | UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]


# Of a call: parts that are no word of it.
_UNTOLD: Final[dict[str, Any]] = {"index": True, "function": {"parsed_arguments"}}


def turn_of(message: ChatMessage) -> Message:
    """The turn for the chat template. Parts of a text become lines of it."""
    more: dict[str, Any] = {}
    if message.name is not None:
        more["name"] = message.name
    content = message.content
    match message:
        case InstructionMessage():
            return Message("system", _text(content), more)
        case ToolMessage():
            more["tool_call_id"] = message.tool_call_id
        case AssistantMessage():
            if message.reasoning_content is not None:
                more["reasoning_content"] = message.reasoning_content
            if message.tool_calls:
                more["tool_calls"] = [
                    call.model_dump(exclude_none=True, exclude=_UNTOLD) for call in message.tool_calls
                ]
            if content is None:
                content = message.refusal
    return Message(message.role, _text(content), more)


def _text(content: str | list[TextPart] | None) -> str:
    if isinstance(content, list):
        return "\n".join(part.text for part in content)
    return content or ""
