"""The keywords of one JSON schema, read with their kinds: a schema comes from anywhere."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

KEYS_OF: Final = {
    "object": ("properties", "additionalProperties", "required", "patternProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "string": ("pattern", "minLength", "maxLength", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
SAYING_KEYS: Final = {
    *("type", "allOf", "anyOf", "oneOf", "$ref", "enum", "const", "$dynamicRef", "$recursiveRef"),
    *(key for keys in KEYS_OF.values() for key in keys),
}
_TYPES: Final = ("object", "array", "string", "number", "integer", "boolean", "null")


class SchemaError(Exception):
    """The schema cannot be used; the message says why."""


class NothingFitsError(SchemaError):
    """No value is allowed: an alternative or a property that is left out, or an error of the whole schema."""

    def __init__(self, why: str = "a part of it allows nothing") -> None:
        super().__init__(why)


def says_something(schema: Mapping[str, Any]) -> bool:
    """Whether a grammar of it differs from that of any value."""
    return not SAYING_KEYS.isdisjoint(schema)


def explicit_types(schema: Mapping[str, Any]) -> list[str] | None:
    """The types that the schema names; None: it names none."""
    named = schema.get("type")
    if named is None and "type" not in schema:
        return None
    kinds = [named] if isinstance(named, str) else listed(schema, "type")
    for kind in kinds:
        if kind not in _TYPES:
            raise SchemaError(f"it has an unknown type: {str(kind)[:100]}")
    if schema.get("nullable") is True and "null" not in kinds:
        kinds = [*kinds, "null"]
    return list(dict.fromkeys(kinds))


def types(schema: Mapping[str, Any]) -> list[str]:
    """The types that the schema allows, by the keywords that it has where it names none; empty: all of them."""
    kinds = explicit_types(schema)
    if kinds is None:
        kinds = [kind for kind, keys in KEYS_OF.items() if any(key in schema for key in keys)]
        if kinds and schema.get("nullable") is True:
            kinds.append("null")
    return kinds


def listed(schema: Mapping[str, Any], key: str) -> Sequence[Any]:
    """A list that is not empty."""
    value = schema[key]
    if not isinstance(value, list):
        raise SchemaError(f"{key} in it is no list")
    if not value:
        raise SchemaError(f"{key} in it is empty")
    return value


def mapping(schema: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = schema.get(key, {})
    if not isinstance(value, Mapping):
        raise SchemaError(f"{key} in it is {type(value).__name__}; it must be an object")
    return value


def names(schema: Mapping[str, Any], key: str) -> list[str]:
    value = schema.get(key, [])
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise SchemaError(f"{key} in it is no list of names")
    return list(dict.fromkeys(value))


def text(schema: Mapping[str, Any], key: str) -> str | None:
    value = schema.get(key)
    if key in schema and not isinstance(value, str):
        raise SchemaError(f"{key} in it is no text")
    return value


def counts(schema: Mapping[str, Any], low_key: str, high_key: str) -> tuple[int, int | None]:
    """How many there may be; the second None: any number of them."""
    for key in (low_key, high_key):
        count = schema.get(key, 0)
        if isinstance(count, bool) or not isinstance(count, int | float) or count < 0 or count != int(count):
            raise SchemaError(f"{key} in it is no count")
    low, high = int(schema.get(low_key, 0)), int(schema[high_key]) if high_key in schema else None
    if high is not None and high < low:
        raise NothingFitsError(f"{high_key} in it is less than {low_key}")
    return low, high


class Limits:
    """The bounds of a number, as they are and as the integers within them; None: there is none.

    An `exclusiveMinimum` that is a boolean, as it once was, is about `minimum`.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.low, self.high = _number(schema, "minimum"), _number(schema, "maximum")
        self.excludes_low, self.excludes_high = (schema.get(f"exclusive{end}imum") is True for end in ("Min", "Max"))
        above, below = _number(schema, "exclusiveMinimum"), _number(schema, "exclusiveMaximum")
        if above is not None and (self.low is None or above >= self.low):
            self.low, self.excludes_low = above, True
        if below is not None and (self.high is None or below <= self.high):
            self.high, self.excludes_high = below, True
        if self.low is not None and self.high is not None and not self.low <= self.high:
            raise NothingFitsError("its least number is more than its largest")

    @property
    def least(self) -> int | None:
        """The least integer."""
        if self.low is None:
            return None
        return math.floor(self.low) + 1 if self.excludes_low else math.ceil(self.low)

    @property
    def greatest(self) -> int | None:
        """The largest integer."""
        if self.high is None:
            return None
        return math.ceil(self.high) - 1 if self.excludes_high else math.floor(self.high)

    def admit(self, number: float) -> bool:
        if self.low is not None and (number < self.low or (self.excludes_low and number == self.low)):
            return False
        return not (self.high is not None and (number > self.high or (self.excludes_high and number == self.high)))


def _number(schema: Mapping[str, Any], key: str) -> float | None:
    value = schema.get(key)
    if key not in schema or (isinstance(value, bool) and key.startswith("exclusive")):
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SchemaError(f"{key} in it is no number")
    return value


def admits(value: object, schema: Mapping[str, Any]) -> bool:
    """Whether a value of an enum fits what else the schema says of types, numbers and lengths."""
    kinds = explicit_types(schema)
    if kinds is not None and not any(_is_of(kind, value) for kind in kinds):
        return False
    try:
        if isinstance(value, str):
            return _is_within(len(value), counts(schema, "minLength", "maxLength"))
        if isinstance(value, list):
            return _is_within(len(value), counts(schema, "minItems", "maxItems"))
        if isinstance(value, Mapping):
            return all(name in value for name in names(schema, "required"))
        return isinstance(value, bool) or not isinstance(value, int | float) or Limits(schema).admit(value)
    except NothingFitsError:
        return False


def _is_of(kind: str, value: object) -> bool:
    match value:
        case None:
            return kind == "null"
        case bool():
            return kind == "boolean"
        case int() | float():
            return kind == "number" or (kind == "integer" and value == int(value))
        case str():
            return kind == "string"
        case list():
            return kind == "array"
    return kind == "object"


def _is_within(count: int, bounds: tuple[int, int | None]) -> bool:
    return bounds[0] <= count and (bounds[1] is None or count <= bounds[1])
