"""The tools of a request and the choice among them, as clients send them and as anybody else does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import UsageError
from localspec.server.tool_calls import CallMode, ToolChoice, name_of, read_tools
from localspec.server.tool_calls.tools import MAX_TOOL_BYTES, MAX_TOOLS, MAX_TOOLS_BYTES
from tests.server.tool_calls.forms import FORMS, TOOLS

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
KEYS = st.sampled_from(["type", "function", "name", "description", "parameters", "properties", "mode", "tools"])
NEARLY = st.recursive(
    JSON | st.sampled_from(["function", "object", "weather", "allowed_tools", "auto", "required"]),
    lambda inner: st.dictionaries(KEYS, inner, max_size=4) | st.lists(inner, max_size=3),
    max_leaves=12,
)


def function(name: str = "f", **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **more}}


class TestReading:
    def test_both_of_openais_forms(self) -> None:
        parameters = {"type": "object", "properties": {"a": {}}, "required": ["a"]}
        chat = function("f", description="Does it.", parameters=parameters, strict=True)
        flat = {"type": "function", "name": "f", "description": "Does it.", "parameters": parameters, "strict": True}
        expected = function("f", description="Does it.", parameters=parameters)
        assert read_tools([chat]) == read_tools([flat]) == (expected,)

    @pytest.mark.parametrize("more", [{}, {"parameters": None}, {"parameters": {}}, {"description": None}])
    def test_what_templates_count_on_is_there(self, more: dict[str, Any]) -> None:
        (tool,) = read_tools([function("f", **more)])
        assert tool["function"] == {
            "name": "f", "description": "", "parameters": {"type": "object", "properties": {}},
        }  # fmt: skip

    def test_the_requests_own_objects_stay_as_they_are(self) -> None:
        parameters: dict[str, Any] = {}
        read_tools([function("f", parameters=parameters)])
        assert parameters == {}

    @pytest.mark.parametrize(
        ("tool", "message"),
        [
            (7, "Tool 0 is not an object"),
            ({"type": "web_search"}, 'of type "web_search"'),
            ({"type": "function", "function": 7}, "function of tool 0 is not an object"),
            (function(""), "cannot be used: ''"),
            (function("two words"), "'two words'"),
            (function("n" * 129), "cannot be used"),
            (function("a\n"), "cannot be used"),
            (function('a"b'), "cannot be used"),
            ({"type": "function", "function": {}}, "Tool 0 has no name"),
            ({"type": "function", "name": 7}, "Tool 0 has no name"),
            (function(description=7), 'description of the tool "f"'),
            (function(parameters=[]), 'parameters of the tool "f" are not a JSON schema'),
            (function(parameters={"type": "string"}), 'tool "f" are not of type object'),
            (function(parameters={"properties": []}), 'properties of the tool "f"'),
            (function(parameters={"x": float("nan")}), 'parameters of the tool "f" are not JSON'),
            (function(parameters={"x": "y" * MAX_TOOL_BYTES}), f'tool "f" has .* at most {MAX_TOOL_BYTES}'),
        ],
    )
    def test_what_is_no_tool(self, tool: object, message: str) -> None:
        with pytest.raises(UsageError, match=message) as caught:
            read_tools([tool])
        assert len(str(caught.value)) < 300

    def test_too_many_too_large_and_two_of_one_name(self) -> None:
        with pytest.raises(UsageError, match=f"{MAX_TOOLS + 1} tools; at most {MAX_TOOLS}"):
            read_tools([function(f"f{number}") for number in range(MAX_TOOLS + 1)])
        large = {"x": "y" * (MAX_TOOL_BYTES - 200)}
        with pytest.raises(UsageError, match=f"at most {MAX_TOOLS_BYTES}"):
            read_tools([function(f"f{number}", parameters=large) for number in range(9)])
        with pytest.raises(UsageError, match='Two tools have the name "f"'):
            read_tools([function("f"), function("g"), function("f")])

    @given(tools=st.lists(NEARLY, max_size=3))
    def test_anything_is_read_or_refused(self, tools: list[object]) -> None:
        try:
            read_all = read_tools(tools)
        except UsageError:
            return
        assert len(read_all) == len(tools)
        for form in FORMS.values():
            try:
                form.tool_format.constraint(read_all, ToolChoice())
            except UsageError:
                assert form.tool_format.name == "qwen-xml"


class TestChoice:
    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (None, ToolChoice(CallMode.AUTO)),
            ("auto", ToolChoice(CallMode.AUTO)),
            ("none", ToolChoice(CallMode.NONE)),
            ("required", ToolChoice(CallMode.REQUIRED)),
            ({"type": "function", "function": {"name": "ping"}}, ToolChoice(CallMode.REQUIRED, ("ping",))),
            ({"type": "function", "name": "ping"}, ToolChoice(CallMode.REQUIRED, ("ping",))),
            (
                {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "ping"}]},
                ToolChoice(CallMode.AUTO, ("ping",)),
            ),
            (
                {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [function("ping")]}},
                ToolChoice(CallMode.REQUIRED, ("ping",)),
            ),
        ],
    )
    def test_its_forms(self, value: object, expected: ToolChoice) -> None:
        assert ToolChoice.read(value, TOOLS) == expected

    @pytest.mark.parametrize("value", [None, "auto", "none"])
    def test_without_tools_none_is_called(self, value: object) -> None:
        assert ToolChoice.read(value, ()).mode is CallMode.NONE

    def test_without_tools_none_can_be_asked_for(self) -> None:
        with pytest.raises(UsageError, match="there are no tools"):
            ToolChoice.read("required", ())
        with pytest.raises(UsageError, match="not among the tools"):
            ToolChoice.read({"type": "function", "name": "ping"}, ())

    @pytest.mark.parametrize(
        "value",
        [
            *("any", "", 7, True, [], {}, {"type": "function"}, {"type": "function", "function": 7}),
            *({"type": "function", "name": 7}, {"type": "allowed_tools"}, {"type": "allowed_tools", "mode": "auto"}),
            {"type": "allowed_tools", "mode": "none", "tools": [{"name": "ping"}]},
            {"type": "allowed_tools", "mode": "auto", "tools": []},
            {"type": "allowed_tools", "mode": "auto", "tools": [7]},
            {"type": "allowed_tools", "mode": "auto", "tools": "ping"},
            {"type": "allowed_tools", "mode": ["auto"], "tools": [{"name": "ping"}]},
        ],
    )
    def test_others_are_refused(self, value: object) -> None:
        with pytest.raises(UsageError, match="tool_choice is not one of the known forms"):
            ToolChoice.read(value, TOOLS)

    def test_a_name_that_no_tool_has(self) -> None:
        with pytest.raises(UsageError, match='"pong", which is not among the tools') as caught:
            ToolChoice.read({"type": "function", "name": "pong"}, TOOLS)
        assert "ping, save.note-2, weather" in str(caught.value.hint)

    def test_what_may_be_called(self) -> None:
        assert ToolChoice(CallMode.NONE).allowed(TOOLS) == ()
        assert ToolChoice(CallMode.AUTO).allowed(TOOLS) == TOOLS
        assert [name_of(tool) for tool in ToolChoice(CallMode.AUTO, ("ping",)).allowed(TOOLS)] == ["ping"]

    @given(value=NEARLY)
    def test_anything_is_read_or_refused(self, value: object) -> None:
        try:
            choice = ToolChoice.read(value, TOOLS)
        except UsageError:
            return
        assert set(choice.names) <= {name_of(tool) for tool in TOOLS}


def test_a_parameter_that_tags_cannot_name() -> None:
    """Only where parameters stand in tags."""
    for key in ("a>b", "a\nb", "", "k" * 201):
        tools = read_tools([function("f", parameters={"properties": {key: {}}})])
        for name, form in FORMS.items():
            if name != "qwen-xml":
                form.tool_format.constraint(tools, ToolChoice())
                continue
            with pytest.raises(UsageError, match='parameter of the tool "f"'):
                form.tool_format.constraint(tools, ToolChoice())
