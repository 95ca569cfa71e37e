"""What a reply may be where it has to call tools: calls that are right, and nothing else; asked of llama.cpp."""

from __future__ import annotations

import pytest

from localspec.errors import UsageError
from localspec.llama.model import Model
from localspec.llama.sampling_params import SamplingParams
from localspec.server.reasoning import CHANNELS, Reasoning
from localspec.server.tool_calls import FREE, CallMode, ToolChoice, read_tools
from tests.server.grammar_probe import GrammarProbe
from tests.server.tool_calls.conftest import Grammars, source_of
from tests.server.tool_calls.forms import FORMS, NOTE, OSLO, PARALLEL, PING, ROME, TAGS, TOOLS, Call, calls_in, read

pytestmark = pytest.mark.native

WRONG: list[tuple[str, Call]] = [
    ("unknown tool", ("whether", {"city": "Rome"})),
    ("a tool's name with more", ("weather2", {"city": "Rome"})),
    ("wrong type", ("weather", {"city": "Rome", "days": "three"})),
    ("half a number", ("weather", {"city": "Rome", "days": 1.5})),
    ("not listed", ("weather", {"city": "Rome", "unit": "kelvin"})),
    ("nothing that is required", ("weather", {})),
    ("one that is required is missing", ("weather", {"days": 3})),
    ("unknown argument", ("weather", {"city": "Rome", "country": "Italy"})),
    ("wrong type inside", ("save.note-2", {"tags": [1], "place": {"x": 1}})),
    ("missing inside", ("save.note-2", {"tags": [], "place": {}})),
    ("another tool's arguments", ("save.note-2", {"city": "Rome"})),
]


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("mode", [CallMode.REQUIRED, CallMode.AUTO])
@pytest.mark.parametrize("call", [ROME, OSLO, NOTE, PING], ids=["rome", "oslo", "note", "ping"])
def test_a_right_call(grammars: Grammars, name: str, mode: CallMode, call: Call) -> None:
    text = FORMS[name].write([call])
    if FORMS[name].separate and mode is CallMode.AUTO:
        # The grammar begins at the recipient.
        text = text[text.index(" to=") :]
    for parallel in (True, False):
        assert grammars(name, mode, parallel=parallel).n_allowed(text) is None


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(("why", "call"), WRONG, ids=[why for why, _ in WRONG])
def test_a_wrong_call(grammars: Grammars, name: str, why: str, call: Call) -> None:
    assert not grammars(name).allows(FORMS[name].write([call])), why


@pytest.mark.parametrize("name", PARALLEL)
def test_several_calls_only_if_they_are_wanted(grammars: Grammars, name: str) -> None:
    several = FORMS[name].write([ROME, PING, OSLO])
    assert grammars(name).allows(several)
    assert not grammars(name, parallel=False).allows(several)
    assert not grammars(name).allows(FORMS[name].write([ROME, WRONG[0][1]]))


def test_a_call_on_a_channel_is_the_last(grammars: Grammars) -> None:
    first, second = (FORMS["harmony"].write([call]) for call in (ROME, PING))
    assert not grammars("harmony").allows(first + second)
    assert not grammars("harmony").allows(f"{first}<|start|>assistant{second}")


@pytest.mark.parametrize("name", FORMS)
def test_nothing_but_calls(grammars: Grammars, name: str) -> None:
    call = FORMS[name].write([ROME])
    for text in ("", "Hello", f"Hello {call}", f"{call} Hello", call[:-4], f"{call}{'x'}", "{}", '{"city": "Rome"}'):
        assert not grammars(name).allows(text), text


@pytest.mark.parametrize("name", FORMS)
def test_reasoning_comes_first_where_there_is_any(grammars: Grammars, name: str) -> None:
    form = FORMS[name]
    call, thought = form.write([ROME]), form.thinking("Rome < Paris? </thin <|en </ Well.")
    grammar = grammars(name, reasons=True)
    assert grammar.allows(call)
    assert grammar.allows(thought + call)
    assert not grammar.allows(call + thought)
    assert not grammar.allows(thought)
    assert not grammar.allows(thought + thought + call)
    assert calls_in(read(form, thought + call, reasoning=form.reasoning)[1:]) == [ROME]


@pytest.mark.parametrize("name", FORMS)
def test_reasoning_that_the_prompt_has_begun(grammars: Grammars, name: str) -> None:
    form = FORMS[name]
    call = form.write([ROME])
    thought = form.thinking("Hm.").removeprefix(form.reasoning.opening)
    grammar = grammars(name, reasons=True, starts_in_reasoning=True)
    assert grammar.allows(thought + call)
    assert not grammar.allows(call)
    reasoning, *calls = read(form, thought + call, reasoning=form.reasoning, starts=True)
    assert reasoning == ("reasoning", "Hm.")
    assert calls_in(calls) == [ROME]


@pytest.mark.parametrize("name", FORMS)
def test_only_the_tools_that_are_chosen(target: Model, name: str) -> None:
    form = FORMS[name]
    choice = ToolChoice(CallMode.REQUIRED, ("ping",))
    reasoning = CHANNELS if form.separate else None
    with GrammarProbe(target, source_of(form.tool_format.constraint(TOOLS, choice, True, reasoning))) as grammar:
        assert grammar.allows(form.write([PING]))
        assert not grammar.allows(form.write([ROME]))


@pytest.mark.parametrize("name", FORMS)
def test_a_tool_that_takes_anything(target: Model, name: str) -> None:
    form = FORMS[name]
    tools = read_tools([{"type": "function", "function": {"name": "any", "parameters": {"properties": {"x": {}}}}}])
    with GrammarProbe(target, source_of(form.tool_format.constraint(tools, ToolChoice(CallMode.REQUIRED)))) as grammar:
        for value in ("text", 3, None, [1, {"a": "b"}]):
            text = form.write([("any", {"x": value})])
            assert grammar.allows(text), text
            assert calls_in(read(form, text, tools=tools)) == [("any", {"x": value})]


@pytest.mark.parametrize("name", ["llama3", "generic", "hermes", "mistral", "granite"])
@pytest.mark.parametrize(
    "body",
    [
        '{"name":"ping","KEY":{}}',
        '{\n    "name": "ping",\n    "KEY": {}\n}',
        '{"type": "function", "name": "ping", "KEY": {}}',
    ],
)
def test_how_else_models_write_the_object(grammars: Grammars, name: str, body: str) -> None:
    form, key = FORMS[name], "parameters" if name == "llama3" else "arguments"
    usual, body = f'{{"name": "ping", "{key}": {{}}}}', body.replace("KEY", key)
    text = form.write([PING]).replace(usual, body)
    assert text != form.write([PING])
    assert grammars(name).allows(text)
    assert calls_in(read(form, text)) == [PING]


@pytest.mark.parametrize("name", FORMS)
def test_none_may_be_called(name: str) -> None:
    tool_format = FORMS[name].tool_format
    assert tool_format.constraint(TOOLS, ToolChoice(CallMode.NONE)) == FREE
    assert tool_format.constraint((), ToolChoice(CallMode.NONE)) == FREE
    sampling = SamplingParams(grammar='root ::= "a"')
    assert FREE.applied_to(sampling) is sampling


@pytest.mark.parametrize("own", [{"grammar": 'root ::= "a"'}, {"json_schema": "{}"}])
def test_a_grammar_of_the_requests_own(own: dict[str, str]) -> None:
    constraint = FORMS["hermes"].tool_format.constraint(TOOLS, ToolChoice())
    with pytest.raises(UsageError, match="cannot follow a grammar or JSON schema and call tools") as caught:
        constraint.applied_to(SamplingParams(**own))
    assert "tool_choice" in str(caught.value.hint)


@pytest.mark.parametrize("name", FORMS)
def test_a_schema_that_cannot_be_said_names_its_tool(target: Model, name: str) -> None:
    parameters = {"properties": {"x": {"type": "colour"}}}
    tools = read_tools([{"type": "function", "function": {"name": "paint", "parameters": parameters}}])
    constraint = FORMS[name].tool_format.constraint(tools, ToolChoice())
    with pytest.raises(UsageError, match=r'the tool "paint" .*colour'):
        source_of(constraint)


def test_where_no_trigger_is_looked_for() -> None:
    def passage(name: str, reasoning: Reasoning | None, **more: bool) -> tuple[str, str] | None:
        return FORMS[name].tool_format.constraint(TOOLS, ToolChoice(), True, reasoning, **more).passes_over

    assert passage("hermes", None) is None
    assert passage("hermes", TAGS) == ("<think>", "</think>")
    assert passage("hermes", TAGS, starts_in_reasoning=True) == ("", "</think>")
    assert passage("harmony", CHANNELS) is None
