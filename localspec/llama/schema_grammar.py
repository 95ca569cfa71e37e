"""JSON schemas as GBNF, so that a reply is certain to be JSON of the schema, as far as grammars can say it.

Said are types, properties in the order of the schema (additional ones last), items and their number, lengths, bounds of
integers, patterns, enumerations, unions, references within the schema, and the formats of dates, times and UUIDs.

Less is allowed than by the schema in these: an object that lists properties has no others, unless
`additionalProperties` allows them; `prefixItems` are all written, and others follow where `items` or `minItems` say so;
a schema without `type` is of the type that its keywords are about; `patternProperties` count where no properties are
listed, and then alone; names and constants have one spelling.

More is allowed in these: bounds of numbers that are not integers count by their sign only; `oneOf` is `anyOf`; a
maximum of more than 1,000 items or characters, or beyond 20,000 altogether, counts as none (a minimum is refused); a
pattern that grammars cannot say (one that looks ahead, for instance) counts as none, one of more than a repeated
class of characters is taken without lengths, and of several patterns or formats one; constants are held against
types, bounds and lengths beside them, and no more. Not read are keywords that only narrow a schema further:
`multipleOf`, `uniqueItems`, `contains`, `minProperties`, `maxProperties`, `propertyNames`, `not`, `if`,
`dependentRequired`, `dependentSchemas`, `unevaluatedItems` and `unevaluatedProperties`, and other formats. What a
reply has of these is left to who reads it.

It has so many lines since one object hands out the rules, and each kind of schema contains all the others.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NoReturn
from urllib.parse import unquote

from localspec.errors import UsageError
from localspec.llama import schema_merge
from localspec.llama.gbnf import one_of
from localspec.llama.grammar_check import endless_rule
from localspec.llama.json_rules import PRIMITIVES
from localspec.llama.schema_keywords import (
    Limits,
    NothingFitsError,
    SchemaError,
    admits,
    counts,
    listed,
    mapping,
    names,
    says_something,
    text,
    types,
)
from localspec.llama.schema_numbers import integer_expression, number_expression
from localspec.llama.schema_pattern import UnknownPatternError, pattern_rule
from localspec.llama.schema_texts import any_of, json_literal, other_names

_MAX_RULES: Final = 20_000
_MAX_CHARS: Final = 1 << 19
_MAX_DEPTH: Final = 64
_MAX_PROPERTIES: Final = 500
# Steps of the conversion and keywords that are merged, with what they hold.
_MAX_WORK: Final = 100_000
# llama.cpp writes repetitions out. What may repeat more often may do so without end.
_MAX_REPEATS: Final = 1_000
_MAX_ALL_REPEATS: Final = 20_000
# References to other schemas in words of which the meaning depends on how a validator came there.
_DYNAMIC: Final = ("$dynamicRef", "$recursiveRef")

_EMPTY: Final = '""'
_FORMATS: Final = {
    "date": "json-date",
    "time": "json-time",
    "date-time": 'json-date "T" json-time',
    "uuid": "json-uuid",
}


@functools.lru_cache(maxsize=64)
def schema_rules(rule: str, schema: str, owner: str) -> str:
    """GBNF in which `rule` is any JSON text that the schema allows. It refers to `PRIMITIVES`.

    Raises:
        UsageError: `schema` is not JSON, not a schema, contradicts itself or is too large; the message names `owner`.
    """
    try:
        parsed = json.loads(schema, parse_constant=_no_number, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{owner} is not JSON: {error}.") from error
    if not isinstance(parsed, dict):
        raise UsageError(f"{owner} is {type(parsed).__name__}; it must be an object.")
    try:
        return _Converter(rule, parsed).text()
    except (SchemaError, RecursionError) as error:
        reason = str(error) if isinstance(error, SchemaError) else "it is too deep"
        raise UsageError(
            f"{owner} cannot be turned into a grammar: {reason}.",
            hint="Use types, properties, enum, const, items, anyOf, oneOf, allOf and local $ref.",
        ) from error


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _finite(number: str) -> float:
    value = float(number)
    if math.isinf(value):
        raise ValueError(f"{number[:30]} is too large a number")
    return value


class _Converter:
    """One schema's rules, `prefix` and `prefix-1`, `prefix-2` ..."""

    def __init__(self, prefix: str, root: Mapping[str, Any]) -> None:
        self._prefix = prefix
        self._root = root
        self._lines: list[str] = []
        self._n_rules = 0
        self._n_chars = 0
        self._n_repeats = 0
        self._work = 0
        self._depth = 0
        # Rules of references; "": nothing fits it.
        self._by_reference: dict[str, str] = {}
        # References that are being followed, since the last bracket or brace.
        self._followed: set[str] = set()

    def text(self) -> str:
        self._add(self._prefix, self._value(self._root))
        rules = "".join(self._lines)
        if endless_rule(rules + PRIMITIVES, self._prefix):
            raise SchemaError("a part of it contains itself without end")
        return rules

    def _add(self, name: str, expression: str) -> None:
        line = f"{name} ::= {expression}\n"
        self._n_chars += len(line)
        if self._n_chars > _MAX_CHARS:
            raise SchemaError("it is too large")
        self._lines.append(line)

    def _name(self) -> str:
        self._n_rules += 1
        if self._n_rules > _MAX_RULES:
            raise SchemaError("it is too large")
        return f"{self._prefix}-{self._n_rules}"

    def _new_rule(self, expression: str) -> str:
        name = self._name()
        self._add(name, expression)
        return name

    def _rule(self, schema: object) -> str:
        """The name of a rule for the schema."""
        expression = self._value(schema)
        if expression.startswith(("json-", f"{self._prefix}-")) and " " not in expression:
            return expression
        return self._new_rule(expression)

    def _spend(self, work: int = 1) -> None:
        self._work += work
        if self._work > _MAX_WORK:
            raise SchemaError("its parts combine in too many ways")

    def _value(self, schema: object) -> str:
        """An expression for the schema."""
        self._spend()
        if schema is True:
            return "json-value"
        if schema is False:
            raise NothingFitsError
        if not isinstance(schema, Mapping):
            raise SchemaError(f"a part of it is {type(schema).__name__} where a schema belongs")
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise SchemaError("it is too deep")
        try:
            return self._expression(schema)
        finally:
            self._depth -= 1

    def _expression(self, schema: Mapping[str, Any]) -> str:
        for key in _DYNAMIC:
            if key in schema:
                raise SchemaError(f"{key} in it is not known; only $ref is")
        if "$ref" in schema:
            return self._reference(schema)
        if "allOf" in schema:
            return self._all_of(schema)
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return self._any_of(schema, key)
        if "const" in schema or "enum" in schema:
            return self._constants(schema)
        kinds = types(schema)
        if not kinds:
            return "json-value"
        return self._first_that_fit(kinds, lambda kind: self._typed(kind, schema))

    def _first_that_fit(self, parts: Iterable[Any], expression: Callable[[Any], str]) -> str:
        """The union of the parts that allow something."""
        options: list[str] = []
        why: NothingFitsError | None = None
        for part in parts:
            try:
                options.append(expression(part))
            except NothingFitsError as error:
                why = why or error
        if why is not None and not options:
            raise why
        unique = list(dict.fromkeys(options))
        return unique[0] if len(unique) == 1 else one_of(unique)

    def _constants(self, schema: Mapping[str, Any]) -> str:
        values = listed(schema, "enum") if "enum" in schema else [schema["const"]]
        if "const" in schema and "enum" in schema:
            values = schema_merge.both({"const": schema["const"]}, {"enum": values})["enum"]
        self._spend(len(values))
        fitting = [value for value in values if admits(value, schema)]
        if not fitting:
            raise NothingFitsError("none of its constants fits what is said beside them")
        return any_of(fitting, self._new_rule)

    def _reference(self, schema: Mapping[str, Any]) -> str:
        reference = schema["$ref"]
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        target = self._resolved(reference)
        if reference in self._followed:
            raise SchemaError(f"a $ref leads back to itself: {reference[:100]}")
        if says_something(beside):
            self._followed.add(reference)
            try:
                return self._value(self._both(beside, target))
            finally:
                self._followed.discard(reference)
        if reference not in self._by_reference:
            name = self._by_reference[reference] = self._name()
            self._followed.add(reference)
            try:
                self._add(name, self._value(target))
            except NothingFitsError:
                self._by_reference[reference] = ""
                self._add(name, f'" " {name}')  # for rules without use that were made on the way
                raise
            finally:
                self._followed.discard(reference)
        if not self._by_reference[reference]:
            raise NothingFitsError
        return self._by_reference[reference]

    def _resolved(self, reference: object) -> object:
        if not isinstance(reference, str):
            raise SchemaError("a $ref in it is no text")
        if reference != "#" and not reference.startswith("#/"):
            raise SchemaError(f"a $ref leads out of it: {reference[:100]}; it must begin with #/")
        part: object = self._root
        for step in reference.split("/")[1:]:
            key = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(part, Mapping) and key in part:
                part = part[key]
            elif isinstance(part, list) and key.isdecimal() and len(key) < 10 and int(key) < len(part):
                part = part[int(key)]
            else:
                raise SchemaError(f"a $ref leads nowhere: {reference[:100]}")
        return part

    def _all_of(self, schema: Mapping[str, Any]) -> str:
        merged: Mapping[str, Any] | bool = {key: value for key, value in schema.items() if key != "allOf"}
        for branch in listed(schema, "allOf"):
            merged = self._both(merged, branch)
        return self._value(merged)

    def _any_of(self, schema: Mapping[str, Any], key: str) -> str:
        base = {name: value for name, value in schema.items() if name != key}
        return self._first_that_fit(listed(schema, key), lambda branch: self._rule(self._both(base, branch)))

    def _both(self, one: Mapping[str, Any] | bool, other: object) -> Mapping[str, Any] | bool:
        """A schema of both. `$ref` is followed where it is merged."""
        if other is False or one is False:
            raise NothingFitsError
        if other is True or one is True:
            return one if other is True else _schema(other)
        other = _schema(other)
        if not says_something(one):
            return other
        for _ in range(_MAX_DEPTH):
            self._spend(schema_merge.weight(one) + schema_merge.weight(other))
            if "$ref" not in other:
                return schema_merge.both(one, other)
            target = self._resolved(other["$ref"])
            other = {name: value for name, value in other.items() if name != "$ref"}
            if target is False:
                raise NothingFitsError
            if target is not True:
                other = schema_merge.both(other, _schema(target)) if says_something(other) else _schema(target)
        raise SchemaError("a $ref leads back to itself")

    def _typed(self, kind: str, schema: Mapping[str, Any]) -> str:
        if kind in ("object", "array"):
            followed, self._followed = self._followed, set()
            try:
                return self._object(schema) if kind == "object" else self._array(schema)
            finally:
                self._followed = followed
        if kind == "string":
            return self._string(schema)
        if kind == "integer":
            return integer_expression(Limits(schema))
        if kind == "number":
            return number_expression(Limits(schema))
        return f"json-{kind}"

    def _object(self, schema: Mapping[str, Any]) -> str:
        properties, patterns = mapping(schema, "properties"), mapping(schema, "patternProperties")
        required = names(schema, "required")
        described = {**properties, **{name: _unnamed(schema) for name in required if name not in properties}}
        if len(described) > _MAX_PROPERTIES:
            raise SchemaError(f"it has an object of {len(described)} properties; at most {_MAX_PROPERTIES} are known")
        self._spend(len(described))
        pairs = []
        for name, of_property in described.items():
            try:
                pairs.append((name, self._rule(of_property), name in required))
            except NothingFitsError:
                if name in required:
                    raise
        more = "" if properties else self._by_pattern(patterns)
        if not patterns:
            more = self._additional(schema.get("additionalProperties", not properties), described)
        if more == 'json-string ":" json-ws json-value' and not described:
            return "json-object"
        first = self._pairs(pairs, more)
        return '"{" json-ws "}"' if first == _EMPTY else f'"{{" json-ws {first} json-ws "}}"'

    def _additional(self, schema: object, described: Mapping[str, Any]) -> str:
        try:
            rule = self._rule(schema)
        except NothingFitsError:
            return ""
        name = other_names(described, self._new_rule) if described else "json-string"
        return f'{name} ":" json-ws {rule}'

    def _by_pattern(self, patterns: Mapping[str, Any]) -> str:
        options = []
        for pattern, schema in patterns.items():
            try:
                options.append(f'"\\"" {pattern_rule(pattern, "json-char")} "\\"" ":" json-ws {self._rule(schema)}')
            except UnknownPatternError as error:
                raise SchemaError(f"a pattern of patternProperties is not known: {error}") from error
            except NothingFitsError:
                continue
        return one_of(options) if options else ""

    def _pairs(self, pairs: list[tuple[str, str, bool]], more: str) -> str:
        """The rule of all pairs, in order. For each property two rules: what follows if nothing or something is before.

        So the grammar has as many rules as properties, and each pair its comma.
        """
        first, following = _EMPTY, _EMPTY
        if more:
            first, following = f'( {more} ( "," json-ws {more} )* )?', f'( "," json-ws {more} )*'
        for key, rule, is_required in reversed(pairs):
            pair = f'{json_literal(key)} ":" json-ws {rule}'
            rest = self._new_rule(following)
            if is_required:
                first = self._new_rule(f"{pair} {rest}")
                following = f'"," json-ws {pair} {rest}'
            else:
                first = self._new_rule(f"{pair} {rest} | {first}")
                following = f'( "," json-ws {pair} )? {rest}'
        return first

    def _array(self, schema: Mapping[str, Any]) -> str:
        prefix, rest = schema_merge.item_schemas(schema)
        low, high = counts(schema, "minItems", "maxItems")
        items: list[str] = []
        try:
            for item in prefix[:high]:
                items.append(self._rule(item))  # noqa: PERF401 - those before one that nothing fits count
            is_open = not prefix or rest is not None or low > len(prefix)
            other = (
                self._rule(True if rest is None else rest) if is_open and (high is None or high > len(prefix)) else ""
            )
        except NothingFitsError:
            other = ""
        n = len(items)
        if not other and low > n:
            raise NothingFitsError("it has an array of fewer items than it must have")
        parts = [' "," json-ws '.join(items)] if items else []
        if other:
            least, most = self._repeats(max(low - n, 0), None if high is None else high - n, "minItems")
            following = self._new_rule(f'"," json-ws {other}')
            if n:
                parts.append(f"{following}{_times(least, most)}")
            else:
                more = f"{other} {following}{_times(max(least - 1, 0), most and most - 1)}"
                parts.append(more if least else f"( {more} )?")
        return " ".join(['"[" json-ws', *parts, 'json-ws "]"'])

    def _string(self, schema: Mapping[str, Any]) -> str:
        pattern, form = text(schema, "pattern"), text(schema, "format")
        low, high = counts(schema, "minLength", "maxLength")
        if pattern is not None:
            try:
                return f'"\\"" {pattern_rule(pattern, "json-char", low, high)} "\\""'
            except UnknownPatternError:
                pass
        if form in _FORMATS:
            return f'"\\"" {_FORMATS[form]} "\\""'
        low, high = self._repeats(low, high, "minLength")
        if not low and high is None:
            return "json-string"
        return f'"\\"" json-char{_times(low, high)} "\\""'

    def _repeats(self, low: int, high: int | None, key: str) -> tuple[int, int | None]:
        """How often something repeats. What llama.cpp could not write out is left open."""
        if high is not None and high > _MAX_REPEATS:
            high = None
        self._n_repeats += high or low
        if self._n_repeats > _MAX_ALL_REPEATS:
            self._n_repeats -= (high or low) - low
            high = None if high else high
        if low > _MAX_REPEATS or self._n_repeats > _MAX_ALL_REPEATS:
            raise SchemaError(
                f"{key} in it is {low}; at most {_MAX_REPEATS} can be asked for, {_MAX_ALL_REPEATS} in all"
            )
        return low, high


def _schema(part: object) -> Mapping[str, Any]:
    if not isinstance(part, Mapping):
        raise SchemaError(f"a part of it is {type(part).__name__} where a schema belongs")
    return part


def _unnamed(schema: Mapping[str, Any]) -> object:
    """The schema of a property that has none of its own."""
    patterns = list(mapping(schema, "patternProperties").values())
    additional = schema.get("additionalProperties", True)
    if not patterns:
        return additional
    return {"allOf": patterns if additional is False else [*patterns, additional]}


def _times(low: int, high: int | None) -> str:
    return f"{{{low},{'' if high is None else high}}}"
