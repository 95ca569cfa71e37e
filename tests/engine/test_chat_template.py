import datetime
import json
import os
import pickle
from pathlib import Path

import jinja2
import pytest
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

from localspec.engine.chat_template import MAX_SOURCE, ChatTemplate
from localspec.engine.requests import Message
from localspec.errors import ChatTemplateError, UsageError

OWN_TEMPLATES = Path(__file__).parents[1] / "data" / "chat_templates"
PUBLISHED_TEMPLATES = os.environ.get("CHAT_TEMPLATES_DIR")

SYSTEM = Message("system", " Be brief. ")
CHAT = [SYSTEM, Message("user", " Hi <b>! "), Message("assistant", "Hello & you."), Message("user", "Bye")]

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Says <whether> it rains in Århus",
            "parameters": {
                "type": "object",
                "properties": {
                    "day": {"type": "string", "description": "a day"},
                    "hours": {"type": ["integer", "null"]},
                },
                "required": ["day"],
            },
        },
    }
]


def template(source: str) -> ChatTemplate:
    return ChatTemplate(source, bos_token="<s>", eos_token="</s>")


def own(name: str) -> ChatTemplate:
    return template((OWN_TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8"))


def rendered(source: str, *messages: Message, **extra: object) -> str:
    return template(source).render(messages or [Message("user", "hi")], extra=extra)


def error_of(source: str, *messages: Message) -> ChatTemplateError:
    with pytest.raises(ChatTemplateError) as caught:
        rendered(source, *messages)
    assert caught.value.hint
    return pickle.loads(pickle.dumps(caught.value))


# --- what the formats demand ------------------------------------------------------------------------------------------


def test_chatml_fallback() -> None:
    assert ChatTemplate.fallback().render(CHAT) == (
        "<|im_start|>system\n Be brief. <|im_end|>\n<|im_start|>user\n Hi <b>! <|im_end|>\n"
        "<|im_start|>assistant\nHello & you.<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n"
    )


def test_turns_without_a_system_role_get_the_system_text_in_the_first_user_turn() -> None:
    assert own("turns").render(CHAT) == (
        "<s><start_of_turn>user\nBe brief. \n\n Hi <b>!<end_of_turn>\n"
        "<start_of_turn>model\nHello & you.<end_of_turn>\n<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n"
    )


def test_generation_prompt_can_be_left_out() -> None:
    assert own("turns").render(CHAT[1:3], add_generation_prompt=False) == (
        "<s><start_of_turn>user\nHi <b>!<end_of_turn>\n<start_of_turn>model\nHello & you.<end_of_turn>\n"
    )


def test_inst_keeps_its_own_place_for_the_system_text() -> None:
    assert own("inst").render(CHAT) == "<s>[INST] Hi <b>! [/INST]Hello & you.</s>[INST] Be brief. \n\nBye[/INST]"


def test_headers_with_a_given_date_and_with_todays() -> None:
    text = own("headers").render(CHAT[1:2], extra={"date_string": "26 Jul 2024"})
    assert text == (
        "<s><|start_header_id|>system<|end_header_id|>\n\nToday Date: 26 Jul 2024\n\n<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nHi <b>!<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    )
    before = datetime.datetime.now().astimezone()
    text = own("headers").render(CHAT)
    after = datetime.datetime.now().astimezone()
    assert any(f"Today Date: {now:%d %b %Y}\n\nBe brief.<|eot_id|>" in text for now in (before, after))


def test_tools_are_written_as_plain_json() -> None:
    text = own("headers").render(CHAT, extra={"date_string": "x", "tools": TOOLS})
    assert f"\n\n{json.dumps(TOOLS[0], indent=4, ensure_ascii=False)}\n\nBe brief." in text
    assert "<whether>" in text
    assert "Århus" in text


def test_thinking_is_dropped_from_earlier_turns_and_can_be_switched_off() -> None:
    chat = [Message("user", "1"), Message("assistant", "<think>\nhm\n</think>\n\nyes"), Message("user", "2")]
    assert own("thinking").render(chat, extra={"enable_thinking": False}) == (
        "<|im_start|>user\n1<|im_end|>\n<|im_start|>assistant\nyes<|im_end|>\n<|im_start|>user\n2<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )
    assert (
        own("thinking")
        .render(chat[:2], add_generation_prompt=False)
        .endswith("<think>\nhm\n</think>\n\nyes<|im_end|>\n")
    )


def test_loop_controls_generation_blocks_and_call_blocks() -> None:
    chat = [
        Message("user", "a"),
        Message("user", "b"),
        Message("tool", "unseen"),
        Message("assistant", "c"),
        Message("user", "stop here"),
        Message("user", "unseen"),
    ]
    text = own("loops").render(chat)
    assert text.replace("\n", "") == (
        "<user>a</user>+<user>b</user><assistant>c</assistant><user>stop here</user><assistant>"
    )


# --- agreement with plain Jinja as transformers sets it up ------------------------------------------------------------


class GenerationTag(Extension):
    tags = frozenset({"generation"})

    def parse(self, parser: jinja2.parser.Parser) -> nodes.Node:
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_inside"), [], [], body).set_lineno(lineno)

    def _inside(self, caller: object) -> object:
        return caller()


def plain_jinja(source: str, **variables: object) -> str:
    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    def tojson(value: object, ensure_ascii=False, indent=None, separators=None, sort_keys=False) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", GenerationTag]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda layout: datetime.datetime.now().strftime(layout)
    return environment.from_string(source).render(variables)


def assert_agrees(source: str) -> int:
    """Every conversation that plain Jinja renders comes out the same; returns how many those were."""
    chats = [CHAT, CHAT[1:], CHAT[1:2], [SYSTEM, CHAT[1]], [CHAT[1], Message("assistant", "<think>\na\n</think>\n\nb")]]
    n_rendered = 0
    for chat in chats:
        for extra in (
            {"date_string": "d"},
            {"enable_thinking": False},
            {"tools": TOOLS, "tools_in_user_message": False},
        ):
            for add_generation_prompt in (True, False):
                variables = {
                    "messages": [{"role": message.role, "content": message.content} for message in chat],
                    "add_generation_prompt": add_generation_prompt,
                    "bos_token": "<s>",
                    "eos_token": "</s>",
                    **extra,
                }
                try:
                    expected = plain_jinja(source, **variables)
                except (jinja2.TemplateError, TypeError, RecursionError):
                    continue
                text = template(source).render(chat, add_generation_prompt=add_generation_prompt, extra=extra)
                assert text == expected
                n_rendered += 1
    return n_rendered


@pytest.mark.parametrize("name", ["turns", "inst", "headers", "thinking", "loops"])
def test_own_templates_agree_with_plain_jinja(name: str) -> None:
    assert assert_agrees((OWN_TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")) >= 6


CHATML_END = (
    "<|im_start|>user\n Hi <b>! <|im_end|>\n<|im_start|>assistant\nHello & you.<|im_end|>\n"
    "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n"
)

# What each format demands for CHAT, from the first turn on (or from the system text on, where it is short).
PUBLISHED_ENDS = {
    "HuggingFaceTB-SmolLM3-3B": " Be brief.\n\n<|im_end|>\n" + CHATML_END,
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": "<|im_start|>system\n Be brief. <|im_end|>\n" + CHATML_END,
    "Qwen-Qwen2.5-7B-Instruct": "<|im_start|>system\n Be brief. <|im_end|>\n" + CHATML_END,
    "Qwen-Qwen3-0.6B": "<|im_start|>system\n Be brief. <|im_end|>\n" + CHATML_END,
    "Qwen3-Coder": "<|im_start|>system\n Be brief. <|im_end|>\n" + CHATML_END,
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": (
        "<s> Be brief. <｜User｜> Hi <b>! <｜Assistant｜>Hello & you.<｜end▁of▁sentence｜>"
        "<｜User｜>Bye<｜Assistant｜><think>\n</think>"
    ),
    "google-gemma-2-2b-it": (
        "<s><start_of_turn>user\nBe brief. \n\n Hi <b>!<end_of_turn>\n<start_of_turn>model\nHello & you.<end_of_turn>\n"
        "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n"
    ),
    "ibm-granite-granite-3.3-2B-Instruct": (
        "<|start_of_role|>system<|end_of_role|> Be brief. <|end_of_text|>\n<|start_of_role|>user<|end_of_role|> Hi "
        "<b>! <|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>Hello & you.<|end_of_text|>\n"
        "<|start_of_role|>user<|end_of_role|>Bye<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>"
    ),
    "meta-llama-Llama-3.2-3B-Instruct": (
        "\n\nBe brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi <b>!<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nHello & you.<|eot_id|><|start_header_id|>user"
        "<|end_header_id|>\n\nBye<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    ),
    "microsoft-Phi-3.5-mini-instruct": (
        "<|system|>\n Be brief. <|end|>\n<|user|>\n Hi <b>! <|end|>\n<|assistant|>\nHello & you.<|end|>\n"
        "<|user|>\nBye<|end|>\n<|assistant|>\n"
    ),
    "mistralai-Mistral-Nemo-Instruct-2407": "<s>[INST] Hi <b>! [/INST]Hello & you.</s>[INST] Be brief. \n\nBye[/INST]",
    "openai-gpt-oss-120b": (
        "<|start|>developer<|message|># Instructions\n\n Be brief. \n\n<|end|><|start|>user<|message|> Hi <b>! <|end|>"
        "<|start|>assistant<|channel|>final<|message|>Hello & you.<|end|>"
        "<|start|>user<|message|>Bye<|end|><|start|>assistant"
    ),
}


@pytest.mark.skipif(PUBLISHED_TEMPLATES is None, reason="CHAT_TEMPLATES_DIR names no folder of published templates")
def test_published_templates() -> None:
    paths = sorted(Path(PUBLISHED_TEMPLATES or "").glob("*.jinja"))
    assert paths
    for path in paths:
        source = path.read_text(encoding="utf-8")
        assert_agrees(source)
        assert template(source).render(CHAT).endswith(PUBLISHED_ENDS.get(path.stem, ""))


EXPRESSIONS = [
    "{{ [1, 2, 3] | map('string') | join('-') }}",
    "{{ messages | map(attribute='role') | list | tojson }}",
    "{{ 'a-b'.split('-') | last ~ 1 ~ none ~ missing }}",
    "{% for x in [3, 1, 2] | sort %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ ',' if not loop.last }}{% endfor %}",
    "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in {'b': 1, 'a': 2} | dictsort %}{{ k }}={{ v }};{% else %}none{% endfor %}",
    "{% set x %}text{% endset %}{{ x | upper }}{% filter lower %}LOUD{% endfilter %}",
    "{% for x in [[1], [2, [3]]] recursive %}{{ loop(x) if x is iterable else x }}.{% endfor %}",
    "{{ '%s and %03d' % ('x', 7) }} {{ '{} {a:>4}'.format('y', a=1) }} {{ 'n: %s' | format(3) }}",
    "{{ 7 // 2 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ -7 % 3 }} {{ 'ab' * 3 }} {{ [0] * 2 }} {{ 1.26 | round(1) }}",
    "{{ range(2, 8, 3) | list }} {{ range(3) | sum }} {{ 'x' | indent(2, true) }} {{ ' t ' | trim }}|",
    "{{ 'aXbX' | replace('X', '-', 1) }} {{ 'aXb'.replace('X', '--') }} {{ '-'.join(['a', 'b']) }}",
    "{{ 'x,' | trim(',') }}",
    "{% macro m(a, b='d') %}{{ a }}{{ b }}{{ varargs | length }}{% endmacro %}{{ m(1) }}{{ m(1, 2, 3) }}",
    "{% set ns = namespace(n=0) %}{% for _ in range(4) %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
    "{{ {'é': ['<', none, true, 1.5]} | tojson }} {{ [1] | tojson(indent=2) }} {{ '<&' | e }} {{ ('<' | safe) ~ '&' }}",
    "{{ messages[0].role is defined }} {{ messages[0].nothing is defined }} {{ messages[0].nothing }} {{ 3 is odd }}",
    "{{ 1 in [1, 2] }} {{ 'a' not in 'b' }} {{ 1 < 2 < 3 }} {{ (1, 2) == (1, 2) }} {{ 'a' if false }}",
    "{% set j = joiner('|') %}{{ j() }}1{{ j() }}2 {{ cycler('o', 'e').next() }} {{ dict(a=1)['a'] }}",
    "  {% if true %}\n  kept\n  {% endif %}\n{# gone #}\nend\n",
]


@pytest.mark.parametrize("source", EXPRESSIONS)
def test_what_a_template_may_use_means_what_it_means_in_jinja(source: str) -> None:
    expected = plain_jinja(source, messages=[{"role": "user", "content": "hi"}])
    assert expected.strip()
    assert rendered(source) == expected


# --- undefined values and refusals ------------------------------------------------------------------------------------


def test_undefined_prints_nothing_and_has_no_attributes() -> None:
    assert rendered("[{{ missing }}{{ messages[0].missing }}]{% for x in missing %}x{% endfor %}") == "[]"
    error = error_of("line one\n{{ missing.attribute }}")
    assert "line 2" in error.message
    assert "'missing' is undefined" in error.message


def test_refusal_comes_in_the_templates_own_words() -> None:
    error = error_of(
        (OWN_TEMPLATES / "turns.jinja").read_text(encoding="utf-8"), Message("user", "a"), Message("user", "b")
    )
    assert '"Turns must alternate: user, assistant, user ..."' in error.message


def test_after_merging_the_system_text_the_second_refusal_is_the_one_that_helps() -> None:
    chat = [SYSTEM, Message("user", "a"), Message("user", "b")]
    with pytest.raises(ChatTemplateError, match="Turns must alternate"):
        own("turns").render(chat)


def test_a_system_message_alone_cannot_be_merged() -> None:
    with pytest.raises(ChatTemplateError, match="No system role here"):
        own("turns").render([SYSTEM])


def test_only_a_refusal_is_retried() -> None:
    source = "{% if messages[0].role == 'system' %}{{ missing.attribute }}{% endif %}merged"
    assert "is undefined" in error_of(source, SYSTEM, Message("user", "a")).message


def test_a_refusal_cannot_write_to_the_terminal_as_it_likes() -> None:
    error = error_of("{{ raise_exception('\x1b[2J\x07' ~ 'a' * 5000) }}")
    assert error.message.isprintable()
    assert len(error.message) < 600


@pytest.mark.parametrize(
    ("source", "line"),
    [("ok\n{% if %}", 2), ("{{ 1 +\n\n}}", 3), ("\n\n{% endfor %}", 3), ("{{ 'a' | urlize }}", 1), ("{{ '", 1)],
)
def test_broken_source_names_the_line(source: str, line: int) -> None:
    error = error_of(source)
    assert "not valid Jinja" in error.message
    assert f"line {line}:" in error.message


def test_too_long_a_source_and_too_long_a_chat() -> None:
    assert f"{MAX_SOURCE + 1:,} characters" in error_of("a" * (MAX_SOURCE + 1)).message
    with pytest.raises(UsageError, match="3,000,000 characters"):
        template("{{ messages[0].content }}").render([Message("user", "a" * 3_000_000)])


def test_a_long_chat_is_no_flood() -> None:
    chat = [SYSTEM] + [Message(role, "text " * 400) for _ in range(250) for role in ("user", "assistant")]
    for name in ("turns", "inst", "headers", "thinking", "loops"):
        assert own(name).render(chat).count("text text") == 500 * 200
