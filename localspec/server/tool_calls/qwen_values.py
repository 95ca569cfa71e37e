"""Values between Qwen3-Coder's parameter tags: texts as they are, anything else as JSON, or as Python prints it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from localspec.server.tool_calls import json_text

# The template prints with Jinja's `string`, and models learned from it.
_PYTHON_NAMES: Final = {"True": "true", "False": "false", "None": "null"}
_KEYWORDS_WITH_TYPES: Final = ("$ref", "allOf", "properties", "items")
_UNIONS: Final = ("anyOf", "oneOf")


class TextValue:
    """A text that comes in pieces, written as a JSON string. Its last line feed belongs to the tag after it."""

    def __init__(self, emit: Callable[[str], None]) -> None:
        self._emit = emit
        self._held = ""
        emit('"')

    def add(self, piece: str) -> None:
        text = self._held + piece
        self._held = "\n" if text.endswith("\n") else ""
        self._emit(json_text.write(text.removesuffix("\n"))[1:-1])

    def end(self) -> None:
        self._emit('"')


def is_text(schema: Mapping[str, Any]) -> bool:
    """Whether every value of the schema is a text."""
    return _types(schema) == {"string"}


def may_be_any_text(schema: Mapping[str, Any]) -> bool:
    """Whether texts are allowed that the schema does not list, as far as it tells."""
    if _listed(schema) is not None:
        return False
    branches = _branches(schema)
    if branches:
        return any(may_be_any_text(branch) for branch in branches)
    types = _types(schema)
    return "string" in types or not (types or any(key in schema for key in _KEYWORDS_WITH_TYPES))


def texts_allowed(schema: Mapping[str, Any]) -> list[str]:
    """The texts that the schema lists."""
    listed = _listed(schema)
    if listed is not None:
        return [each for each in listed if isinstance(each, str)]
    return [text for branch in _branches(schema) for text in texts_allowed(branch)]


def without_texts(schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The schema without the texts that it lists; None: nothing else is left."""
    listed = _listed(schema)
    if listed is not None:
        others = [each for each in listed if not isinstance(each, str)]
        return {"enum": others} if others else None
    branches = _branches(schema)
    if not branches or not texts_allowed(schema):
        return schema
    others = [other for branch in branches if (other := without_texts(branch)) is not None]
    beside = {key: value for key, value in schema.items() if key not in _UNIONS}
    return {**beside, "anyOf": others} if others else None


def json_of(text: str, schema: Mapping[str, Any]) -> str:
    """The JSON of a value that is not certainly a text: what is written where its type is allowed, else the text."""
    if text in texts_allowed(schema):
        return json_text.write(text)
    types = _types(schema)
    written = _PYTHON_NAMES.get(text.strip(), text.strip())
    try:
        if "string" not in types or _type_of(json_text.read(written)) in _with_integers(types) - {"string"}:
            return json_text.checked(written)
    except ValueError:
        pass
    return json_text.write(text)


def _listed(schema: Mapping[str, Any]) -> list[Any] | None:
    """The only values that are allowed, where the schema lists them."""
    listed = [schema["const"]] if "const" in schema else schema.get("enum")
    return listed if isinstance(listed, list) and listed else None


def _branches(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The schemas of which a value has to follow one, where that is all that is said."""
    for key in _UNIONS:
        branches = schema.get(key)
        if isinstance(branches, list) and all(isinstance(each, Mapping) for each in branches):
            return branches
    return []


def _types(schema: Mapping[str, Any]) -> set[str]:
    """The types that are allowed, by their names in JSON schema; none: the schema does not say."""
    listed = _listed(schema)
    if listed is not None:
        return set(map(_type_of, listed))
    named = schema.get("type")
    if isinstance(named, str):
        return {named}
    if isinstance(named, list):
        return {str(each) for each in named}
    kinds = [_types(branch) for branch in _branches(schema)]
    return set().union(*kinds) if all(kinds) else set()


def _with_integers(types: set[str]) -> set[str]:
    return types | {"integer"} if "number" in types else types


def _type_of(value: object) -> str:
    for kind, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (dict, "object"), (list, "array")):
        if isinstance(value, kind):
            return name
    return "null" if value is None else "string"
