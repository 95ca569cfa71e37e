"""What two JSON schemas say together, as one schema: how `allOf`, and what stands beside `$ref` and `anyOf`, are read.

Each keyword that grammars know says what both say. Of two patterns or formats, which no grammar can say together, the
first stands.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from localspec.llama.schema_keywords import (
    NothingFitsError,
    SchemaError,
    explicit_types,
    listed,
    mapping,
    names,
    says_something,
)

_MAX_BRANCHES: Final = 256
_LARGEST: Final = ("minItems", "minLength", "minimum")
_LEAST: Final = ("maxItems", "maxLength", "maximum")
_ITEM_KEYS: Final = ("items", "prefixItems", "additionalItems")
_SIZED_KEYS: Final = ("properties", "required", "enum", "anyOf", "oneOf", "allOf", "prefixItems")

Schema = Mapping[str, Any] | bool


def weight(schema: Mapping[str, Any]) -> int:
    """About how much work it is to merge it."""
    parts = (schema.get(key) for key in _SIZED_KEYS)
    return len(schema) + sum(len(part) for part in parts if isinstance(part, list | Mapping))


def both(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """A schema of what both allow.

    Raises:
        NothingFitsError: they contradict each other.
        SchemaError: a keyword in one of them is of the wrong kind.
    """
    merged = {**other, **one}
    shared = one.keys() & other.keys()
    if "type" in shared:
        merged["type"] = _common_types(one, other)
    if "const" in one or "const" in other or "enum" in shared:
        merged.pop("const", None)
        merged["enum"] = _common_values(one, other)
    _merge_bounds(merged, one, other)
    if "required" in shared:
        merged["required"] = list(dict.fromkeys([*names(one, "required"), *names(other, "required")]))
    _merge_properties(merged, one, other)
    if any(key in one for key in _ITEM_KEYS) and any(key in other for key in _ITEM_KEYS):
        _merge_items(merged, one, other)
    _merge_branches(merged, one, other)
    if "nullable" in shared:
        merged["nullable"] = one["nullable"] is True and other["nullable"] is True
    return merged


def _all_of(one: object, other: object) -> object:
    """A schema of both, or the one that matters."""
    if one is False or other is False:
        return False
    for schema, rest in ((one, other), (other, one)):
        if schema is True or (isinstance(schema, Mapping) and not says_something(schema)):
            return rest
    return one if one == other else {"allOf": [one, other]}


def _common_types(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    first, second = explicit_types(one) or [], explicit_types(other) or []
    common = [kind for kind in first if kind in second or (kind == "integer" and "number" in second)]
    common += [kind for kind in second if kind == "integer" and "number" in first and kind not in common]
    if not common:
        raise NothingFitsError("types in it contradict each other")
    return common


def _common_values(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[Any]:
    values = [
        value
        for schema in (one, other)
        for value in ([[schema["const"]]] if "const" in schema else [])
        + ([listed(schema, "enum")] if "enum" in schema else [])
    ]
    first, *more = values
    for others in more:
        known = {_identity(value) for value in others}
        first = [value for value in first if _identity(value) in known]
    if not first:
        raise NothingFitsError("constants in it contradict each other")
    return list(first)


def _identity(value: object) -> str:
    """The same for equal values: 1 and 1.0 are, 1 and true are not."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, sort_keys=True)


def _extreme(key: str, one: Mapping[str, Any], other: Mapping[str, Any], choose: Any) -> Any:
    for value in (one[key], other[key]):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise SchemaError(f"{key} in it is no number")
    return choose(one[key], other[key])


def _merge_bounds(merged: dict[str, Any], one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    for key in one.keys() & other.keys():
        if key in _LARGEST or key in _LEAST:
            merged[key] = _extreme(key, one, other, max if key in _LARGEST else min)
    for key, bound, choose in (("exclusiveMinimum", "minimum", max), ("exclusiveMaximum", "maximum", min)):
        numbers = [
            schema[bound] if schema[key] is True and bound in schema else schema[key]
            for schema in (one, other)
            if key in schema and schema[key] is not False
        ]
        if any(isinstance(number, bool) or not isinstance(number, int | float) for number in numbers):
            raise SchemaError(f"{key} in it is no number")
        merged.pop(key, None)
        if numbers:
            merged[key] = choose(numbers)


def _merge_properties(merged: dict[str, Any], one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    """Properties that one schema names are additional ones to the other, if it does not name them as well."""
    mine, theirs = mapping(one, "properties"), mapping(other, "properties")
    if "properties" in one or "properties" in other:
        merged["properties"] = {
            name: _all_of(_property(one, mine, name), _property(other, theirs, name)) for name in {**mine, **theirs}
        }
    patterns, more = mapping(one, "patternProperties"), mapping(other, "patternProperties")
    if patterns and more:
        merged["patternProperties"] = {
            pattern: _all_of(patterns.get(pattern, True), more.get(pattern, True)) for pattern in {**patterns, **more}
        }
    if "additionalProperties" in one or "additionalProperties" in other:
        merged["additionalProperties"] = _all_of(
            one.get("additionalProperties", True), other.get("additionalProperties", True)
        )


def _merge_branches(merged: dict[str, Any], one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    shared = one.keys() & other.keys()
    for key in shared & {"anyOf", "oneOf"}:
        if len(listed(one, key)) * len(listed(other, key)) > _MAX_BRANCHES:
            raise SchemaError("it combines too many alternatives")
        merged[key] = [_all_of(a, b) for a in one[key] for b in other[key]]
    if "allOf" in shared:
        merged["allOf"] = [*listed(one, "allOf"), *listed(other, "allOf")]
    if "$ref" in shared and one["$ref"] != other["$ref"]:
        merged["allOf"] = [*merged.get("allOf", ()), {"$ref": other["$ref"]}]


def _property(schema: Mapping[str, Any], properties: Mapping[str, Any], name: str) -> object:
    if name in properties:
        return properties[name]
    return True if schema.get("patternProperties") else schema.get("additionalProperties", True)


def _merge_items(merged: dict[str, Any], one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    (mine, my_rest), (theirs, their_rest) = item_schemas(one), item_schemas(other)
    n = max(len(mine), len(theirs))
    for key in _ITEM_KEYS:
        merged.pop(key, None)
    mine += [True if my_rest is None else my_rest] * (n - len(mine))
    theirs += [True if their_rest is None else their_rest] * (n - len(theirs))
    if n:
        merged["prefixItems"] = [_all_of(a, b) for a, b in zip(mine, theirs, strict=True)]
    if my_rest is not None or their_rest is not None:
        merged["items"] = _all_of(True if my_rest is None else my_rest, True if their_rest is None else their_rest)


def item_schemas(schema: Mapping[str, Any]) -> tuple[list[Any], Any]:
    """The schemas of the first items, and that of the others; None: it says nothing of them.

    `items` was a list once, and `additionalItems` what is `items` now.
    """
    first, rest_key = schema.get("prefixItems", []), "items"
    if isinstance(schema.get("items"), list) and "prefixItems" not in schema:
        first, rest_key = schema["items"], "additionalItems"
    rest = schema.get(rest_key)
    if rest is None and rest_key in schema:
        raise SchemaError(f"{rest_key} in it is null where a schema belongs")
    if not isinstance(first, list):
        raise SchemaError("prefixItems in it is no list")
    if isinstance(rest, list):
        raise SchemaError("items in it is a list beside prefixItems")
    return list(first), rest
