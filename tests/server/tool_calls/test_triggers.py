"""When the grammar of calls wakes up in a reply that is free: with every call, before its arguments, and never else."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.llama.model import Model
from localspec.llama.reply_grammar import ReplyGrammar
from localspec.llama.sampling_params import SamplingParams
from localspec.server.tool_calls import ToolChoice, read_tools
from tests.server.tool_calls.forms import FORMS, NOTE, OSLO, PING, ROME, TOOLS, read

WROTE_BARE = ("llama3", "generic")


def bare(name: str, body: str) -> str:
    return body.replace("KEY", "parameters" if name == "llama3" else "arguments")


def awake_at(name: str, text: str, cuts: set[int]) -> int | None:
    """How much of the text has come when a trigger fires.

    The text comes in tokens that end at `cuts`, and control tokens of the form are tokens of their own.
    """
    tool_format = FORMS[name].tool_format
    triggers = tool_format.constraint(TOOLS, ToolChoice()).triggers
    marks = [match.span() for each in tool_format.markers for match in re.finditer(re.escape(each), text)]
    places = {0, len(text), *(place for mark in marks for place in mark)}
    places |= {cut for cut in cuts if not any(start < cut < end for start, end in marks)}
    return next(
        (
            end
            for _, end in pairwise(sorted(places))
            if any(re.search(f"(?:{each})\\Z", text[:end]) for each in triggers)
        ),
        None,
    )


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("before", ["", "Let me look.\n", "<tool", "{}", "\n\n"])
@given(size=st.integers(1, 5), shift=st.integers(0, 4), call=st.sampled_from([ROME, OSLO, NOTE, PING]))
def test_before_the_arguments(name: str, before: str, size: int, shift: int, call: tuple) -> None:
    """Whatever tokens of some characters the call is made of."""
    if name in WROTE_BARE and before.strip() and not FORMS[name].write([call]).startswith("<"):
        return  # such a call stands at the start
    text = before + FORMS[name].write([call])
    place = awake_at(name, text, set(range(shift, len(text), size)))
    assert place is not None
    # A token of `size` may hold the first characters of what comes next.
    assert place <= text.index(call[0]) + len(call[0]) + size


@pytest.mark.parametrize("name", WROTE_BARE)
@pytest.mark.parametrize(
    "body",
    [
        '{"name": "weather", "KEY": {}}',
        '{"name":"weather","KEY":{}}',
        '  {\n    "name": "weather",\n    "KEY": {}}',
        '\r\n\t{\n\t"name" :\n"weather" , "KEY": {}}',
        '{"type": "function", "name": "weather", "KEY": {}}',
        '{"type":"function","name":"weather","KEY":{}}',
    ],
)
@given(size=st.integers(1, 6), shift=st.integers(0, 5))
def test_a_bare_call_however_it_is_spaced(name: str, body: str, size: int, shift: int) -> None:
    text = bare(name, body)
    assert [kind for kind, *_ in read(FORMS[name], text)] == ["call"]
    place = awake_at(name, text, set(range(shift, len(text), size)))
    assert place is not None
    assert place < text.index("{}")


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(
    "text",
    [
        "Hello.",
        '{"name": "Ada", "arguments": {}}',
        '{"name": "weathervane"}',
        'Look: {"name": "weather", "arguments": {}, "parameters": {}}',
        '[{"name": "weather", "arguments": {}}]',
        "functions.weather and to=functions.weather",
        "<tool_calls> <tool> </tool_call> <functions=weather>",
        "TOOL_CALLS [TOOL] [ARGS]",
        "<|channel|>final<|message|>Write to=functions.weather to me.",
    ],
)
def test_never_in_other_text(name: str, text: str) -> None:
    for size in range(1, 6):
        assert awake_at(name, text, set(range(0, len(text), size))) is None
    assert all(kind != "call" for kind, *_ in read(FORMS[name], text))


def test_names_of_any_length_and_number() -> None:
    tools = read_tools([{"type": "function", "function": {"name": f"{'n' * 120}.{number}"}} for number in range(128)])
    for form in FORMS.values():
        for trigger in form.tool_format.constraint(tools, ToolChoice()).triggers:
            re.compile(trigger)


@pytest.mark.native
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("before", ["", "<think>No <tool_call> or {}.</think>\n"])
def test_the_rest_of_the_reply_is_the_call(target: Model, name: str, before: str) -> None:
    """In llama.cpp: asleep before the call, awake in it, and only its end lets the reply end."""
    form = FORMS[name]
    reasoning = form.reasoning if before or form.separate else None
    before = form.thinking("Hm.") if before and form.separate else before
    constraint = form.tool_format.constraint(TOOLS, ToolChoice(), False, reasoning)
    grammar = ReplyGrammar.of(target, constraint.applied_to(SamplingParams()))
    assert grammar is not None
    call = form.write([ROME])
    try:
        for token in tokens_of(target, before):
            grammar.accept(token)
        assert grammar.handle is None
        *start, last = tokens_of(target, call)
        for token in start:
            grammar.accept(token)
        assert allowed(grammar, last)
        # The end mark may be left out where it is a token that ends the reply.
        assert form.separate or not allowed(grammar, END)
        grammar.accept(last)
        assert allowed(grammar, END)
        assert not any(allowed(grammar, token) for token in tokens_of(target, "Hi{<[,"))
    finally:
        grammar.close()


END = 257


def tokens_of(model: Model, text: str) -> list[int]:
    return model.tokenize(text, add_special=False, parse_special=False)


def allowed(grammar: ReplyGrammar, token: int) -> bool:
    import ctypes
    import math

    import llama_cpp

    data = llama_cpp.llama_token_data(id=token, logit=1.0, p=0.0)
    candidates = llama_cpp.llama_token_data_array(data=ctypes.pointer(data), size=1, selected=-1, sorted=False)
    llama_cpp.llama_sampler_apply(grammar.handle, ctypes.byref(candidates))
    return math.isfinite(candidates.data[0].logit)
