"""JSON schemas as grammars, by llama.cpp's own word: what each lets through, and what comes out of it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localspec.errors import UsageError
from localspec.llama.grammar import grammar_source
from localspec.llama.model import Model
from localspec.llama.sampling_params import GrammarSchema, SamplingParams
from tests.llama.json_schemas import SCHEMAS, Known, spellings
from tests.server.grammar_probe import GrammarProbe

pytestmark = pytest.mark.native

# The model is only read.
SHARES_MODEL = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=60
)


@contextmanager
def grammar_of(model: Model, schema: object) -> Iterator[GrammarProbe]:
    source = grammar_source(SamplingParams(json_schema=json.dumps(schema)))
    assert source is not None
    with GrammarProbe(model, source) as probe:
        yield probe


def is_valid(schema: Any, text: str) -> bool:
    return jsonschema_rs.validator_for(schema, validate_formats=True).is_valid(json.loads(text))


class TestAnySchema:
    @SHARES_MODEL
    @given(st.data(), SCHEMAS)
    def test_lets_its_values_through_as_they_are_usually_written(
        self, target: Model, data: st.DataObject, known: Known
    ):
        schema = known.schema if isinstance(known.schema, dict) else {"anyOf": [known.schema]}
        with grammar_of(target, schema) as grammar:
            for _ in range(3):
                value = data.draw(known.values)
                assert jsonschema_rs.validator_for(schema, validate_formats=True).is_valid(value)
                for text in spellings(value):
                    assert grammar.allows(text), text

    @SHARES_MODEL
    @given(SCHEMAS, st.integers(0, 2**32))
    def test_lets_nothing_else_through(self, target: Model, known: Known, seed: int):
        schema = known.schema if isinstance(known.schema, dict) else {"anyOf": [known.schema]}
        choose = random.Random(seed)
        with grammar_of(target, schema) as grammar:
            for _ in range(3):
                text = grammar.walk(choose)
                assert is_valid(schema, text), text


LIST = {"$ref": "#/$defs/list"}
NODE = {
    "type": "object",
    "properties": {"value": {"type": "integer"}, "next": {"anyOf": [LIST, {"type": "null"}]}},
    "required": ["value", "next"],
    "additionalProperties": False,
}
POINT = {"properties": {"x": {"type": "integer"}}, "required": ["x"]}

# Schema, texts that it lets through, texts that it does not.
KEYWORDS: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "type": ({"type": "boolean"}, ["true", "false"], ["null", "True", '"true"', "1", ""]),
    "type list": ({"type": ["integer", "null"]}, ["3", "-0", "null"], ["3.5", "true", '""']),
    "type integer": ({"type": "integer"}, ["0", "-12"], ["01", "+1", "1.0", "1e3", "--1", "9" * 19]),
    "type number": (
        {"type": "number"},
        ["0", "-1.50", "1e5", "2E+30", "3e-300", "1e099", "1e279"],
        ["1.", ".5", "1e", "1e280", "1e999", "NaN", "Infinity", "0x1"],
    ),
    "no type": ({}, ['{"a": [1, {}]}', "[]", '"x"', "null"], ["", "nul", "[1,]", "{'a': 1}", "1 2"]),
    "type string": (
        {"type": "string"},
        ['""', '"é😀"', r'"\"\\\/\b\f\n\r\t"', r'"\u00e9"', r'"\uD83D\ude00"', r'"\ud7ff"'],
        ['"', '"\n"', '"\x01"', r'"\x41"', r'"\u00g9"', r'"\ud83d"', r'"\ud83dx"', r'"\ude00"', r'"\ude00\ud83d"'],
    ),
    "lengths": (
        {"type": "string", "minLength": 2, "maxLength": 3},
        ['"ab"', '"éé😀"', r'"\n\""', r'"\ud83d\ude00é"'],
        ['"a"', '"abcd"', r'"\ud83d\ude00"', "2"],
    ),
    "const": ({"const": {"a": [1, "é"]}}, ['{"a":[1,"é"]}', '{"a": [1, "é"]}'], ['{"a":[1]}', "{}"]),
    "const null": ({"const": None}, ["null"], ["0", '""']),
    "const false": ({"const": False}, ["false"], ["0", "true"]),
    "const with a half of a character": ({"const": "\ud83d"}, [r'"\ud83d"'], ['"?"', '""']),
    "enum": ({"enum": ["a", "ab", 1, None, '"']}, ['"a"', '"ab"', "1", "null", r'"\""'], ['"b"', '"abc"', "2", '"a']),
    "enum of many": (
        {"enum": ["", *(f"name{n}" for n in range(0, 200, 2))]},
        ['""', '"name0"', '"name198"', '"name20"'],
        ['"name"', '"name1"', '"name199"', '"name2000"', '"n"'],
    ),
    "enum with a type": ({"type": "string", "enum": ["a", 1, True]}, ['"a"'], ["1", "true"]),
    "enum with bounds": ({"type": "integer", "enum": [1, 5, 9, True], "maximum": 6}, ["1", "5"], ["9", "true"]),
    "enum with lengths": ({"enum": ["a", "abc", [1, 2], []], "maxLength": 2, "maxItems": 1}, ['"a"', "[]"], ['"abc"']),
    "enum and const": ({"enum": [1, 2, True], "const": 1}, ["1"], ["2", "true"]),
    "minimum": ({"type": "integer", "minimum": -12}, ["-12", "-9", "0", "999"], ["-13", "-20", "-100"]),
    "minimum positive": ({"type": "integer", "minimum": 95}, ["95", "99", "100", "1000"], ["94", "9", "0", "-95"]),
    "maximum": ({"type": "integer", "maximum": 105}, ["105", "99", "0", "-7"], ["106", "110", "200", "1000"]),
    "exclusive bounds": (
        {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 3},
        ["1", "2"],
        ["0", "3", "-1"],
    ),
    "exclusive bounds as they were": (
        {"type": "integer", "minimum": 0, "exclusiveMinimum": True, "maximum": 2, "exclusiveMaximum": False},
        ["1", "2"],
        ["0", "3"],
    ),
    "bounds with fractions": ({"type": "integer", "minimum": 0.5, "maximum": 2.5}, ["1", "2"], ["0", "3"]),
    "bounds below zero": ({"type": "integer", "minimum": -20, "maximum": -3}, ["-3", "-20"], ["-2", "-21", "3", "0"]),
    "bounds beyond 64 bits": ({"type": "integer", "minimum": 1, "maximum": 1e300}, ["1", "9" * 18], ["0", "-1"]),
    "number at least 0": ({"type": "number", "minimum": 0}, ["0.5", "7e2"], ["-0.5", "-1"]),
    "number at most 0": ({"type": "number", "maximum": 0}, ["-0.5", "-0"], ["0.5", "1"]),
    "minItems, maxItems": (
        {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2},
        ["[1]", "[1, 2]", "[\n  1,\n  2\n]"],
        ["[]", "[1,2,3]", '["a"]', "[1 ,2]"],
    ),
    "maxItems 0": ({"type": "array", "maxItems": 0}, ["[]"], ["[1]"]),
    "items false": ({"type": "array", "items": False}, ["[]"], ["[1]"]),
    "many items": ({"type": "array", "items": {"type": "null"}, "maxItems": 1000}, ["[]", "[null,null]"], ["[1]"]),
    "prefixItems": (
        {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]},
        ['[1,"a"]'],
        ["[1]", '["a",1]', '[1,"a",2]', "[]"],
    ),
    "prefixItems and items": (
        {"prefixItems": [{"type": "integer"}], "items": {"type": "string"}, "maxItems": 3},
        ["[1]", '[1,"a"]', '[1,"a","b"]'],
        ["[]", "[1,2]", '[1,"a","b","c"]'],
    ),
    "prefixItems, at most": (
        {"prefixItems": [{"type": "integer"}, {"type": "null"}], "maxItems": 1},
        ["[1]"],
        ["[]", "[1,null]"],
    ),
    "prefixItems, at least": (
        {"prefixItems": [{"type": "integer"}], "minItems": 3},
        ['[1,"a",null]', "[1,2,3,4]"],
        ["[1]", "[1,2]"],
    ),
    "items as a list": (
        {"items": [{"type": "integer"}], "additionalItems": {"type": "null"}},
        ["[1]", "[1,null]"],
        ["[]", "[1,1]"],
    ),
    "properties": (
        {"type": "object", "properties": {"a": {"type": "integer"}, "b": {}, "c": {"type": "null"}}, "required": ["b"]},
        ['{"b":1}', '{"a":1,"b":[]}', '{"a": 1, "b": 2, "c": null}', '{"b": 2, "c": null}', '{\n  "b": 2\n}'],
        ["{}", '{"a":1}', '{"b":1,"a":1}', '{"b":1,"d":1}', '{"b":1,"b":1}', '{"b":1,}', '{,"b":1}'],
    ),
    "optional properties": (
        {"properties": {"a": {"type": "null"}, "b": {"type": "null"}}},
        ["{}", '{"a":null}', '{"b":null}', '{"a":null,"b":null}'],
        ['{"c":null}', '{"a":null,}', '{"a":null "b":null}'],
    ),
    "a property that nothing fits": (
        {"properties": {"a": False, "b": {"type": "null"}}},
        ["{}", '{"b":null}'],
        ['{"a":null}'],
    ),
    "names with escapes": (
        {"properties": {'"\\\n é': {"type": "null"}}, "required": ['"\\\n é']},
        [r'{"\"\\\n é":null}'],
        ["{}", '{"é":null}'],
    ),
    "additionalProperties": (
        {"properties": {"ab": {"type": "integer"}}, "additionalProperties": {"type": "null"}},
        ['{"ab":1}', '{"ab":1,"a":null,"abc":null}', '{"b":null}', "{}", '{"":null}', r'{"\n":null}', r'{"xé":null}'],
        ['{"ab":null}', '{"a":1}', '{"ab":1,"ab":null}', r'{"\u0061b":null}', r'{"a\u0062":null}'],
    ),
    "additionalProperties alone": (
        {"type": "object", "additionalProperties": {"type": "integer"}},
        ["{}", '{"a": 1, "b": 2}'],
        ['{"a": null}'],
    ),
    "additionalProperties false": ({"type": "object", "additionalProperties": False}, ["{}"], ['{"a":1}']),
    "required without properties": (
        {"required": ["a"], "additionalProperties": {"type": "integer"}},
        ['{"a":1}', '{"a":1,"b":2}'],
        ["{}", '{"b":1}', '{"a":"x"}'],
    ),
    "patternProperties": (
        {"type": "object", "patternProperties": {"^x-": {"type": "integer"}}},
        ["{}", '{"x-a":1,"x-":2}'],
        ['{"a":1}', '{"x-a":null}'],
    ),
    "patternProperties with a required name": (
        {"patternProperties": {"^x": {"type": "integer"}}, "required": ["x1"]},
        ['{"x1":1}', '{"x1":1,"x2":2}'],
        ["{}", '{"x1":"a"}'],
    ),
    "$ref": (
        {"properties": {"p": {"$ref": "#/$defs/a~1b%25"}}, "required": ["p"], "$defs": {"a/b%": {"type": "null"}}},
        ['{"p":null}'],
        ['{"p":1}'],
    ),
    "$ref into a list": ({"anyOf": [{"type": "integer"}, {"$ref": "#/anyOf/0"}]}, ["3"], ["null"]),
    "$ref to itself within": (
        {"$defs": {"list": NODE}, **LIST},
        ['{"value":1,"next":null}', '{"value":1,"next":{"value":2,"next":null}}'],
        ['{"value":1}', '{"value":1,"next":{}}', '{"value":1,"next":1}'],
    ),
    "$ref to the root": (
        {"type": "array", "items": {"$ref": "#"}},
        ["[]", "[[], [[]]]"],
        ["[1]", "[[]", "{}"],
    ),
    "$ref with more beside": (
        {"$ref": "#/$defs/s", "enum": ["ab", "abc", 1], "$defs": {"s": {"type": "string", "maxLength": 2}}},
        ['"ab"'],
        ['"abc"', "1"],
    ),
    "$ref with a type beside": ({"$ref": "#/$defs/any", "type": "null", "$defs": {"any": True}}, ["null"], ["1"]),
    "anyOf": ({"anyOf": [{"type": "integer"}, {"const": "x"}]}, ["1", '"x"'], ["null", '"y"']),
    "oneOf": ({"oneOf": [{"type": "integer"}, {"type": "null"}]}, ["1", "null"], ['"y"']),
    "anyOf of required": (
        {
            "type": "object",
            "properties": {"a": {"type": "null"}, "b": {"type": "null"}},
            "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
        ['{"a":null}', '{"b":null}', '{"a":null,"b":null}'],
        ["{}"],
    ),
    "anyOf with a branch that nothing fits": (
        {"type": "string", "anyOf": [False, {"type": "integer"}, {"maxLength": 1}]},
        ['""', '"a"'],
        ["1", '"ab"'],
    ),
    "anyOf and oneOf": (
        {"anyOf": [{"type": "integer"}, {"type": "string"}], "oneOf": [{"type": "string"}, {"type": "null"}]},
        ['"a"'],
        ["1", "null"],
    ),
    "allOf": (
        {"allOf": [{"type": ["string", "integer"]}, {"type": ["integer", "null"]}, {"minimum": 3}, {"minimum": 1}]},
        ["3"],
        ["2", '"a"', "null"],
    ),
    "allOf of number and integer": ({"allOf": [{"type": "number"}, {"type": "integer"}]}, ["3"], ["3.5"]),
    "allOf of objects": (
        {"allOf": [POINT, {"properties": {"y": {"type": "null"}, "x": {"minimum": 5}}, "required": ["y"]}]},
        ['{"x":5,"y":null}'],
        ['{"x":5}', '{"x":4,"y":null}', '{"y":null}'],
    ),
    "allOf with closed objects": (
        {"allOf": [{**POINT, "additionalProperties": False}, {"properties": {"y": {"type": "null"}}}]},
        ['{"x":1}'],
        ['{"x":1,"y":null}'],
    ),
    "allOf of enums": ({"allOf": [{"enum": [1, 2, 3]}, {"enum": [2.0, 3, 4]}, {"const": 2}]}, ["2"], ["3", "1"]),
    "allOf of lengths": ({"allOf": [{"type": "string", "maxLength": 3}, {"maxLength": 1}]}, ['"a"'], ['"ab"']),
    "allOf of arrays": (
        {"allOf": [{"prefixItems": [{"type": "integer"}], "items": False}, {"items": {"minimum": 5}}]},
        ["[5]"],
        ["[4]", "[]", "[5,5]"],
    ),
    "allOf of anyOf": (
        {
            "allOf": [
                {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            ]
        },
        ["1"],
        ["null", '"a"'],
    ),
    "allOf of $refs": (
        {
            "allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}],
            "$defs": {"a": {"type": "integer"}, "b": {"maximum": 3, "type": "number"}},
        },
        ["3", "-4"],
        ["4", "3.5"],
    ),
    "allOf with exclusive bounds": (
        {"type": "integer", "allOf": [{"exclusiveMinimum": 1}, {"minimum": 1, "exclusiveMinimum": True}]},
        ["2"],
        ["1"],
    ),
    "nullable": ({"type": "integer", "nullable": True}, ["1", "null"], ['"a"']),
    "a type by its keywords": ({"minLength": 1}, ['"a"'], ['""', "1"]),
    "format date": (
        {"type": "string", "format": "date"},
        ['"2024-02-29"', '"2000-02-29"', '"2023-04-30"', '"2023-12-31"', '"0000-01-01"'],
        ['"2023-02-29"', '"1900-02-29"', '"2023-04-31"', '"2023-13-01"', '"2023-00-01"', '"2023-1-1"', '"2023-02-30"'],
    ),
    "format time": (
        {"type": "string", "format": "time"},
        ['"23:59:59Z"', '"00:00:00.123+05:30"'],
        ['"24:00:00Z"', '"12:60:00Z"', '"12:00:00"', '"12:00Z"', '"12:00:00+24:00"'],
    ),
    "format date-time": (
        {"type": "string", "format": "date-time"},
        ['"2024-02-29T10:00:00Z"'],
        ['"2024-02-29"', '"2024-02-29 10:00:00Z"', '"2023-02-29T10:00:00Z"'],
    ),
    "format uuid": (
        {"type": "string", "format": "uuid"},
        ['"123e4567-E89b-12d3-a456-426614174000"'],
        ['"123e4567e89b12d3a456426614174000"', '"123e4567-e89b-12d3-a456-42661417400g"'],
    ),
    "a format that is not known": ({"type": "string", "format": "email", "maxLength": 2}, ['"ab"'], ['"abc"']),
    "pattern": ({"type": "string", "pattern": "^a+$"}, ['"a"', '"aa"'], ['""', '"b"', '"ab"']),
    "pattern with lengths": (
        {"type": "string", "pattern": '^[a-z"\\\\]*$', "minLength": 2, "maxLength": 3},
        ['"ab"', r'"a\"\\"'],
        ['"a"', '"abcd"', '"AB"'],
    ),
    "pattern that looks ahead": ({"pattern": "^(?=a)", "maxLength": 2}, ['"ab"', '"b"'], ['"abc"']),
}


# What more is allowed than by the schema, as the converter's text has it; and what the validator cannot read.
LOOSER = (
    "nullable",
    "pattern that looks ahead",
    "a format that is not known",
    "allOf with exclusive bounds",
    "const with a half of a character",
)
OLDER = {
    "exclusive bounds as they were": jsonschema_rs.Draft4Validator,
    "items as a list": jsonschema_rs.Draft7Validator,
}


class TestKeywords:
    @pytest.mark.parametrize(("schema", "allowed", "refused"), KEYWORDS.values(), ids=KEYWORDS)
    def test_says(self, target: Model, schema: dict[str, Any], allowed: list[str], refused: list[str]):
        with grammar_of(target, schema) as grammar:
            assert [text for text in allowed if not grammar.allows(text)] == []
            assert [text for text in refused if grammar.allows(text)] == []

    @pytest.mark.parametrize("name", [name for name in KEYWORDS if name not in LOOSER])
    def test_replies_are_of_the_schema(self, target: Model, name: str):
        schema, choose = KEYWORDS[name][0], random.Random(5)
        validator = OLDER.get(name, jsonschema_rs.Draft202012Validator)(schema, validate_formats=True)
        with grammar_of(target, schema) as grammar:
            for _ in range(15):
                text = grammar.walk(choose)
                assert validator.is_valid(json.loads(text)), text


def test_several_schemas_are_rules_of_one_grammar(target: Model):
    schemas = (
        GrammarSchema("first", "one", '{"type":"object","properties":{"a":{"enum":[1]}},"required":["a"]}'),
        GrammarSchema("second", "the other", '{"$ref":"#/$defs/x","$defs":{"x":{"type":"null"}}}'),
    )
    source = grammar_source(SamplingParams(grammar='root ::= first "," second', grammar_schemas=schemas))
    assert source is not None
    with GrammarProbe(target, source) as grammar:
        assert grammar.allows('{"a":1},null')
        assert not grammar.allows("null,null")


def test_an_error_names_whose_schema_it_is(target: Model):
    schemas = (GrammarSchema("args", "the function f", '{"type": "text"}'),)
    with pytest.raises(UsageError, match=r"JSON schema of the function f .*unknown type: text"):
        grammar_source(SamplingParams(grammar="root ::= args", grammar_schemas=schemas))
