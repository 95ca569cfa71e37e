"""JSON schemas made up by Hypothesis, each with the values that it allows, as far as a grammar says it exactly."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

# No surrogates: Python's JSON has them, UTF-8 has not. U+007F is written with a backslash only.
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x7f"), max_size=6)
NAMES = st.one_of(st.sampled_from(["a", "ab", "b", "name", "é", "", "\n", '"', "\\u", "😀"]), TEXT)
# What fits the 18 digits of a grammar's numbers.
INTEGERS = st.integers(-(10**18) + 1, 10**18 - 1)
FLOATS = st.floats(-1e17, 1e17, allow_nan=False).map(lambda number: float(f"{number:.12g}"))
ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), INTEGERS, FLOATS, TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=5,
)


@dataclass(frozen=True)
class Known:
    """A schema and its values. Objects have their properties in the order of the schema, others last."""

    schema: Any
    values: st.SearchStrategy[Any]


def spellings(value: Any) -> list[str]:
    """The value as JSON: compact, as usual, and on lines."""
    return [
        json.dumps(value, ensure_ascii=False, separators=(",", ":")),
        json.dumps(value, ensure_ascii=False),
        json.dumps(value, ensure_ascii=False, indent=2),
    ]


@st.composite
def _strings(draw: st.DrawFn) -> Known:
    low = draw(st.integers(0, 4))
    high = draw(st.none() | st.integers(low, 6))
    schema: dict[str, Any] = {"type": "string"}
    if low:
        schema["minLength"] = low
    if high is not None:
        schema["maxLength"] = high
    return Known(schema, st.text(st.characters(codec="utf-8", exclude_characters="\x7f"), min_size=low, max_size=high))


@st.composite
def _integers(draw: st.DrawFn) -> Known:
    low, high = draw(st.none() | INTEGERS), draw(st.none() | INTEGERS)
    if low is not None and high is not None and low > high:
        low, high = high, low
    schema: dict[str, Any] = {"type": "integer"}
    if low is not None:
        schema |= draw(st.sampled_from([{"minimum": low}, {"exclusiveMinimum": low - 1}]))
    if high is not None:
        schema |= draw(st.sampled_from([{"maximum": high}, {"exclusiveMaximum": high + 1}]))
    least, most = -(10**18) + 1 if low is None else low, 10**18 - 1 if high is None else high
    return Known(schema, st.integers(least, most))


@st.composite
def _constants(draw: st.DrawFn) -> Known:
    values = draw(st.lists(ANYTHING, min_size=1, max_size=25))
    return Known({"const": values[0]} if len(values) == 1 else {"enum": values}, st.sampled_from(values))


@st.composite
def _arrays(draw: st.DrawFn, inner: st.SearchStrategy[Known]) -> Known:
    item = draw(inner)
    low = draw(st.integers(0, 3))
    high = draw(st.none() | st.integers(low, 4))
    schema = {"type": "array", "items": item.schema, "minItems": low, **({} if high is None else {"maxItems": high})}
    return Known(schema, st.lists(item.values, min_size=low, max_size=4 if high is None else high))


@st.composite
def _tuples(draw: st.DrawFn, inner: st.SearchStrategy[Known]) -> Known:
    first = draw(st.lists(inner, min_size=1, max_size=3))
    rest = draw(st.none() | inner)
    prefix = st.tuples(*(item.values for item in first)).map(list)
    schema = {"type": "array", "prefixItems": [item.schema for item in first]}
    if rest is None:
        return Known({**schema, "items": False}, prefix)
    more = st.lists(rest.values, max_size=2)
    return Known({**schema, "items": rest.schema}, st.tuples(prefix, more).map(lambda parts: [*parts[0], *parts[1]]))


@st.composite
def _objects(draw: st.DrawFn, inner: st.SearchStrategy[Known]) -> Known:
    properties = draw(st.dictionaries(NAMES, inner, max_size=4))
    required = [name for name in properties if draw(st.booleans())]
    additional = draw(st.none() | inner)
    schema = {
        "type": "object",
        "properties": {name: known.schema for name, known in properties.items()},
        "required": draw(st.permutations(required)),
        "additionalProperties": False if additional is None else additional.schema,
    }

    @st.composite
    def values(draw: st.DrawFn) -> Any:
        value = {
            name: draw(known.values) for name, known in properties.items() if name in required or draw(st.booleans())
        }
        if additional is not None:
            more = draw(
                st.dictionaries(NAMES.filter(lambda name: name not in properties), additional.values, max_size=2)
            )
            value |= more
        return value

    return Known(schema, values())


@st.composite
def _unions(draw: st.DrawFn, inner: st.SearchStrategy[Known]) -> Known:
    branches = draw(st.lists(inner, min_size=1, max_size=3))
    return Known({"anyOf": [known.schema for known in branches]}, st.one_of(*(known.values for known in branches)))


LEAVES = st.one_of(
    st.just(Known({"type": "null"}, st.none())),
    st.just(Known({"type": "boolean"}, st.booleans())),
    st.just(Known({"type": "number"}, st.one_of(INTEGERS, FLOATS))),
    st.just(Known({"type": ["string", "null"]}, st.none() | TEXT)),
    st.just(Known({}, ANYTHING)),
    st.just(Known(True, ANYTHING)),
    st.just(Known({"type": "string", "format": "uuid"}, st.uuids().map(str))),
    st.just(Known({"type": "string", "format": "date"}, st.dates().map(lambda date: date.isoformat()))),
    _strings(),
    _integers(),
    _constants(),
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(_arrays(inner), _tuples(inner), _objects(inner), _unions(inner)),
    max_leaves=6,
)
