"""JSON schemas from anywhere: what is wrong, too much or without end is an error with a reason, soon and in bounds."""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.errors import UsageError
from localspec.llama.grammar import grammar_source
from localspec.llama.sampling_params import SamplingParams
from tests.llama.grammar_process import GrammarProcess


def error_of(schema: object) -> str:
    with pytest.raises(UsageError) as error:
        grammar_source(SamplingParams(json_schema=schema if isinstance(schema, str) else json.dumps(schema)))
    assert str(error.value).startswith("The JSON schema ")
    assert len(str(error.value)) < 400
    return str(error.value)


def nested(depth: int, opening: str, inner: str, closing: str) -> str:
    return opening * depth + inner + closing * depth


def doubling(n: int, **more: object) -> str:
    """Definitions each of which has the next one twice."""
    parts = {
        f"d{i}": {**more, "anyOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]} for i in range(n)
    }
    return json.dumps({"$ref": "#/$defs/d0", "$defs": {**parts, f"d{n}": {"type": "string"}}})


def forking(n: int) -> str:
    """Definitions in twos, each of which begins with both of the next two: 2^n ways through."""
    parts: dict[str, Any] = {f"{side}{n}": {"const": side} for side in "ab"}
    for i in range(n):
        for side in "ab":
            branches = [{"$ref": f"#/$defs/{other}{i + 1}"} for other in "ab"]
            parts[f"{side}{i}"] = {"anyOf": [*branches, {"const": f"{side}{i}"}]}
    return json.dumps({"$ref": "#/$defs/a0", "$defs": parts})


HOSTILE: dict[str, tuple[str, str]] = {
    "deep text": (nested(200_000, '{"not":', "true", "}"), "not JSON"),
    "deep arrays": (nested(300, '{"type":"array","items":', '{"type":"null"}', "}"), "too deep"),
    "deep objects": (nested(300, '{"properties":{"a":', "{}", "}}"), "too deep"),
    "deep anyOf": (nested(300, '{"anyOf":[', "{}", "]}"), "too deep"),
    "deep constant": ('{"const":' + nested(900, "[", "1", "]") + "}", "too deep"),
    "huge enum": (json.dumps({"enum": [f"{i * 7919 % 1_000_003}" for i in range(200_000)]}), "too large|too many"),
    "large enum": (json.dumps({"enum": [f"{i * 7919 % 1_000_003:06}" for i in range(6_000)]}), "accepted"),
    "enum of beginnings": (json.dumps({"enum": ["a" * n for n in range(1, 900)]}), "accepted|too deep"),
    "many properties": (json.dumps({"properties": {f"p{i}": {} for i in range(5_000)}}), "5000 properties"),
    "many required names": (json.dumps({"required": [f"p{i}" for i in range(5_000)]}), "5000 properties"),
    "long names beside others": (
        json.dumps({"properties": {"x" * 2000: {}}, "additionalProperties": True}),
        "accepted|too deep",
    ),
    "giant minItems": ('{"type":"array","minItems":1000000000}', "minItems in it is 1000000000; at most 1000"),
    "giant minLength": ('{"type":"string","minLength":1e300}', "minLength"),
    "giant maxLength": ('{"type":"string","maxLength":1e300}', "accepted"),
    "infinite": ('{"type":"string","maxLength":1e999}', "1e999 is too large"),
    "endless digits": ('{"type":"integer","minimum":' + "9" * 100_000 + "}", "not JSON"),
    "many digits": ('{"type":"integer","minimum":' + "9" * 4_000 + "}", "more than 18 digits"),
    "many repetitions": (
        json.dumps({"properties": {f"p{i}": {"type": "string", "minLength": 900} for i in range(100)}}),
        "minLength.*20000 in all",
    ),
    "nested repetitions": (
        nested(20, '{"type":"array","minItems":900,"maxItems":900,"items":', '{"type":"null"}', "}"),
        "accepted",
    ),
    "$ref to itself": ('{"$ref":"#"}', "leads back to itself: #"),
    "$refs in a ring": (
        '{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}',
        "leads back to itself",
    ),
    "$ref to itself with more": (
        '{"$defs":{"a":{"$ref":"#/$defs/a","type":"null"}},"$ref":"#/$defs/a"}',
        "back to itself",
    ),
    "$ref to itself in anyOf": ('{"anyOf":[{"$ref":"#"},{"type":"null"}]}', "leads back to itself"),
    "$ref to itself in allOf": ('{"allOf":[{"$ref":"#"},{"type":"null"}]}', "back to itself|too deep"),
    "no end": ('{"properties":{"a":{"$ref":"#"}},"required":["a"]}', "contains itself without end"),
    "no end in an option": (
        '{"properties":{"b":{"$ref":"#/$defs/c"}},"$defs":{"c":{"items":{"$ref":"#/$defs/c"},"minItems":1}}}',
        "contains itself without end",
    ),
    "remote $ref": ('{"$ref":"https://example.com/schema.json"}', r"leads out of it: https://example.com"),
    "$ref to a file": ('{"$ref":"file:///etc/passwd"}', "leads out of it"),
    "$ref to an anchor": ('{"$ref":"#item","$defs":{"i":{"$anchor":"item"}}}', "must begin with #/"),
    "$ref to nowhere": ('{"$ref":"#/$defs/none"}', "leads nowhere"),
    "$ref of many steps": (json.dumps({"$ref": "#" + "/a" * 200_000}), "leads nowhere"),
    "$dynamicRef": ('{"$dynamicRef":"#node"}', r"\$dynamicRef in it is not known"),
    "$recursiveRef": ('{"items":{"$recursiveRef":"#"}}', r"\$recursiveRef in it is not known"),
    "doubling": (doubling(25), "accepted"),
    "doubling with more beside": (doubling(25, type="string"), "too many ways"),
    "forking": (forking(25), "too involved"),
    "doubling allOf": (doubling(25).replace("anyOf", "allOf"), "too many ways"),
    "crossing unions": (
        json.dumps({"allOf": [{"anyOf": [{"const": i}, {"const": -i}]} for i in range(1, 40)]}),
        "too many alternatives|contradict",
    ),
    "nothing fits": ('{"type":"string","enum":[1]}', "none of its constants fits"),
    "nothing fits types": ('{"allOf":[{"type":"string"},{"type":"null"}]}', "contradict"),
    "nothing fits bounds": ('{"type":"integer","minimum":3,"maximum":2}', "least number"),
    "nothing between": ('{"type":"integer","exclusiveMinimum":3,"exclusiveMaximum":4}', "no integer between"),
    "required and forbidden": ('{"required":["a"],"additionalProperties":false}', "allows nothing"),
    "ambiguous pattern": ('{"pattern":"^(a+)+$"}', "accepted"),
    "pattern of choices": ('{"pattern":"^(a|a|aa|a?)*b$"}', "accepted"),
    "pattern of options": (json.dumps({"pattern": "^" + "a?" * 400 + "a" * 400 + "$"}), "accepted"),
    "pattern of empty repetitions": ('{"pattern":"^((a*)*)*$"}', "accepted|left recursion"),
    "pattern with a giant count": ('{"pattern":"a{' + "9" * 6_000 + '}"}', "accepted"),
    "pattern with many counts": ('{"pattern":"' + nested(25, "(", "a", "){30}") + '"}', "accepted"),
    "pattern with groups of options": ('{"pattern":"^((a|b)?(c|d)?){500}$"}', "accepted"),
    "deep pattern": ('{"pattern":"' + nested(5_000, "(", "a", ")") + '"}', "accepted"),
    "long pattern": (json.dumps({"pattern": "[a-z]" * 30_000}), "too large|accepted"),
    "many patterns": (
        json.dumps({"properties": {f"p{i}": {"pattern": ".{900}"} for i in range(400)}}),
        "repeats too much",
    ),
}


@pytest.mark.native
@pytest.mark.parametrize(("schema", "message"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_schema_is_an_error_or_harmless(grammar_process: GrammarProcess, schema: str, message: str):
    assert re.search(message, grammar_process.outcome(json_schema=schema))


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2000) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)
KEYWORDS = (
    *("type", "enum", "const", "properties", "required", "additionalProperties", "patternProperties"),
    *("items", "prefixItems", "additionalItems", "minItems", "maxItems", "pattern", "minLength", "maxLength", "format"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "allOf", "anyOf", "oneOf", "$ref"),
    *("$defs", "not", "if", "nullable", "title", "default", "$dynamicRef", "propertyNames", "uniqueItems"),
)
TYPES = st.sampled_from(["object", "array", "string", "number", "integer", "boolean", "null"])
WILD = st.recursive(
    st.dictionaries(st.sampled_from(KEYWORDS), ANY_JSON | TYPES, max_size=4),
    lambda inner: st.dictionaries(
        st.sampled_from(KEYWORDS),
        inner
        | st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
        | ANY_JSON
        | TYPES
        | st.just("#")
        | st.just("#/properties/a"),
        max_size=4,
    ),
    max_leaves=8,
)


class TestWrongTypes:
    @settings(max_examples=400, deadline=None)
    @given(WILD)
    def test_a_wild_schema_is_a_grammar_or_an_error_with_a_message(self, schema: dict[str, Any]):
        try:
            source = grammar_source(SamplingParams(json_schema=json.dumps(schema)))
        except UsageError as error:
            assert str(error).startswith("The JSON schema ")  # noqa: PT017 - most of them are fine
        else:
            assert source
            assert "root ::= " in source

    WRONG: ClassVar[dict[str, tuple[object, ...]]] = {
        "type": (3, None, {}, [], ["string", 1], "text", True),
        "enum": (3, "a", {}, [], None),
        "properties": ([], 3, "a", {"a": 3}, {"a": "string"}, None),
        "patternProperties": ([], 3, {"a": 3}, {"(": {}}, {"(?=a)": {}}),
        "required": (True, "a", [1], {"a": True}, [None], None),
        "additionalProperties": (3, "no", [], None),
        "items": (3, "string", [3], None),
        "prefixItems": (3, {}, [3], "a", None),
        "minItems": (-1, 0.5, "1", True, None, [1]),
        "maxItems": (-1, 0.5, "1", True, None, {}),
        "minLength": (-1, 0.5, "1", True, None),
        "maxLength": (-1, 0.5, "1", False, None),
        "pattern": (3, None, ["a"], {}),
        "format": (3, None, ["date"]),
        "minimum": ("1", None, True, [1]),
        "maximum": ("1", None, False),
        "exclusiveMinimum": ("1", None, [1]),
        "exclusiveMaximum": ("1", {}),
        "allOf": ([], {}, 3, [3], "a", None, ["a"]),
        "anyOf": ([], {}, 3, [3], "a", None, [None]),
        "oneOf": ([], {}, 3, [3], "a", None),
        "$ref": (3, None, [], {}, True),
    }
    TYPE_OF: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("properties", "patternProperties", "required", "additionalProperties"), "object"),
        **dict.fromkeys(("items", "prefixItems", "minItems", "maxItems"), "array"),
        **dict.fromkeys(("minLength", "maxLength", "pattern", "format"), "string"),
        **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), "integer"),
    }

    @pytest.mark.parametrize(("keyword", "value"), [(key, value) for key, values in WRONG.items() for value in values])
    def test_a_keyword_of_the_wrong_kind_is_an_error(self, keyword: str, value: object):
        schema: dict[str, object] = {keyword: value}
        if keyword in self.TYPE_OF:
            schema["type"] = self.TYPE_OF[keyword]
        inner = {"properties": {"a": schema}, "required": ["a"]}
        for whole in (schema, inner, {"allOf": [schema, schema]}, {"anyOf": [schema, {"type": "null"}]}):
            message = error_of(whole)
            if not isinstance(value, list | dict):  # else what is wrong is in it
                assert keyword in message or "where a schema belongs" in message
