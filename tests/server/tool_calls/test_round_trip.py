"""A call that the grammar lets through is read as the same call."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localspec.llama.model import Model
from localspec.server.tool_calls import CallMode, ToolChoice, read_tools
from tests.server.grammar_probe import GrammarProbe
from tests.server.tool_calls.conftest import Grammars, source_of
from tests.server.tool_calls.forms import FORMS, Call, Part, calls_in, read

pytestmark = pytest.mark.native

# As grammars have it: DEL is written as an escape, which Python does not do, and llama.cpp lets no NUL through.
TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0\x7f"), max_size=30)
WEATHER = st.fixed_dictionaries(
    {"city": TEXT},
    optional={"days": st.integers(-(10**17), 10**17), "unit": st.sampled_from(["celsius", "fahrenheit"])},
)
NUMBERS = st.one_of(st.integers(-(10**6), 10**6), st.floats(-1e6, 1e6).map(lambda number: round(number, 4)))
NOTE = st.fixed_dictionaries(
    {"tags": st.lists(TEXT, max_size=3), "place": st.fixed_dictionaries({"x": NUMBERS})},
    optional={"pinned": st.sampled_from([True, False, None])},
)


def ordered(*keys: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Arguments in the order of the schema."""
    return lambda arguments: {key: arguments[key] for key in keys if key in arguments}


CALLS = st.one_of(
    WEATHER.map(ordered("city", "days", "unit")).map(lambda arguments: ("weather", arguments)),
    NOTE.map(ordered("tags", "place", "pinned")).map(lambda arguments: ("save.note-2", arguments)),
    st.just(("ping", {})),
)
WITH_FIXTURES = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25)


def is_right(call: Call) -> bool:
    """Whether the arguments follow the schema of one of the tools."""
    name, given_ = call
    match name:
        case "weather":
            types: dict[str, Any] = {"city": str, "days": int, "unit": str}
            return (
                "city" in given_
                and all(type(value) is types.get(key) for key, value in given_.items())
                and given_.get("unit", "celsius") in ("celsius", "fahrenheit")
            )
        case "save.note-2":
            place = given_.get("place")
            return (
                set(given_) <= {"tags", "place", "pinned"}
                and isinstance(given_["tags"], list)
                and all(isinstance(tag, str) for tag in given_["tags"])
                and isinstance(place, dict)
                and set(place) == {"x"}
                and type(place["x"]) in (int, float)
                and given_.get("pinned") in (True, False, None)
            )
    return name == "ping" and not given_


def after_reasoning(parts: list[Part]) -> list[Part]:
    return parts[1:] if parts[0][0] == "reasoning" else parts


@pytest.mark.parametrize("name", FORMS)
@WITH_FIXTURES
@given(calls=st.lists(CALLS, min_size=1, max_size=3), parallel=st.booleans())
def test_calls_as_models_write_them(grammars: Grammars, name: str, calls: list[Call], parallel: bool) -> None:
    form = FORMS[name]
    if form.separate or not parallel:
        calls = calls[:1]
    text = form.write(calls)
    if name == "qwen-xml" and "</" in "".join(str(arguments) for _, arguments in calls):
        return  # a text that holds the tag after it cannot be written
    assert grammars(name, parallel=parallel).n_allowed(text) is None
    assert calls_in(read(form, text)) == calls


@pytest.mark.parametrize("reasons", [False, True])
@pytest.mark.parametrize("name", FORMS)
@WITH_FIXTURES
@given(seed=st.integers(0, 2**32))
def test_whatever_the_grammar_lets_through(grammars: Grammars, name: str, reasons: bool, seed: int) -> None:
    form = FORMS[name]
    text = grammars(name, reasons=reasons).walk(random.Random(seed))
    calls = calls_in(after_reasoning(read(form, text, reasoning=form.reasoning if reasons else None)))
    assert calls
    assert all(map(is_right, calls)), (text, calls)


@pytest.mark.parametrize("name", FORMS)
@WITH_FIXTURES
@given(seed=st.integers(0, 2**32))
def test_whatever_it_lets_through_of_a_form_that_is_free(grammars: Grammars, name: str, seed: int) -> None:
    """Once a call has begun, too."""
    text = grammars(name, CallMode.AUTO, parallel=False).walk(random.Random(seed))
    (call,) = calls_in(read(FORMS[name], text))
    assert is_right(call)


# Values between tags, where a text and JSON may look the same.
LISTED = {
    "plain": {"type": "string", "enum": ["a", "b c", "", "1", "null", "a\n", " a"]},
    "mixed": {"enum": ["a", 1, None, True, "2", {"k": ["</parameter>"]}]},
    "maybe": {"anyOf": [{"type": "string", "enum": ["a", "null ", "7"]}, {"type": "null"}, {"type": "integer"}]},
    "fixed": {"const": "x > y"},
    "shared": {"anyOf": [{"$ref": "#/$defs/level"}, {"const": "off"}]},
    "again": {"type": "array", "items": {"$ref": "#/properties/plain"}},
}
LISTED_TOOL = read_tools(
    [
        {
            "type": "function",
            "function": {
                "name": "set",
                "parameters": {"properties": LISTED, "required": [*LISTED], "$defs": {"level": {"type": "integer"}}},
            },
        }
    ]
)
ANY_LISTED = st.fixed_dictionaries(
    {
        "plain": st.sampled_from(LISTED["plain"]["enum"]),
        "mixed": st.sampled_from(LISTED["mixed"]["enum"]),
        "maybe": st.sampled_from(["a", "null ", "7", None, 8, -7]),
        "fixed": st.just("x > y"),
        "shared": st.sampled_from([3, "off"]),
        "again": st.lists(st.sampled_from(LISTED["plain"]["enum"]), max_size=2),
    }
).map(ordered(*LISTED))


def is_listed(arguments: dict[str, Any]) -> bool:
    plain = LISTED["plain"]["enum"]
    mixed = [json.dumps(value) for value in LISTED["mixed"]["enum"]]
    return (
        [*arguments] == [*LISTED]
        and arguments["plain"] in plain
        and json.dumps(arguments["mixed"]) in mixed
        and (arguments["maybe"] in ("a", "null ", "7", None) or type(arguments["maybe"]) is int)
        and arguments["fixed"] == "x > y"
        and (arguments["shared"] == "off" or type(arguments["shared"]) is int)
        and all(each in plain for each in arguments["again"])
    )


@pytest.fixture(scope="module", params=FORMS)
def listed(request: pytest.FixtureRequest, target: Model) -> Any:
    form = FORMS[request.param]
    constraint = form.tool_format.constraint(LISTED_TOOL, ToolChoice(CallMode.REQUIRED), parallel=False)
    with GrammarProbe(target, source_of(constraint)) as grammar:
        yield form, grammar


@WITH_FIXTURES
@given(arguments=ANY_LISTED)
def test_values_that_are_listed(listed: Any, arguments: dict[str, Any]) -> None:
    form, grammar = listed
    text = form.write([("set", arguments)])
    assert grammar.n_allowed(text) is None
    assert calls_in(read(form, text, tools=LISTED_TOOL)) == [("set", arguments)]


@WITH_FIXTURES
@given(seed=st.integers(0, 2**32))
def test_values_as_the_grammar_lists_them(listed: Any, seed: int) -> None:
    form, grammar = listed
    text = grammar.walk(random.Random(seed))
    ((name, arguments),) = calls_in(after_reasoning(read(form, text, tools=LISTED_TOOL)))
    assert name == "set"
    assert is_listed(dict(arguments)), text
