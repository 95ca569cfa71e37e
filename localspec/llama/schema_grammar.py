"""JSON schemas as GBNF, so that a reply is certain to be JSON of the schema, as far as grammars can say it.

Said are types, properties in the order of the schema (additional ones last), items and their number, lengths, patterns,
enumerations, unions, references within the schema, and the formats of dates, times and UUIDs. What only narrows these
further and cannot be said (`maximum`, `uniqueItems`, `not`, a pattern that looks ahead ...) is left to who reads the
reply. An object that lists properties has no others, unless `additionalProperties` allows them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

from localspec.errors import UsageError
from localspec.llama.gbnf import literal, one_of
from localspec.llama.schema_pattern import UnknownPatternError, pattern_rule

_MAX_RULES: Final = 20_000
_MAX_CHARS: Final = 1 << 19
_MAX_DEPTH: Final = 64
_MAX_PROPERTIES: Final = 500
_MAX_BRANCHES: Final = 256
# llama.cpp writes repetitions out. What may repeat more often may do so without end.
_MAX_REPEATS: Final = 1_000

# No rule of a request's own begins with "json-".
PRIMITIVES: Final = r"""
json-ws ::= ( " " | "\n" [ \t]{0,20} )?
json-value ::= json-object | json-array | json-string | json-number | json-boolean | json-null
json-object ::= "{" json-ws ( json-pair ( "," json-ws json-pair )* )? json-ws "}"
json-pair ::= json-string ":" json-ws json-value
json-array ::= "[" json-ws ( json-value ( "," json-ws json-value )* )? json-ws "]"
json-string ::= "\"" json-char* "\""
json-char ::= [^"\\\x00-\x1F\x7F] | "\\" ( ["\\/bfnrt] | "u" [0-9a-fA-F]{4} )
json-natural ::= "0" | [1-9] [0-9]{0,17}
json-integer ::= "-"? json-natural
json-fraction ::= ( "." [0-9]{1,18} )? ( [eE] [-+]? [0-9]{1,3} )?
json-number ::= json-integer json-fraction
json-boolean ::= "true" | "false"
json-null ::= "null"
json-date ::= [0-9]{4} "-" ( "0" [1-9] | "1" [0-2] ) "-" ( "0" [1-9] | [12] [0-9] | "3" [01] )
json-hour ::= [01] [0-9] | "2" [0-3]
json-time ::= json-hour ":" [0-5] [0-9] ":" [0-5] [0-9] ( "." [0-9]{1,9} )? ( "Z" | [-+] json-hour ":" [0-5] [0-9] )
json-uuid ::= [0-9a-fA-F]{8} "-" [0-9a-fA-F]{4} "-" [0-9a-fA-F]{4} "-" [0-9a-fA-F]{4} "-" [0-9a-fA-F]{12}
"""

_FORMATS: Final = {
    "date": "json-date",
    "time": "json-time",
    "date-time": 'json-date "T" json-time',
    "uuid": "json-uuid",
}
_KEYS_OF: Final = {
    "object": ("properties", "additionalProperties", "required", "patternProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "string": ("pattern", "minLength", "maxLength", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
_SAYING_KEYS: Final = {
    *("type", "allOf", "anyOf", "oneOf", "$ref", "enum", "const"),
    *(key for keys in _KEYS_OF.values() for key in keys),
}
_TYPES: Final = ("object", "array", "string", "number", "integer", "boolean", "null")


def schema_rules(rule: str, schema: str, owner: str) -> str:
    """GBNF in which `rule` is any JSON text that the schema allows. It refers to `PRIMITIVES`.

    Raises:
        UsageError: `schema` is not JSON, not a schema, contradicts itself or is too large; the message names `owner`.
    """
    try:
        parsed = json.loads(schema, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{owner} is not JSON: {error}.") from error
    if not isinstance(parsed, dict):
        raise UsageError(f"{owner} is {type(parsed).__name__}; it must be an object.")
    try:
        return _Converter(rule, parsed).text()
    except (_SchemaError, RecursionError) as error:
        raise UsageError(
            f"{owner} cannot be turned into a grammar: {str(error) or type(error).__name__}.",
            hint="Use types, properties, enum, const, items, anyOf, oneOf, allOf and local $ref.",
        ) from error


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")


class _SchemaError(Exception):
    """The schema cannot be used; the message says why."""


class _Converter:
    """One schema's rules, `prefix` and `prefix-1`, `prefix-2` ..."""

    def __init__(self, prefix: str, root: Mapping[str, Any]) -> None:
        self._prefix = prefix
        self._root = root
        self._lines: list[str] = []
        self._n_rules = 0
        self._n_chars = 0
        self._n_repeats = 0
        self._depth = 0
        self._by_reference: dict[str, str] = {}

    def text(self) -> str:
        self._add(self._prefix, self._value(self._root))
        return "".join(self._lines)

    def _add(self, name: str, expression: str) -> None:
        line = f"{name} ::= {expression}\n"
        self._n_chars += len(line)
        if self._n_chars > _MAX_CHARS:
            raise _SchemaError("it is too large")
        self._lines.append(line)

    def _name(self) -> str:
        self._n_rules += 1
        if self._n_rules > _MAX_RULES:
            raise _SchemaError("it is too large")
        return f"{self._prefix}-{self._n_rules}"

    def _rule(self, schema: object) -> str:
        """The name of a rule for the schema."""
        expression = self._value(schema)
        if expression.startswith(("json-", f"{self._prefix}-")) and " " not in expression:
            return expression
        name = self._name()
        self._add(name, expression)
        return name

    def _value(self, schema: object) -> str:
        """An expression for the schema."""
        if schema is True or schema == {}:
            return "json-value"
        if schema is False:
            raise _SchemaError("a part of it allows nothing")
        if not isinstance(schema, Mapping):
            raise _SchemaError(f"a part of it is {type(schema).__name__} where a schema belongs")
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _SchemaError("it is too deep")
        try:
            return self._expression(schema)
        finally:
            self._depth -= 1

    def _expression(self, schema: Mapping[str, Any]) -> str:
        if "$ref" in schema:
            return self._reference(schema)
        for key in ("allOf", "anyOf", "oneOf"):
            if key in schema:
                return self._combined(schema, key)
        if "const" in schema:
            return _json_literal(schema["const"])
        if "enum" in schema:
            if not schema["enum"]:
                raise _SchemaError("an enum in it is empty")
            return self._union(_json_literal(value) for value in _list(schema, "enum"))
        types = _types(schema)
        return self._union(self._typed(kind, schema) for kind in types) if types else "json-value"

    def _union(self, expressions: Any) -> str:
        unique = list(dict.fromkeys(expressions))
        self._n_rules += len(unique)
        return unique[0] if len(unique) == 1 else one_of(unique)

    def _reference(self, schema: Mapping[str, Any]) -> str:
        reference = schema["$ref"]
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        target = self._resolved(reference)
        if any(key in beside for keys in _KEYS_OF.values() for key in keys):
            return self._value(_merged(target, beside) if isinstance(target, Mapping) else beside)
        if reference not in self._by_reference:
            name = self._name()
            self._by_reference[reference] = name
            self._add(name, self._value(target))
        return self._by_reference[reference]

    def _resolved(self, reference: object) -> object:
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            raise _SchemaError(f"a $ref leads out of it: {str(reference)[:100]}")
        part: object = self._root
        for step in reference.split("/")[1:]:
            key = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(part, Mapping) and key in part:
                part = part[key]
            elif isinstance(part, list) and key.isdecimal() and len(key) < 10 and int(key) < len(part):
                part = part[int(key)]
            else:
                raise _SchemaError(f"a $ref leads nowhere: {reference[:100]}")
        return part

    def _combined(self, schema: Mapping[str, Any], key: str) -> str:
        branches = _list(schema, key)
        if not branches:
            raise _SchemaError(f"{key} in it is empty")
        base = {name: value for name, value in schema.items() if name != key}
        if key != "allOf":
            self._n_rules += len(branches)
            return self._union(self._rule(self._with(base, branch)) for branch in branches)
        for branch in branches:
            base = self._with(base, branch)
        return self._value(base)

    def _with(self, base: dict[str, Any], branch: object) -> dict[str, Any]:
        """A base that a branch is added to, reference or not; the branch alone where the base says nothing."""
        says_something = not _SAYING_KEYS.isdisjoint(base)
        if isinstance(branch, Mapping) and says_something:
            self._n_rules += 1
            for _ in range(_MAX_DEPTH):
                if "$ref" not in branch:
                    break
                target = self._resolved(branch["$ref"])
                beside = {name: value for name, value in branch.items() if name != "$ref"}
                branch = _merged(target, beside) if isinstance(target, Mapping) else beside
        if branch is True:
            return base
        if not isinstance(branch, Mapping):
            raise _SchemaError("a part of it allows nothing" if branch is False else "a branch in it is no schema")
        return _merged(base, branch) if says_something else dict(branch)

    def _typed(self, kind: str, schema: Mapping[str, Any]) -> str:
        if kind == "object":
            return self._object(schema)
        if kind == "array":
            return self._array(schema)
        if kind == "string":
            return self._string(schema)
        if kind in ("integer", "number"):
            low = schema.get("minimum", schema.get("exclusiveMinimum"))
            whole = "json-natural" if isinstance(low, int | float) and low >= 0 else "json-integer"
            if kind == "integer":
                return whole
            return "json-number" if whole == "json-integer" else f"{whole} json-fraction"
        return f"json-{kind}"

    def _object(self, schema: Mapping[str, Any]) -> str:
        properties = schema.get("properties", {})
        required = schema.get("required", [])
        additional = schema.get("additionalProperties", not properties)
        if not isinstance(properties, Mapping) or not isinstance(required, list):
            raise _SchemaError("properties or required in it are of the wrong kind")
        if len(properties) > _MAX_PROPERTIES:
            raise _SchemaError(f"it has an object of {len(properties)} properties; at most {_MAX_PROPERTIES} are known")
        # What is required and not described may be anything.
        described = {**properties, **{str(name): True for name in required if name not in properties}}
        if not described:
            if additional is True:
                return "json-object"
            if additional is False:
                return '"{" json-ws "}"'
        more = "" if additional is False else f'json-string ":" json-ws {self._rule(additional)}'
        first = self._pairs(described, {str(name) for name in required}, more)
        return f'"{{" json-ws {first} json-ws "}}"'

    def _pairs(self, described: Mapping[str, Any], required: set[str], more: str) -> str:
        """The rule of all pairs, in order. For each property two rules: what follows if nothing or something is before.

        So the grammar has as many rules as properties, and each pair its comma.
        """
        first, following = '""', '""'
        if more:
            first, following = f'( {more} ( "," json-ws {more} )* )?', f'( "," json-ws {more} )*'
        for key, schema in reversed(list(described.items())):
            pair = f'{_json_literal(key)} ":" json-ws {self._rule(schema)}'
            rest, alone = self._name(), self._name()
            self._add(rest, following)
            if key in required:
                self._add(alone, f"{pair} {rest}")
                following = f'"," json-ws {pair} {rest}'
            else:
                self._add(alone, f"{pair} {rest} | {first}")
                following = f'( "," json-ws {pair} )? {rest}'
            first = alone
        return first

    def _array(self, schema: Mapping[str, Any]) -> str:
        items = schema.get("prefixItems", schema.get("items", True))
        if isinstance(items, list):
            body = ' "," json-ws '.join(self._rule(item) for item in items)
            return f'"[" json-ws {body} json-ws "]"' if items else '"[" json-ws "]"'
        low, high = self._counts(schema, "minItems", "maxItems")
        if high == 0:
            return '"[" json-ws "]"'
        item = self._rule(items)
        more = f'( "," json-ws {item} ){_repeats(max(low - 1, 0), high and high - 1)}'
        body = f"{item} {more}" if low else f"( {item} {more} )?"
        return f'"[" json-ws {body} json-ws "]"'

    def _string(self, schema: Mapping[str, Any]) -> str:
        if "pattern" in schema:
            try:
                return f'"\\"" {pattern_rule(str(schema["pattern"]), "json-char")} "\\""'
            except UnknownPatternError:
                pass
        form = schema.get("format")
        if isinstance(form, str) and form in _FORMATS:
            return f'"\\"" {_FORMATS[form]} "\\""'
        low, high = self._counts(schema, "minLength", "maxLength")
        if not low and high is None:
            return "json-string"
        return f'"\\"" json-char{_repeats(low, high)} "\\""'

    def _counts(self, schema: Mapping[str, Any], low_key: str, high_key: str) -> tuple[int, int | None]:
        """How often something repeats. What llama.cpp could not write out is left open."""
        low, high = schema.get(low_key, 0), schema.get(high_key)
        for count in (low, high):
            if count is not None and (not isinstance(count, int | float) or count < 0 or count != int(count)):
                raise _SchemaError(f"{low_key} or {high_key} in it is no count")
        if high is not None and high < low:
            raise _SchemaError(f"{high_key} in it is less than {low_key}")
        low = min(int(low), _MAX_REPEATS)
        high = None if high is None or high > _MAX_REPEATS else int(high)
        self._n_repeats += max(low, high or 0)
        if self._n_repeats > _MAX_RULES:
            return min(low, 1), None if high != 0 else 0
        return low, high


def _repeats(low: int, high: int | None) -> str:
    return f"{{{low},{'' if high is None else high}}}"


def _types(schema: Mapping[str, Any]) -> list[str]:
    """The types that the schema allows; none: all of them."""
    named = schema.get("type")
    kinds: list[Any] = [named] if isinstance(named, str) else [] if named is None else list(_list(schema, "type"))
    for kind in kinds:
        if kind not in _TYPES:
            raise _SchemaError(f"it has an unknown type: {str(kind)[:100]}")
    if not kinds:
        kinds = [kind for kind, keys in _KEYS_OF.items() if any(key in schema for key in keys)]
    if kinds and schema.get("nullable") is True and "null" not in kinds:
        kinds = [*kinds, "null"]
    return kinds


def _merged(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """A schema that says what both say: properties and required names of both, else what `more` says."""
    both = {**base, **more}
    for key in ("properties", "$defs", "definitions"):
        if isinstance(base.get(key), Mapping) and isinstance(more.get(key), Mapping):
            both[key] = {**base[key], **more[key]}
    if isinstance(base.get("required"), list) and isinstance(more.get("required"), list):
        both["required"] = [*base["required"], *more["required"]]
    if isinstance(base.get("allOf"), list) and isinstance(more.get("allOf"), list):
        both["allOf"] = [*base["allOf"], *more["allOf"]]
    for key in ("anyOf", "oneOf"):
        if isinstance(base.get(key), list) and isinstance(more.get(key), list):
            if len(base[key]) * len(more[key]) > _MAX_BRANCHES:
                raise _SchemaError("it combines too many alternatives")
            both[key] = [{"allOf": [one, other]} for one in base[key] for other in more[key]]
    return both


def _list(schema: Mapping[str, Any], key: str) -> Sequence[Any]:
    value = schema[key]
    if not isinstance(value, list):
        raise _SchemaError(f"{key} in it is no list")
    return value


def _json_literal(value: object) -> str:
    return literal(json.dumps(value, ensure_ascii=False))
