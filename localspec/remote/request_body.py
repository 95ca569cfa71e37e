"""A request as an OpenAI-style server reads it.

Only what the user has set is sent: for everything else the server's own defaults hold.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any, Final

from localspec.engine.requests import ChatPrompt, GenerateRequest
from localspec.errors import EndpointRefusedError, UsageError
from localspec.remote.server_facts import ServerFacts, ServerKind

__all__ = ["RequestBody"]

# OpenAI's least bias, which it knows in place of minus infinity.
_LEAST_BIAS: Final = -100.0
_MAX_TOKENS: Final = "max_tokens"
_MAX_COMPLETION_TOKENS: Final = "max_completion_tokens"

# What makes a server say more than OpenAI's does. One that refuses a name of these is asked again without it.
_EXTRAS: Final[dict[ServerKind, dict[str, Any]]] = {
    ServerKind.LLAMA_CPP: {"timings_per_token": True, "return_progress": True},
    ServerKind.LOCALSPEC: {"timings_per_token": True, "return_progress": True},
    ServerKind.VLLM: {},
    ServerKind.OTHER: {},
}


class RequestBody:
    """One request in JSON. `sampling_names`: the fields of its sampling that the user has set.

    `refused`: names that the server does not take, as earlier requests have found; this one adds to them.

    Raises:
        UsageError: the request asks for what no such server can do.
    """

    def __init__(
        self, request: GenerateRequest, facts: ServerFacts, sampling_names: Collection[str], refused: set[str]
    ) -> None:
        if not isinstance(request.prompt, ChatPrompt):
            raise UsageError("A server is asked by chats only.", hint="Leave --raw out, or load the model here.")
        options: dict[str, Any] = {"include_usage": True}
        if facts.kind is ServerKind.VLLM:
            options["continuous_usage_stats"] = True
        self.fields: dict[str, Any] = {
            "model": facts.model,
            "messages": [
                {"role": message.role, "content": message.content, **message.more}
                for message in request.prompt.messages
            ],
            "stream": True,
            "stream_options": options,
            **_EXTRAS[facts.kind],
            **_sampling(request, sampling_names, facts.kind),
        }
        self._extras = {"stream_options", *_EXTRAS[facts.kind]}
        self._refused = refused
        for name in self._extras & refused:
            del self.fields[name]
        if request.max_tokens is not None:
            self.fields[_MAX_COMPLETION_TOKENS if _MAX_TOKENS in refused else _MAX_TOKENS] = request.max_tokens
        if request.stop:
            self.fields["stop"] = list(request.stop)
        if facts.kind is ServerKind.LOCALSPEC:
            speculation: dict[str, Any] = {"mode": request.mode.value}
            if request.num_speculative_tokens is not None:
                speculation["num_speculative_tokens"] = request.num_speculative_tokens
            self.fields["localspec"] = speculation

    def gives_in_to(self, error: EndpointRefusedError) -> bool:
        """Take out, or call otherwise, what a server refuses by name and the user has not asked for by that name.

        Returns whether there was such a thing: the request is worth another attempt then.
        """
        if error.status not in {400, 422}:
            return False
        if _MAX_TOKENS in self.fields and _MAX_COMPLETION_TOKENS in error.message:
            self.fields[_MAX_COMPLETION_TOKENS] = self.fields.pop(_MAX_TOKENS)
            self._refused.add(_MAX_TOKENS)
            return True
        named = {name for name in self._extras & self.fields.keys() if re.search(rf"\b{name}\b", error.message)}
        for name in named:
            del self.fields[name]
        self._refused |= named
        return bool(named)


def _sampling(request: GenerateRequest, names: Collection[str], kind: ServerKind) -> dict[str, Any]:
    params = request.sampling
    fields = {name: getattr(params, name) for name in names if getattr(params, name) is not None}
    if "dry_sequence_breakers" in fields:
        fields["dry_sequence_breakers"] = list(params.dry_sequence_breakers)
    if biases := fields.pop("logit_bias", None):
        fields["logit_bias"] = {str(token): max(_LEAST_BIAS, bias) for token, bias in biases}
    if (schema := fields.pop("json_schema", None)) is not None:
        fields["response_format"] = {"type": "json_schema", "json_schema": {"name": "reply", "schema": _parsed(schema)}}
    if kind is ServerKind.VLLM and "repeat_penalty" in fields:
        fields["repetition_penalty"] = fields.pop("repeat_penalty")
    return fields


def _parsed(schema: str) -> Any:
    try:
        return json.loads(schema)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"The JSON schema is no JSON: {error}.") from error
