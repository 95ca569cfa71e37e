"""What `input` of /v1/responses may hold: text, or items, in the form that OpenAI's clients send and send back.

A reply's own items (messages, reasoning, calls) come back as they were told, with their ids and states, and with what
OpenAI's client has parsed of them; those are accepted and say nothing to the model. Other kinds of items are refused by
name.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Discriminator, Field, JsonValue, Tag

from localspec.server.bodies import RequestBody, text_or_list

__all__ = [
    "FunctionCall",
    "FunctionCallOutput",
    "InputItem",
    "InputMessage",
    "OutputTextPart",
    "ReasoningItem",
    "RefusalPart",
    "TextPart",
]

_MAX_ID: Final = 256
_Id = Annotated[str, Field(min_length=1, max_length=_MAX_ID)]
_Status = Literal["in_progress", "completed", "incomplete"]


class TextPart(RequestBody):
    """Text of a user, or of who leads the model."""

    type: Literal["input_text"]
    text: str


class OutputTextPart(RequestBody):
    """Text of an earlier reply."""

    type: Literal["output_text"]
    text: str
    annotations: list[dict[str, Any]] | None = None
    logprobs: list[dict[str, Any]] | None = None
    parsed: JsonValue = None


class RefusalPart(RequestBody):
    """A refusal of an earlier reply, which is text to the model."""

    type: Literal["refusal"]
    refusal: str


class _ReasoningTextPart(RequestBody):
    type: Literal["reasoning_text"]
    text: str


class _SummaryTextPart(RequestBody):
    type: Literal["summary_text"]
    text: str


def _known_part(value: object) -> object:
    if not isinstance(value, dict):
        raise ValueError("a part should be an object")  # noqa: TRY004 - pydantic wants it
    kind = value.get("type")
    if kind not in ("input_text", "output_text", "refusal"):
        raise ValueError(f"content of type {str(kind)[:_MAX_ID]} is not supported: this server reads text only")
    return value


def _tag(value: object) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return f"[{kind or 'message'}]"


_AnyPart = Annotated[
    Annotated[
        Annotated[TextPart, Tag("[input_text]")]
        | Annotated[OutputTextPart, Tag("[output_text]")]
        | Annotated[RefusalPart, Tag("[refusal]")],
        Discriminator(_tag),
    ],
    BeforeValidator(_known_part),
]
_Content = Annotated[
    Annotated[str, Tag("[text]")] | Annotated[list[_AnyPart], Tag("[list]")], Discriminator(text_or_list)
]


class InputMessage(RequestBody):
    """A turn. `content`: text, or parts of text."""

    type: Literal["message"] | None = None
    role: Literal["user", "assistant", "system", "developer"]
    content: _Content
    id: _Id | None = None
    status: _Status | None = None
    phase: Literal["commentary", "final_answer"] | None = None

    def text(self) -> str:
        """All its text."""
        return self.content if isinstance(self.content, str) else joined(self.content)


class FunctionCall(RequestBody):
    """A call that an earlier reply made. `arguments`: JSON, as text."""

    type: Literal["function_call"]
    call_id: _Id
    name: Annotated[str, Field(min_length=1, max_length=_MAX_ID)]
    arguments: str
    parsed_arguments: JsonValue = None
    id: _Id | None = None
    status: _Status | None = None


class FunctionCallOutput(RequestBody):
    """What a call gave."""

    type: Literal["function_call_output"]
    call_id: _Id
    output: _Content
    id: _Id | None = None
    status: _Status | None = None

    def text(self) -> str:
        """All its text."""
        return self.output if isinstance(self.output, str) else joined(self.output)


class ReasoningItem(RequestBody):
    """What the model thought in an earlier reply. A summary, and what is encrypted, comes from another server."""

    type: Literal["reasoning"]
    id: _Id | None = None
    summary: list[_SummaryTextPart] | None = None
    content: list[_ReasoningTextPart] | None = None
    encrypted_content: str | None = None
    status: _Status | None = None

    def text(self) -> str:
        """All its text; "" where only others can read it."""
        return "".join(part.text for part in self.content or ())


def joined(parts: list[TextPart | OutputTextPart | RefusalPart]) -> str:
    """The text of all parts, which are lines of it, as in a chat's messages."""
    return "\n".join(part.refusal if isinstance(part, RefusalPart) else part.text for part in parts)


_KINDS: Final = ("message", "function_call", "function_call_output", "reasoning")


def _known_item(value: object) -> object:
    if not isinstance(value, dict):
        raise ValueError("an item should be an object")  # noqa: TRY004 - pydantic wants it
    kind = value.get("type") or "message"
    if kind == "item_reference":
        raise ValueError("this server keeps no items; send the item itself in place of an item_reference")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f"items of type {str(kind)[:_MAX_ID]} are not supported; those of {', '.join(_KINDS)} are")
    return value


InputItem = Annotated[
    Annotated[
        Annotated[InputMessage, Tag("[message]")]
        | Annotated[FunctionCall, Tag("[function_call]")]
        | Annotated[FunctionCallOutput, Tag("[function_call_output]")]
        | Annotated[ReasoningItem, Tag("[reasoning]")],
        Discriminator(_tag),
    ],
    BeforeValidator(_known_item),
]
"""One item of `input`."""
