"""What a reply's text is read as: content, reasoning, calls; and what only looks like a call."""

from __future__ import annotations

import json

import pytest

from localspec.server.reasoning import Reasoning
from localspec.server.tool_calls import ReplyParser
from tests.server.tool_calls.forms import FORMS, NOTE, OSLO, PARALLEL, PING, ROME, TAGS, TOOLS, Part, calls_in, read

WRAPPED = Reasoning("<think>", "</think>", ("<response>", "</response>"))
WEATHER = ("call", "weather", '{"city": "Rome"}')


def kinds(parts: list[Part]) -> list[str]:
    return [kind for kind, *_ in parts]


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("call", [ROME, OSLO, NOTE, PING])
def test_one_call(name: str, call: tuple) -> None:
    assert calls_in(read(FORMS[name], FORMS[name].write([call]))) == [call]


@pytest.mark.parametrize("name", PARALLEL)
def test_parallel_calls(name: str) -> None:
    calls = [ROME, ROME, NOTE, PING, OSLO]
    assert calls_in(read(FORMS[name], FORMS[name].write(calls))) == calls


@pytest.mark.parametrize("name", [name for name in FORMS if name not in ("llama3", "harmony")])
def test_content_before_a_call(name: str) -> None:
    text = "Let me look.\n\n" + FORMS[name].write([ROME])
    content, *calls = read(FORMS[name], text)
    assert content == ("content", "Let me look.")
    assert calls_in(calls) == [ROME]


@pytest.mark.parametrize("name", ["hermes", "mistral", "qwen-xml", "generic", "mistral-args", "granite"])
def test_content_after_a_call(name: str) -> None:
    parts = read(FORMS[name], FORMS[name].write([ROME]) + "\nDone.")
    assert kinds(parts) == ["call", "content"]
    assert parts[1][1].strip() == "Done."


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("space", ["", " ", "\n", " \n\t\n"])
def test_space_after_a_call_is_no_content(name: str, space: str) -> None:
    assert kinds(read(FORMS[name], FORMS[name].write([ROME]) + space)) == ["call"]


@pytest.mark.parametrize("name", FORMS)
def test_reasoning_before_a_call(name: str) -> None:
    form = FORMS[name]
    thought = 'I could <tool_call>{"name": "ping"} or [TOOL_CALLS]. {"name": "ping", "parameters": {}}'
    reasoning, *calls = read(form, form.thinking(thought) + form.write([ROME]), reasoning=TAGS)
    assert reasoning == ("reasoning", thought)
    assert calls_in(calls) == [ROME]


@pytest.mark.parametrize("name", FORMS)
def test_reasoning_alone(name: str) -> None:
    form = FORMS[name]
    text = form.thinking("Hm. " + form.write([ROME]))
    assert kinds(read(form, text[: text.rindex(form.reasoning.closing)], reasoning=TAGS))[0] == "reasoning"


@pytest.mark.parametrize("name", FORMS)
def test_reasoning_that_is_kept_in_the_content(name: str) -> None:
    """The marks stay, calls within it are none, and the call after it is one."""
    form = FORMS[name]
    thought = form.thinking("Hm.")
    content, *calls = read(form, thought + form.write([ROME]), reasoning=TAGS, tells_reasoning=False)
    kept = thought.removesuffix("<|start|>assistant").strip()
    assert content == ("content", kept)
    assert calls_in(calls) == [ROME]


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("call", [("whether", {"city": "Rome"}), ("", {})])
def test_unknown_tools_are_content(name: str, call: tuple) -> None:
    text = FORMS[name].write([call])
    (part,) = read(FORMS[name], text)
    assert part == ("content", text if name != "harmony" else json.dumps(call[1]))


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(
    "text",
    [
        "Hello {name}, [ok] <b> ; </tool_call>",
        '{"name": "Ada", "age": 36}',
        '{"city": "Rome"}',
        "{}",
        "[]",
        '{"name": "weather"',
        "<tool_call>",
        "<tool_call></tool_call>",
        "<tool_call>weather(Rome)</tool_call>",
        '<tool_call>{"name": "weather", "city": "Rome"}</tool_call>',
        '<tool_call>{"name": ["weather"], "arguments": {}}</tool_call>',
        '<tool_call>{"name": "weather", "arguments": "Rome"}</tool_call>',
        '<tool_call>{"name": "weather", "arguments": [1]}</tool_call>',
        '<tool_call>{"arguments": {"city": NaN}, "name": "weather"}</tool_call>',
        '<tool_call>{"arguments": {"city": "Rome"}}</tool_call>',
        "<tool_call><function=whether></function></tool_call>",
        "<function=>",
        "[TOOL_CALLS]",
        "[TOOL_CALLS][]",
        "[TOOL_CALLS]weather Rome",
        "[TOOL_CALLS]weather[ARGS][1]",
        "<|tool_call|>weather",
        "<|tool_call|>[1]",
        "<|python_tag|>print(1)",
        '<|python_tag|>{"name": weather}',
    ],
)
def test_what_only_looks_like_a_call(name: str, text: str) -> None:
    assert read(FORMS[name], text) == [("content", text)]


@pytest.mark.parametrize("name", FORMS)
def test_a_call_that_is_cut_short(name: str) -> None:
    """At any place: the beginning of the arguments stands, and nothing of the call's end turns into content."""
    form = FORMS[name]
    text = form.write([OSLO])
    whole = read(form, text)[0][2]
    begun = False
    for end in range(1, len(text)):
        parts = read(form, text[:end])
        if kinds(parts) == ["call"]:
            begun = True
            assert parts[0][1] == "weather"
            assert whole.startswith(parts[0][2]) or name == "qwen-xml"
        elif begun or not text[:end].isspace():
            assert not begun, text[:end]
            assert kinds(parts) in (["content"], []), text[:end]
    assert begun


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("broken", ['{"city": "Rome"]', '{"city": ["Rome"}'])
def test_a_call_that_breaks_stands_as_far_as_it_came(name: str, broken: str) -> None:
    if name == "qwen-xml":
        return  # has no brackets to break
    text = FORMS[name].write([ROME]).replace('{"city": "Rome"}', broken)
    (call, name_, arguments), *rest = read(FORMS[name], text)
    assert (call, name_) == ("call", "weather")
    assert broken.startswith(arguments)
    assert kinds(rest) == ["content"]


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        ('{"arguments": {"city": "Rome"}, "name": "weather"}', '{"city": "Rome"}'),
        ('{"parameters": {"city": "Rome"}, "name": "weather"}', '{"city": "Rome"}'),
        ('{"name": "weather", "parameters": {"city": "Rome"}}', '{"city": "Rome"}'),
        ('{"name": "weather", "arguments": "{\\"city\\": \\"Rome\\"}"}', '{"city": "Rome"}'),
        ('{"name": "weather", "arguments": null}', "{}"),
        ('{"name": "weather", "arguments": ""}', "{}"),
        ('{"name": "weather"}', "{}"),
        ('{"id": 7, "type": "function", "name": "weather", "arguments": {"city": "Rome"}}', '{"city": "Rome"}'),
        ('{"name":"weather","arguments":{"city":"Rome"},"id":"a"}', '{"city":"Rome"}'),
        ('{"arguments": {"days": 1e999, "city": 12345678901234567890}, "name": "weather"}', None),
        ('{"name": "\\u0077eather", "arguments": {"city": "\\ud83d"}}', '{"city": "\\ud83d"}'),
        ('{"name": "weather", "arguments": "{\\"city\\": \\"\\ud83d\\"}"}', '{"city": "\\ud83d"}'),
        ('{"arguments": {"city": "a\nb"}, "name": "weather"}', '{"city": "a\\nb"}'),
    ],
)
@pytest.mark.parametrize("name", ["hermes", "llama3", "granite", "mistral"])
def test_other_ways_to_write_the_object(name: str, body: str, arguments: str | None) -> None:
    """Arguments are strict JSON in UTF-8 also where the model wrote them as a text or before the name."""
    around = {"hermes": "<tool_call>{}</tool_call>", "llama3": "{}", "granite": "<|tool_call|>[{}]"}
    ((_, called, read_arguments),) = read(FORMS[name], around.get(name, "[TOOL_CALLS][{}]").replace("{}", body, 1))
    assert called == "weather"
    assert arguments is None or read_arguments == arguments
    read_arguments.encode()
    assert isinstance(json.loads(read_arguments), dict)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("llama3", '<|python_tag|>{"name": "weather", "parameters": {"city": "Rome"}}'),
        ("llama3", '\n{"name": "weather", "parameters": {"city": "Rome"}};'),
        ("mistral", '[TOOL_CALLS] [ {"name": "weather", "arguments": {"city": "Rome"}, "id": "abcdefghi"} ]'),
        ("mistral", '[TOOL_CALLS]weather{"city": "Rome"}'),
        ("mistral-args", '[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Rome"}}]'),
        ("mistral-args", '[TOOL_CALLS]weather[CALL_ID]abcdefghi[ARGS]{"city": "Rome"}'),
        ("mistral-args", '[TOOL_CALLS] weather {"city": "Rome"}'),
        ("harmony", ' to=functions.weather<|channel|>commentary json<|message|>{"city": "Rome"}<|call|>'),
        ("harmony", '<|start|>assistant to=functions.weather<|channel|>analysis<|message|>{"city": "Rome"}'),
        ("harmony", '<|channel|>commentary to=functions.weather<|message|> {"city": "Rome"}<|end|>'),
        ("qwen-xml", "<function=weather><parameter=city>Rome</parameter></function>"),
        ("qwen-xml", "<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter></function>"),
        ("generic", '{"name": "weather", "arguments": {"city": "Rome"}}'),
    ],
)
def test_other_ways_to_write_the_call(name: str, text: str) -> None:
    parts = read(FORMS[name], text)
    assert calls_in(part for part in parts if part != ("content", ";")) == [ROME]


class TestChannels:
    HARMONY = FORMS["harmony"]

    def test_analysis_then_the_answer(self) -> None:
        text = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|> Hi <b> \n"
        assert read(self.HARMONY, text) == [("reasoning", "Hm."), ("content", "Hi <b> \n")]

    def test_a_preamble_is_content(self) -> None:
        text = "<|channel|>commentary<|message|>Let me look.<|end|><|start|>assistant" + self.HARMONY.write([ROME])
        assert read(self.HARMONY, text) == [("content", "Let me look."), WEATHER]

    def test_text_without_a_header(self) -> None:
        assert read(self.HARMONY, "Hello<|end|> there") == [("content", "Hello there")]
        assert read(self.HARMONY, "x" * 1000) == [("content", "x" * 1000)]

    def test_a_header_without_an_end(self) -> None:
        text = "<|channel|>final" + "x" * 1000
        assert "".join(part[1] for part in read(self.HARMONY, text)).endswith("x" * 1000)

    def test_a_prompt_that_opens_the_analysis(self) -> None:
        text = "Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hi"
        assert read(self.HARMONY, text, starts=True) == [("reasoning", "Hm."), ("content", "Hi")]

    def test_analysis_that_is_kept_and_cut_short(self) -> None:
        text = "<|channel|>analysis<|message|>Hm"
        assert read(self.HARMONY, text, tells_reasoning=False) == [("content", text)]
        assert read(self.HARMONY, "Hm", starts=True, tells_reasoning=False) == [("content", "Hm")]

    def test_analysis_goes_on_after_a_call_that_is_none(self) -> None:
        text = '<|channel|>analysis to=functions.unknown<|message|>{"a": 1}<|end|><|start|>assistant'
        assert kinds(read(self.HARMONY, text + self.HARMONY.write([ROME]))) == ["reasoning", "call"]


class TestReasoning:
    @pytest.mark.parametrize(
        ("text", "parts"),
        [
            ("<think>\nHm.\n</think>\n\nHi", [("reasoning", "Hm."), ("content", "Hi")]),
            ("\n<think>Hm.</think>Hi ", [("reasoning", "Hm."), ("content", "Hi ")]),
            ("<think></think>Hi", [("content", "Hi")]),
            ("<think>\n\n</think>\n\n", []),
            ("<think>Hm. </thin", [("reasoning", "Hm. </thin")]),
            ("Hi <think>Hm.</think>", [("content", "Hi <think>Hm.</think>")]),
            ("<thinking>", [("content", "<thinking>")]),
            ("<think>a<think>b</think>c</think>d", [("reasoning", "a<think>b"), ("content", "c</think>d")]),
            ("<thin", [("content", "<thin")]),
            ("", []),
        ],
    )
    def test_tags(self, text: str, parts: list[Part]) -> None:
        assert read(None, text, reasoning=TAGS) == parts

    @pytest.mark.parametrize(
        ("text", "parts"),
        [
            ("Hm.</think>Hi", [("reasoning", "Hm."), ("content", "Hi")]),
            ("<think>Hm.</think>Hi", [("reasoning", "Hm."), ("content", "Hi")]),
            ("Hm.", [("reasoning", "Hm.")]),
            ("</think>\n\nHi", [("content", "Hi")]),
        ],
    )
    def test_a_prompt_that_opens_them(self, text: str, parts: list[Part]) -> None:
        assert read(None, text, reasoning=TAGS, starts=True) == parts

    @pytest.mark.parametrize(
        ("text", "parts"),
        [
            ("<think>Hm.</think><response>Hi</response>", [("reasoning", "Hm."), ("content", "Hi")]),
            ("<think>Hm.</think>\n<response>\nHi\n</response>\n", [("reasoning", "Hm."), ("content", "Hi")]),
            ("<think>Hm.</think>Hi</response>", [("reasoning", "Hm."), ("content", "Hi</response>")]),
            ("<think>Hm.</think><response>Hi </resp", [("reasoning", "Hm."), ("content", "Hi </resp")]),
            ("<response>Hi</response>", [("content", "<response>Hi</response>")]),
        ],
    )
    def test_marks_around_the_answer(self, text: str, parts: list[Part]) -> None:
        assert read(None, text, reasoning=WRAPPED) == parts

    def test_a_call_within_them(self) -> None:
        text = "<think>Hm.</think><response>" + FORMS["granite"].write([ROME]) + "</response>"
        assert read(FORMS["granite"], text, reasoning=WRAPPED) == [("reasoning", "Hm."), WEATHER]


class TestXmlValues:
    FORM = FORMS["qwen-xml"]

    @pytest.mark.parametrize(
        ("written", "value"),
        [
            ("\nRome\n", "Rome"),
            ("Rome", "Rome"),
            ("\n\nRome\n\n", "\nRome\n"),
            ("\n 7 \n", " 7 "),
            ("\n\n", ""),
            ("", ""),
            ('\n"Rome"\n', '"Rome"'),
            ("\n<b>\\n</b>\n", "<b>\\n</b>"),
            ("\n</param\n", "</param"),
        ],
    )
    def test_texts_are_as_they_stand(self, written: str, value: str) -> None:
        text = f"<tool_call>\n<function=weather>\n<parameter=city>{written}</parameter>\n</function>\n</tool_call>"
        assert calls_in(read(self.FORM, text)) == [("weather", {"city": value})]

    @pytest.mark.parametrize(
        ("key", "written", "value"),
        [
            ("days", "\n3\n", 3),
            ("days", "\nthree\n", "three"),
            ("pinned", "\nTrue\n", True),
            ("pinned", "\nnull\n", None),
            ("pinned", "\nNone\n", None),
            ("place", '\n{"x": 1}\n', {"x": 1}),
            ("place", '\n{"x": "</parameter>"}\n', {"x": "</parameter>"}),
            ("place", "\n{'x': 1}\n", "{'x': 1}"),
            ("tags", '\n["a", "]</parameter>"]\n', ["a", "]</parameter>"]),
            ("tags", "\n[1\n", "[1"),
            ("days", "\nNaN\n", "NaN"),
            ("else", "\n[1]\n", [1]),
            ("else", "\nInfinity\n", "Infinity"),
            ("else", '\n"\\ud83d"\n', "\ud83d"),
            ("else", "\n\n", ""),
        ],
    )
    def test_others_are_json_if_they_can_be(self, key: str, written: str, value: object) -> None:
        tool = "weather" if key == "days" else "save.note-2"
        text = f"<tool_call><function={tool}><parameter={key}>{written}</parameter></function></tool_call>"
        parts = read(self.FORM, text)
        parts[0][2].encode()
        assert calls_in(parts) == [(tool, {key: value})]

    def test_a_parameter_that_comes_twice_counts_once(self) -> None:
        pair = "<parameter=city>\nRome\n</parameter>\n<parameter=city>\nOslo\n</parameter>\n"
        assert calls_in(read(self.FORM, f"<tool_call><function=weather>{pair}</function></tool_call>")) == [ROME]


def test_pieces_come_as_soon_as_they_are_certain() -> None:
    parser = ReplyParser(FORMS["hermes"].tool_format, TAGS, tools=TOOLS)
    assert parser.push("<thi") == []
    assert [delta.text for delta in parser.push("nk>Hm")] == ["Hm"]
    assert parser.push("</think>") == []
    assert [delta.text for delta in parser.push("\nHi <to")] == ["Hi"]
    assert [delta.text for delta in parser.push("y>")] == [" <toy>"]
    assert parser.push('\n<tool_call>{"name": "weather"') == []
    assert parser.push(', "arguments": ') == []
    start, *arguments = parser.push('{"ci')
    assert start.name == "weather"
    assert "".join(delta.text for delta in arguments) == '{"ci'
    parser.push('ty": "Rome"}}</tool_call>')
    assert parser.finish() == []
