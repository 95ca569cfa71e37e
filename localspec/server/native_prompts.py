"""The shapes that llama.cpp's `prompt` field takes: text, token ids, both mixed, or a list of prompts.

"text"    [12, 34]    [12, "text", 34]    {"prompt_string": "text"}        one prompt
["text", [12, 34], [12, "text"], {"prompt_string": "text"}]                several, one result for each
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import AfterValidator, WithJsonSchema

from localspec.engine.requests import MixedPrompt, RawPrompt

__all__ = ["MAX_PROMPTS", "NativePrompts", "TextOrTokens", "parse_prompts", "parse_text_or_tokens"]

TextOrTokens = RawPrompt | MixedPrompt

# Prompts of one request; each of them is a reply that waits for a slot.
MAX_PROMPTS: Final = 64
_MAX_TOKEN: Final = 2**31 - 1
_SHAPES: Final = "text, an array of token ids and texts, or an array of such prompts"


def parse_prompts(value: Any) -> tuple[TextOrTokens, ...]:
    """The prompts that a JSON value stands for. Special tokens in their texts count, as they do for llama.cpp.

    Raises:
        ValueError: it has none of the shapes; the message says which part.
    """
    if not isinstance(value, list):
        return (_one(value, "it"),)
    if not value:
        raise ValueError(f"it is empty; it should be {_SHAPES}")
    # An array with a token id in it is one prompt, as in llama.cpp; texts alone are one prompt each.
    if any(isinstance(part, int) for part in value):
        return (_one(value, "it"),)
    if len(value) > MAX_PROMPTS:
        raise ValueError(f"it has {len(value)} prompts; it may have at most {MAX_PROMPTS}")
    return tuple(_one(part, f"prompt {number}") for number, part in enumerate(value))


def parse_text_or_tokens(value: Any, what: str = "it") -> TextOrTokens:
    """One prompt: text, or an array of token ids and texts, which may be empty. `what`: its name in messages.

    Raises:
        ValueError: it is something else.
    """
    if isinstance(value, str):
        return RawPrompt(value, parse_special=True)
    if not isinstance(value, list):
        raise ValueError(f"{what} should be text, or an array of token ids and texts")  # noqa: TRY004 - pydantic wants it
    for part in value:
        if isinstance(part, bool) or not isinstance(part, int | str):
            raise ValueError(f"{what} has an element that is neither a token id nor a text")  # noqa: TRY004 - pydantic wants it
        if isinstance(part, int) and not 0 <= part <= _MAX_TOKEN:
            raise ValueError(f"{what} has the token id {part}; ids are between 0 and {_MAX_TOKEN}")
    return MixedPrompt(tuple(value))


def _one(value: Any, what: str) -> TextOrTokens:
    if isinstance(value, dict):
        if "multimodal_data" in value:
            raise ValueError(f"{what} has multimodal_data; this server reads text only")
        value = value.get("prompt_string")
        if not isinstance(value, str):
            raise ValueError(f"{what} is an object without a text prompt_string")  # noqa: TRY004 - pydantic wants it
    if isinstance(value, list) and not value:
        raise ValueError(f"{what} is empty; it should be {_SHAPES}")
    return parse_text_or_tokens(value, what)


_ONE_SCHEMA: Final = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "array",
            "minItems": 1,
            "items": {"anyOf": [{"type": "integer", "minimum": 0, "maximum": _MAX_TOKEN}, {"type": "string"}]},
        },
        {
            "type": "object",
            "properties": {"prompt_string": {"type": "string"}},
            "required": ["prompt_string"],
            "additionalProperties": False,
        },
    ]
}

NativePrompts = Annotated[
    Any,
    AfterValidator(parse_prompts),
    WithJsonSchema(
        {
            "anyOf": [
                *_ONE_SCHEMA["anyOf"],
                {"type": "array", "minItems": 1, "maxItems": MAX_PROMPTS, "items": _ONE_SCHEMA},
            ]
        }
    ),
]
"""A field of a request body that holds what `parse_prompts` makes of it."""
