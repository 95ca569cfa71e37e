"""Where a reply's text is cut into pieces makes no difference to what is read."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.server.tool_calls.forms import FORMS, NOTE, OSLO, PING, ROME, TAGS, as_json, read

# What the forms are made of, whole and broken off, in any order: almost calls of every kind.
PIECES = [
    *("<tool_call>", "</tool_call>", "<function=weather>", "<function=", "</function>", "<parameter=city>\n"),
    *("</parameter>", "\n</parameter>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]abcdefghi", "[", "]", "<|tool_call|>"),
    *("<|python_tag|>", "<|channel|>", "analysis", "commentary", "final", "<|message|>", "<|end|>", "<|call|>"),
    *("<|start|>assistant", " to=functions.weather", "<|constrain|>json", "<think>", "</think>", "<response>"),
    *('{"name": "weather", "arguments": ', '{"name": "weather", "parameters": ', '{"city": "Rome"}', "}", "{", "{}"),
    *('"', "\\", '\\"', ",", ":", ";", "null", "weather", "ping", '{"type": "function", ', '"id": 3, ', "<", "|", ">"),
    *('"arguments": {}, "name": "ping"', '"{\\"city\\": \\"\\\\ud83d\\"}"', "x" * 250, " ", "\n", "Hello.", "é", "😀"),
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)
WHOLE = {
    name: [form.write([call]) for call in (ROME, OSLO, NOTE, PING)]
    + ([] if form.separate else [form.write([OSLO, NOTE, PING])])
    for name, form in FORMS.items()
}


def pieces_of(text: str, size: int) -> range:
    return range(0, len(text), size)


@pytest.mark.parametrize("name", FORMS)
@given(text=TEXTS, data=st.data())
def test_any_text(name: str, text: str, data: st.DataObject) -> None:
    cuts = data.draw(st.sets(st.integers(0, len(text))))
    form, starts = FORMS[name], data.draw(st.booleans())
    for options in ({"reasoning": TAGS}, {"reasoning": TAGS, "starts": starts}, {"tells_reasoning": False}, {}):
        whole = read(form, text, **options)
        assert read(form, text, cuts=cuts, **options) == whole
        assert read(form, text, cuts=pieces_of(text, 1), **options) == whole


@pytest.mark.parametrize("name", FORMS)
@given(start=TEXTS, end=TEXTS, data=st.data())
def test_a_call_with_anything_around_it(name: str, start: str, end: str, data: st.DataObject) -> None:
    text = start + data.draw(st.sampled_from(WHOLE[name])) + end
    cuts = data.draw(st.sets(st.integers(0, len(text))))
    whole = read(FORMS[name], text)
    assert read(FORMS[name], text, cuts=cuts) == whole
    assert read(FORMS[name], text, cuts=pieces_of(text, 1)) == whole


@given(text=TEXTS, cuts=st.sets(st.integers(0, 200)))
@example(text=f'<tool_call>{as_json({"name": "ping", "arguments": {}})[:-1]}, "{"k" * 300}": 1}}', cuts={100, 200})
@example(text=f"<tool_call><function=ping><parameter={'k' * 300}>1</parameter></function>", cuts={100, 250})
def test_names_that_are_too_long(text: str, cuts: set[int]) -> None:
    for form in FORMS.values():
        assert read(form, text, cuts=cuts) == read(form, text) == read(form, text, cuts=pieces_of(text, 1))


@pytest.mark.parametrize("name", FORMS)
@given(text=TEXTS)
def test_without_tools_nothing_is_a_call(name: str, text: str) -> None:
    assert all(kind != "call" for kind, *_ in read(FORMS[name], text, tools=()))


@given(text=TEXTS, cuts=st.sets(st.integers(0, 200)))
def test_without_a_form_the_text_is_content(text: str, cuts: set[int]) -> None:
    assert read(None, text, cuts=cuts) == ([("content", text)] if text else [])


@given(text=TEXTS, cuts=st.sets(st.integers(0, 200)), starts=st.booleans())
def test_reasoning_that_is_left_in_the_content(text: str, cuts: set[int], starts: bool) -> None:
    kept = read(None, text, cuts=cuts, reasoning=TAGS, starts=starts, tells_reasoning=False)
    told = "".join(part for _, part in kept)
    assert told == (text.lstrip(" \n") if text.lstrip(" \n").startswith("<think>") or starts else text)


@pytest.mark.parametrize("name", FORMS)
def test_arguments_are_passed_on_as_they_come(name: str) -> None:
    """A half of the arguments is there when half of them have been written."""
    form = FORMS[name]
    text = form.write([("weather", {"city": "Rome" * 100})])
    half = text[: text.index("Rome") + 200]
    (call,) = read(form, half)
    assert call[0] == "call"
    assert call[2].count("Rome") == 50
