"""The body of POST /v1/responses. A field that is not here is refused by name, and so is a value that asks for more."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Discriminator, Field, JsonValue, Tag

from localspec.engine.requests import MAX_LOGPROBS
from localspec.server.bodies import RequestBody, text_or_list
from localspec.server.chat_request import Label, Labels
from localspec.server.errors import RefusedFieldError
from localspec.server.response_items import InputItem
from localspec.server.sampling import SamplingFields, SpeculationFields

__all__ = ["ResponseRequest"]

_LOGPROBS: Final = "message.output_text.logprobs"
_MAX_ITEMS: Final = 4096
_MAX_INCLUDED: Final = 8

_Included = Literal["message.output_text.logprobs", "reasoning.encrypted_content"]
_Input = Annotated[
    Annotated[str, Tag("[text]")]
    | Annotated[list[InputItem], Field(min_length=1, max_length=_MAX_ITEMS), Tag("[list]")],
    Discriminator(text_or_list),
]

# What this server does not do, and what to do instead.
_NOT_HERE: Final = {
    "previous_response_id": "This server keeps no responses. Send the earlier items in input.",
    "conversation": "This server keeps no conversations. Send the earlier items in input.",
    "prompt": "This server keeps no prompts. Send the text in instructions and input.",
}


class TextFormat(RequestBody):
    """The form of the text: any, a JSON object, or one by a schema."""

    type: Literal["text", "json_object", "json_schema"]
    name: Label | None = None
    description: str | None = None
    schema_: Annotated[dict[str, JsonValue] | None, Field(alias="schema")] = None
    strict: bool | None = None


class TextOptions(RequestBody):
    """`verbosity` has the one value that asks for nothing."""

    format: TextFormat | None = None
    verbosity: Literal["medium"] | None = None


class ReasoningOptions(RequestBody):
    """`effort` goes to the chat template. Reasoning is told as it is: "auto" leaves to the server not to sum it up."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    summary: Literal["auto"] | None = None


class StreamOptions(RequestBody):
    """`include_obfuscation`: padding against listeners on the network, which this server does not add."""

    include_obfuscation: Literal[False] | None = None


class ResponseRequest(SamplingFields, SpeculationFields):
    """OpenAI's request, with llama.cpp's samplers and the field `localspec`.

    `model` may be any name: the one model that is loaded replies. `chat_template_kwargs` are variables of its template.
    Encrypted reasoning need not be included: reasoning is told as it is, and can be sent back so.
    """

    model: Label | None = None
    input: _Input
    instructions: str | None = None
    tools: list[dict[str, JsonValue]] | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, JsonValue] | None = None
    parallel_tool_calls: bool = True
    text: TextOptions = TextOptions()
    reasoning: ReasoningOptions | None = None
    max_output_tokens: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=min(20, MAX_LOGPROBS))] | None = None
    include: Annotated[list[_Included], Field(max_length=_MAX_INCLUDED)] | None = None
    chat_template_kwargs: dict[str, JsonValue] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None

    # Accepted, since what they ask for is so: nothing is kept, nothing is cut off, no tool of the server's is called.
    store: bool | None = None
    background: Literal[False] | None = None
    truncation: Literal["disabled"] | None = None
    service_tier: Literal["auto", "default"] | None = None
    max_tool_calls: Annotated[int, Field(ge=1)] | None = None
    # Labels, which come back as they are.
    metadata: Labels | None = None
    user: Label | None = None
    safety_identifier: Label | None = None
    prompt_cache_key: Label | None = None

    # Named here to be refused with a reason.
    previous_response_id: JsonValue = None
    conversation: JsonValue = None
    prompt: JsonValue = None

    @property
    def n_logprobs(self) -> int | None:
        """Alternatives to tell at each place of the text; None: no log-probabilities at all."""
        if self.top_logprobs or _LOGPROBS in (self.include or ()):
            return self.top_logprobs or 0
        return None

    def refuse_what_is_kept(self) -> None:
        """Refuse what would need a memory of earlier requests.

        Raises:
            RefusedFieldError: names the field.
        """
        for name, hint in _NOT_HERE.items():
            if getattr(self, name) is not None:
                raise RefusedFieldError(
                    f"{name} is not supported.", param=name, code="unsupported_parameter", hint=hint
                )

    def template_variables(self) -> dict[str, Any]:
        """What the chat template is told besides messages and tools."""
        effort = self.reasoning.effort if self.reasoning else None
        variables: dict[str, Any] = {} if effort is None else {"reasoning_effort": effort}
        if effort == "none":
            variables["enable_thinking"] = False
        return variables | (self.chat_template_kwargs or {})

    def json_schema_of_text(self) -> dict[str, Any] | None:
        """The schema that the text has to follow; None: any text.

        Raises:
            RefusedFieldError: a format by schema has none.
        """
        form = self.text.format
        if form is None or form.type == "text":
            return None
        if form.type == "json_object":
            return {"type": "object"}
        if form.schema_ is None:
            raise RefusedFieldError(
                "text.format.schema is missing.", param="text.format.schema", code="missing_required_parameter"
            )
        return dict(form.schema_)

    def echo(self) -> dict[str, Any]:
        """The fields of a response that repeat its request. The sampler's are those that run, and come with it."""
        form = self.text.format or TextFormat(type="text")
        return {
            "background": False,
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens,
            "max_tool_calls": self.max_tool_calls,
            "metadata": self.metadata or {},
            "parallel_tool_calls": self.parallel_tool_calls,
            "previous_response_id": None,
            "prompt_cache_key": self.prompt_cache_key,
            "reasoning": {"effort": self.reasoning.effort if self.reasoning else None, "summary": None},
            "safety_identifier": self.safety_identifier,
            "service_tier": "default",
            "store": False,
            "text": {"format": form.model_dump(by_alias=True, exclude_none=True)},
            "tool_choice": "auto" if self.tool_choice is None else self.tool_choice,
            "tools": self.tools or [],
            "top_logprobs": self.n_logprobs or 0,
            "truncation": "disabled",
            "user": self.user,
        }
