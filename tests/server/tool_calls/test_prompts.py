"""Conversations with earlier calls and their results, as each form's templates read them."""

from __future__ import annotations

import json
import re

import pytest

from localspec.engine.requests import Message
from localspec.errors import UsageError
from localspec.server.tool_calls import CallMode, ToolChoice
from tests.server.tool_calls.forms import FORMS, TOOLS, read
from tests.server.tool_calls.templates import (
    asks,
    calls,
    needs_published,
    published,
    render,
    result,
    roles,
    turns_of,
)

AUTO = ToolChoice()
# Two calls at once, then one more, then the answer, and on.
TALK = (
    Message("system", "Be brief."),
    asks("Rome and Oslo?"),
    calls(("call_1", "weather", '{"city": "Rome"}'), ("call_2", "weather", '{"city": "Oslo", "days": 2}')),
    result("call_1", "sunny"),
    result("call_2", '{"snow": true}'),
    calls(("call_3", "ping", "")),
    result("call_3", "pong"),
    Message("assistant", "Sun and snow."),
    asks("Thanks"),
)
# It ends with a result.
SHORT = TALK[1:7]


class TestTurns:
    @pytest.mark.parametrize("name", FORMS)
    def test_tools_are_offered_unless_none_may_be_called(self, name: str) -> None:
        tool_format = FORMS[name].tool_format
        offered = tool_format.chat_prompt(TALK, TOOLS, AUTO, {"a": 1})
        assert offered.variables == {"a": 1}
        told = json.dumps([turns_of(offered), list(offered.tools)])
        assert all(f'"{tool["function"]["name"]}"' in told.replace("\\", "") for tool in TOOLS)
        none = tool_format.chat_prompt(TALK[1:2], TOOLS, ToolChoice(CallMode.NONE))
        assert none.tools == ()
        assert turns_of(none) == [{"role": "user", "content": "Rome and Oslo?"}]

    @pytest.mark.parametrize("name", FORMS)
    def test_one_that_must_be_called_does_not_hide_the_others(self, name: str) -> None:
        choices = (AUTO, ToolChoice(CallMode.REQUIRED), ToolChoice(CallMode.REQUIRED, ("ping",)))
        prompts = [FORMS[name].tool_format.chat_prompt(TALK, TOOLS, choice) for choice in choices]
        assert prompts[0] == prompts[1] == prompts[2]

    @pytest.mark.parametrize("name", ["hermes", "mistral", "mistral-args", "qwen-xml"])
    def test_arguments_are_objects(self, name: str) -> None:
        turns = turns_of(FORMS[name].tool_format.chat_prompt(TALK, TOOLS, AUTO))
        functions = [call["function"] for turn in turns for call in turn.get("tool_calls", ())]
        assert [function["arguments"] for function in functions] == [{"city": "Rome"}, {"city": "Oslo", "days": 2}, {}]
        assert [turn["role"] for turn in turns] == roles(TALK)

    @pytest.mark.parametrize("name", ["llama3", "harmony"])
    def test_one_call_a_turn(self, name: str) -> None:
        """Each is followed by its own result, whatever the order in which they came."""
        swapped = (*TALK[:3], TALK[4], TALK[3], *TALK[5:])
        for talk in (TALK, swapped):
            turns = turns_of(FORMS[name].tool_format.chat_prompt(talk, TOOLS, AUTO))
            assert [turn["role"] for turn in turns[2:6]] == ["assistant", "tool", "assistant", "tool"]
            assert [[call["id"] for call in turn["tool_calls"]] for turn in turns[2:6:2]] == [["call_1"], ["call_2"]]
            assert [turn["content"] for turn in turns[3:6:2]] == ["sunny", '{"snow": true}']
            assert [turn["role"] for turn in turns[6:]] == roles(TALK[5:])

    @pytest.mark.parametrize("name", ["llama3", "harmony"])
    def test_a_result_of_no_call_is_kept(self, name: str) -> None:
        talk = (*TALK[1:5], result("call_9", "lost"), TALK[8])
        turns = turns_of(FORMS[name].tool_format.chat_prompt(talk, TOOLS, AUTO))
        assert [turn["content"] for turn in turns if turn["role"] == "tool"] == ["sunny", '{"snow": true}', "lost"]

    @pytest.mark.parametrize("name", ["mistral", "mistral-args"])
    def test_ids_of_nine_letters_and_digits(self, name: str) -> None:
        talk = (*TALK[:3], *TALK[3:7], calls(("abcDEF123", "ping", "{}")), result("abcDEF123", "pong"))
        turns = turns_of(FORMS[name].tool_format.chat_prompt(talk, TOOLS, AUTO))
        made = [call["id"] for turn in turns for call in turn.get("tool_calls", ())]
        assert all(re.fullmatch("[A-Za-z0-9]{9}", each) for each in made)
        assert len({*made}) == 4
        assert made[3] == "abcDEF123"
        assert [turn["tool_call_id"] for turn in turns if turn["role"] == "tool"] == made

    def test_granite_gets_roles_and_contents(self) -> None:
        turns = turns_of(FORMS["granite"].tool_format.chat_prompt(TALK, TOOLS, AUTO))
        assert all(turn.keys() == {"role", "content"} for turn in turns)
        assert [turn["role"] for turn in turns[2:5]] == ["assistant", "tool_response", "tool_response"]
        # Read as the calls that they were.
        parts = read(FORMS["granite"], turns[2]["content"])
        assert parts == [("call", "weather", '{"city": "Rome"}'), ("call", "weather", '{"city": "Oslo", "days": 2}')]

    def test_the_generic_form_writes_everything_out(self) -> None:
        turns = turns_of(FORMS["generic"].tool_format.chat_prompt(TALK, TOOLS, AUTO))
        assert all(turn.keys() == {"role", "content"} for turn in turns)
        assert [turn["role"] for turn in turns] == [
            *("system", "user", "assistant", "user", "assistant", "user", "assistant", "user")
        ]
        assert turns[0]["content"].startswith("Be brief.\n\n# Tools")
        assert [name for _, name, _ in read(FORMS["generic"], turns[2]["content"])] == ["weather", "weather"]
        assert turns[3]["content"].count("<tool_response>") == 2
        unled = turns_of(FORMS["generic"].tool_format.chat_prompt(TALK[1:2], TOOLS, AUTO))
        assert [turn["role"] for turn in unled] == ["system", "user"]

    def test_thoughts_of_harmony(self) -> None:
        talk = (asks("Rome?"), calls(("a", "ping", "{}"), content="Let me look.", reasoning_content="Hm."))
        turns = turns_of(FORMS["harmony"].tool_format.chat_prompt(talk, TOOLS, AUTO))
        assert turns[1] == {"role": "assistant", "content": "Let me look."}
        assert (turns[2]["content"], turns[2]["thinking"]) == ("", "Hm.")

    @pytest.mark.parametrize("name", FORMS)
    @pytest.mark.parametrize("arguments", [None, "", "{", "[1]", '"x"', 7, {"city": "Rome"}, "NaN", "[" * 100_000])
    def test_arguments_that_are_anything(self, name: str, arguments: object) -> None:
        """A conversation goes on, whatever a model once wrote."""
        talk = (asks("Rome?"), calls(("a", "weather", arguments)), result("a", "sunny"))
        prompt = FORMS[name].tool_format.chat_prompt(talk, TOOLS, AUTO)
        for turn in turns_of(prompt):
            for call in turn.get("tool_calls", ()):
                assert isinstance(call["function"]["arguments"], dict)
                assert call["function"]["arguments"] or not arguments

    @pytest.mark.parametrize("name", FORMS)
    @pytest.mark.parametrize(
        "listed", [7, "calls", [7], [{}], [{"function": {}}], [{"function": {"name": 7}}], {"a": 1}]
    )
    def test_calls_that_are_none(self, name: str, listed: object) -> None:
        with pytest.raises(UsageError, match=r"tool.call"):
            FORMS[name].tool_format.chat_prompt((Message("assistant", "", {"tool_calls": listed}),), TOOLS, AUTO)


def prompt_text(template: str, form: str, talk: tuple[Message, ...], **variables: object) -> str:
    # The published template of Hermes 3 recurses without end over the type "null".
    tools = TOOLS if "Hermes-3" not in template else TOOLS[::2]
    return render(published(template), FORMS[form].tool_format.chat_prompt(talk, tools, AUTO, variables))


@needs_published
class TestPublishedTemplates:
    """The words of the formats themselves."""

    @pytest.mark.parametrize("template", ["Qwen-Qwen2.5-7B-Instruct", "Qwen-Qwen3-0.6B"])
    def test_qwen(self, template: str) -> None:
        text = prompt_text(template, "hermes", TALK)
        assert text.endswith(
            "<|im_start|>user\nRome and Oslo?<|im_end|>\n"
            '<|im_start|>assistant\n<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>\n'
            '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo", "days": 2}}\n</tool_call><|im_end|>\n'
            "<|im_start|>user\n<tool_response>\nsunny\n</tool_response>\n"
            '<tool_response>\n{"snow": true}\n</tool_response><|im_end|>\n'
            '<|im_start|>assistant\n<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call><|im_end|>\n'
            "<|im_start|>user\n<tool_response>\npong\n</tool_response><|im_end|>\n"
            "<|im_start|>assistant\nSun and snow.<|im_end|>\n<|im_start|>user\nThanks<|im_end|>\n"
            "<|im_start|>assistant\n"
        )
        assert '{"type": "function", "function": {"name": "weather", "description": "Tells the weather"' in text

    def test_hermes(self) -> None:
        text = prompt_text("NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "hermes", SHORT)
        assert text.endswith(
            '<|im_start|>assistant\n<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>\n'
            '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo", "days": 2}}\n</tool_call><|im_end|>\n'
            "<|im_start|>tool\n<tool_response>\nsunny\n</tool_response>\n"
            '<tool_response>\n{"snow": true}\n</tool_response>\n<|im_end|>'
            '<|im_start|>assistant\n<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call><|im_end|>\n'
            "<|im_start|>tool\n<tool_response>\npong\n</tool_response><|im_end|><|im_start|>assistant\n"
        )

    def test_qwen_coder(self) -> None:
        text = prompt_text("Qwen3-Coder", "qwen-xml", SHORT)
        assert text.endswith(
            "<|im_start|>assistant\n<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n"
            "</function>\n</tool_call>\n<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n"
            "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call><|im_end|>\n"
            "<|im_start|>user\n<tool_response>\nsunny\n</tool_response>\n"
            '<tool_response>\n{"snow": true}\n</tool_response>\n<|im_end|>\n'
            "<|im_start|>assistant\n<tool_call>\n<function=ping>\n</function>\n</tool_call><|im_end|>\n"
            "<|im_start|>user\n<tool_response>\npong\n</tool_response>\n<|im_end|>\n<|im_start|>assistant\n"
        )

    def test_llama(self) -> None:
        text = prompt_text("meta-llama-Llama-3.2-3B-Instruct", "llama3", SHORT)
        head = "<|start_header_id|>{}<|end_header_id|>\n\n"
        assistant, ipython = head.format("assistant"), head.format("ipython")
        assert text.endswith(
            f'{assistant}{{"name": "weather", "parameters": {{"city": "Rome"}}}}<|eot_id|>{ipython}"sunny"<|eot_id|>'
            f'{assistant}{{"name": "weather", "parameters": {{"city": "Oslo", "days": 2}}}}<|eot_id|>'
            f'{ipython}"{{\\"snow\\": true}}"<|eot_id|>'
            f'{assistant}{{"name": "ping", "parameters": {{}}}}<|eot_id|>{ipython}"pong"<|eot_id|>{assistant}'
        )
        assert "Given the following functions" in text

    def test_mistral(self) -> None:
        text = prompt_text("mistralai-Mistral-Nemo-Instruct-2407", "mistral", TALK)
        made = re.findall(r'"id": "([A-Za-z0-9]{9})"', text)
        assert len({*made}) == 3
        assert text.startswith("<s>[INST]Rome and Oslo?[/INST]")
        assert re.sub('[A-Za-z0-9]{9}(?="})', "ID", text).endswith(
            '[/INST][TOOL_CALLS][{"name": "weather", "arguments": {"city": "Rome"}, "id": "ID"}, '
            '{"name": "weather", "arguments": {"city": "Oslo", "days": 2}, "id": "ID"}]</s>'
            '[TOOL_RESULTS]{"content": sunny, "call_id": "ID"}[/TOOL_RESULTS]'
            '[TOOL_RESULTS]{"content": {"snow": true}, "call_id": "ID"}[/TOOL_RESULTS]'
            '[TOOL_CALLS][{"name": "ping", "arguments": {}, "id": "ID"}]</s>'
            '[TOOL_RESULTS]{"content": pong, "call_id": "ID"}[/TOOL_RESULTS]Sun and snow.</s>'
            + text[text.index("[AVAILABLE_TOOLS]") :]
        )
        assert text.endswith("[/AVAILABLE_TOOLS][INST]Be brief.\n\nThanks[/INST]")

    def test_granite(self) -> None:
        text = prompt_text("ibm-granite-granite-3.3-2B-Instruct", "granite", SHORT)
        role = "<|start_of_role|>{}<|end_of_role|>"
        end = "<|end_of_text|>\n"
        assert text.endswith(
            role.format("assistant") + '<|tool_call|>[{"name": "weather", "arguments": {"city": "Rome"}}, '
            '{"name": "weather", "arguments": {"city": "Oslo", "days": 2}}]'
            + end
            + role.format("tool_response")
            + "sunny"
            + end
            + role.format("tool_response")
            + '{"snow": true}'
            + end
            + role.format("assistant")
            + '<|tool_call|>[{"name": "ping", "arguments": {}}]'
            + end
            + role.format("tool_response")
            + "pong"
            + end
            + role.format("assistant")
        )
        assert role.format("available_tools") + "[\n    {" in text

    def test_gpt_oss(self) -> None:
        talk = (
            *SHORT[:1],
            calls(("a", "weather", '{"city": "Rome"}'), reasoning_content="Rome."),
            result("a", "sunny"),
        )
        text = prompt_text("openai-gpt-oss-120b", "harmony", talk)
        assert text.endswith(
            "<|start|>user<|message|>Rome and Oslo?<|end|>"
            "<|start|>assistant<|channel|>analysis<|message|>Rome.<|end|>"
            '<|start|>assistant to=functions.weather<|channel|>commentary json<|message|>{"city": "Rome"}<|call|>'
            '<|start|>functions.weather to=assistant<|channel|>commentary<|message|>"sunny"<|end|><|start|>assistant'
        )
        assert "namespace functions {" in text
        several = prompt_text("openai-gpt-oss-120b", "harmony", TALK)
        assert several.count("<|start|>assistant to=functions.") == several.count("<|start|>functions.") == 3

    @pytest.mark.parametrize(
        "template",
        [
            "HuggingFaceTB-SmolLM3-3B",
            "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
            "google-gemma-2-2b-it",
            "microsoft-Phi-3.5-mini-instruct",
        ],
    )
    def test_templates_without_tools(self, template: str) -> None:
        text = prompt_text(template, "generic", TALK)
        call = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
        words = ("Be brief.", "# Tools", call, "<tool_response>\nsunny\n</tool_response>", "Sun and snow.", "Thanks")
        places = [text.index(each) for each in words]
        assert places == sorted(places)

    def test_a_prompt_that_opens_reasoning(self) -> None:
        from localspec.server.reasoning import reasoning_of

        for template, variables, expected in (
            ("Qwen-Qwen3-0.6B", {}, False),
            ("Qwen-Qwen3-0.6B", {"enable_thinking": False}, False),
            ("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", {"enable_thinking": True}, True),
            ("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", {"enable_thinking": False}, False),
        ):
            reasoning = reasoning_of(published(template))
            assert reasoning is not None
            assert reasoning.starts_in(prompt_text(template, "generic", TALK[1:2], **variables)) == expected, template
