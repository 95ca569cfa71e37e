"""The body of POST /v1/chat/completions. A field that is not here is refused by its name."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field, JsonValue

from localspec.server.bodies import RequestBody
from localspec.server.chat_messages import ChatMessage
from localspec.server.errors import RefusedFieldError
from localspec.server.sampling import SamplingFields, SpeculationFields, StopField

__all__ = ["ChatRequest", "Label", "Labels", "StreamOptions", "reply_limit"]

_MAX_MESSAGES: Final = 8192
_MAX_TOP_LOGPROBS: Final = 20
_MAX_CHOICES: Final = 128

Label = Annotated[str, Field(max_length=512)]
Labels = Annotated[dict[Annotated[str, Field(max_length=64)], Label], Field(max_length=16)]
_Limit = Annotated[int, Field(ge=-1, le=2**31 - 1)]


class StreamOptions(RequestBody):
    """`include_usage`: one more chunk at the end, with the counts. Nothing is padded against listeners."""

    include_usage: bool = False
    include_obfuscation: Literal[False] | None = None


class JsonSchemaFormat(RequestBody):
    """A named schema; `strict` or not, the reply follows it."""

    name: Annotated[str, Field(max_length=256)] | None = None
    description: str | None = None
    schema_: Annotated[dict[str, JsonValue], Field(alias="schema", default_factory=dict)]
    strict: bool | None = None


class ResponseFormat(RequestBody):
    """Any text, a JSON object (in llama.cpp's form also by a schema), or JSON by a schema."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None
    schema_: Annotated[dict[str, JsonValue] | None, Field(alias="schema")] = None

    def wanted_schema(self) -> dict[str, Any] | None:
        """The schema that the reply has to follow; None: any text.

        Raises:
            RefusedFieldError: it has none, or one that its type does not use.
        """
        unused = {"text": ("json_schema", "schema_"), "json_object": ("json_schema",), "json_schema": ("schema_",)}
        for name in unused[self.type]:
            if getattr(self, name) is not None:
                param = "response_format." + name.rstrip("_")
                raise RefusedFieldError(f"{param} does not belong to type {self.type}.", param=param)
        if self.type == "json_schema":
            if self.json_schema is None:
                param = "response_format.json_schema"
                raise RefusedFieldError(f"{param} is missing.", param=param, code="missing_required_parameter")
            return dict(self.json_schema.schema_)
        return dict(self.schema_ or {"type": "object"}) if self.type == "json_object" else None


class ChatRequest(SamplingFields, SpeculationFields):
    """OpenAI's request, with llama.cpp's samplers and the field `localspec`.

    `model` may be any name: the one model that is loaded replies, and the reply tells its name. `max_tokens` -1: no
    limit. `chat_template_kwargs` are variables of the model's chat template, and so is `reasoning_effort`.
    A stream tells `timings` with each piece, and how far the prompt was read, where `timings_per_token` and
    `return_progress` ask for it.
    """

    model: Label | None = None
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=_MAX_MESSAGES)]
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: _Limit | None = None
    max_completion_tokens: _Limit | None = None
    stop: StopField | None = None
    n: Annotated[int, Field(ge=1, le=_MAX_CHOICES)] = 1
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=_MAX_TOP_LOGPROBS)] | None = None
    response_format: ResponseFormat | None = None
    tools: list[dict[str, JsonValue]] = Field(default_factory=list)
    tool_choice: Literal["none", "auto", "required"] | dict[str, JsonValue] | None = None
    parallel_tool_calls: bool = True
    chat_template_kwargs: dict[str, JsonValue] = Field(default_factory=dict)
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    reasoning_format: Literal["none", "auto", "deepseek"] = "auto"
    cache_prompt: bool = True
    ignore_eos: bool = False
    timings_per_token: bool = False
    return_progress: bool = False

    # Taken with the values that ask for nothing: nothing is kept, and there is one tier, one kind of reply.
    store: Literal[False] | None = None
    service_tier: Literal["auto", "default"] | None = None
    modalities: list[Literal["text"]] | None = None
    verbosity: Literal["medium"] | None = None
    # Labels for a service with many users.
    metadata: Labels | None = None
    user: Label | None = None
    safety_identifier: Label | None = None
    prompt_cache_key: Label | None = None

    def n_logprobs(self) -> int | None:
        """Alternatives to tell at each place; None: no log-probabilities at all.

        Raises:
            RefusedFieldError: alternatives are asked for, and logprobs is not set.
        """
        if self.top_logprobs is not None and not self.logprobs:
            raise RefusedFieldError("top_logprobs needs logprobs to be true.", param="top_logprobs")
        return (self.top_logprobs or 0) if self.logprobs else None

    def template_variables(self) -> dict[str, Any]:
        """What the chat template is told besides messages and tools."""
        variables: dict[str, Any] = {}
        if self.reasoning_effort is not None:
            variables["reasoning_effort"] = self.reasoning_effort
            if self.reasoning_effort == "none":
                variables["enable_thinking"] = False
        return variables | self.chat_template_kwargs


def reply_limit(default: int | None, **given: int | None) -> int | None:
    """The most tokens of a reply, from fields that mean the same; -1 means no limit.

    Raises:
        RefusedFieldError: two of them say different things.
    """
    values = {name: value for name, value in given.items() if value is not None}
    if len(set(values.values())) > 1:
        listed = " and ".join(f"{name} is {value}" for name, value in values.items())
        raise RefusedFieldError(f"{listed}; they mean the same.", param=next(iter(values)), hint="Give one of them.")
    limit = next(iter(values.values()), default)
    return None if limit == -1 else limit
