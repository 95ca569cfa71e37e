"""Values between Qwen3-Coder's parameter tags: texts as they are, anything else as JSON, or as Python prints it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

# The template prints with Jinja's `string`, and models learned from it.
_PYTHON_NAMES: Final = {"True": True, "False": False, "None": None}
_KEYWORDS_WITH_TYPES: Final = ("$ref", "allOf", "properties", "items", "enum", "const")


class TextValue:
    """A text that comes in pieces, written as a JSON string. Its last line feed belongs to the tag after it."""

    def __init__(self, emit: Callable[[str], None]) -> None:
        self._emit = emit
        self._held = ""
        emit('"')

    def add(self, piece: str) -> None:
        text = self._held + piece
        self._held = "\n" if text.endswith("\n") else ""
        self._emit(json.dumps(text.removesuffix("\n"), ensure_ascii=False)[1:-1])

    def end(self) -> None:
        self._emit('"')


def is_text(schema: Mapping[str, Any], *, unless_known: bool = False) -> bool:
    """Whether every value of the schema is a text. `unless_known`: whether one may be, as far as it tells."""
    types = _types(schema)
    return types == {"string"} or (unless_known and ("string" in types or (not types and not _says_more(schema))))


def texts_allowed(schema: Mapping[str, Any]) -> list[str]:
    """The texts of an enumeration of texts; none: it is no such thing."""
    listed = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(listed, list) and listed and all(isinstance(each, str) for each in listed):
        return [str(each) for each in listed]
    return []


def value_of(text: str, schema: Mapping[str, Any]) -> Any:
    """What a value is that is not certainly a text: JSON where its type is allowed, else the text itself."""
    types = _types(schema)
    written = text.strip()
    try:
        value = _PYTHON_NAMES[written] if written in _PYTHON_NAMES else json.loads(written, strict=False)
    except (ValueError, RecursionError):
        return text
    if "string" in types and _type_of(value) not in types - {"string"}:
        return text
    return value


def _types(schema: Mapping[str, Any]) -> set[str]:
    """The types that are allowed, by their names in JSON schema; none: the schema does not say."""
    if texts_allowed(schema):
        return {"string"}
    named = schema.get("type")
    if isinstance(named, str):
        return {named}
    if isinstance(named, list):
        return {str(each) for each in named}
    branches = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(branches, list) and all(isinstance(each, Mapping) for each in branches):
        kinds = [_types(each) for each in branches]
        return set().union(*kinds) if all(kinds) else set()
    return set()


def _says_more(schema: Mapping[str, Any]) -> bool:
    return any(key in schema for key in (*_KEYWORDS_WITH_TYPES, "anyOf", "oneOf"))


def _type_of(value: object) -> str:
    for kind, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (dict, "object"), (list, "array")):
        if isinstance(value, kind):
            return name
    return "null" if value is None else "string"
