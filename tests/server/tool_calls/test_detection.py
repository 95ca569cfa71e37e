"""The form and the reasoning that a chat template teaches, seen in its text."""

from __future__ import annotations

import pytest

from localspec.server.reasoning import CHANNELS, reasoning_of
from localspec.server.tool_calls import markers_of, tool_format_of
from tests.server.tool_calls.forms import FORMS, TAGS
from tests.server.tool_calls.templates import PUBLISHED, SIGNS, needs_published, published


@pytest.mark.parametrize("name", FORMS)
def test_signs(name: str) -> None:
    assert tool_format_of(SIGNS[name]) == FORMS[name].tool_format or tool_format_of(SIGNS[name]).name == name


@pytest.mark.parametrize("source", [None, "", "{{ messages }}", "<tool_call> [TOOL_CALLS]", "{{ tools }}"])
def test_other_templates_get_the_generic_form(source: str | None) -> None:
    assert tool_format_of(source).name == "generic"


@needs_published
@pytest.mark.parametrize("template", PUBLISHED)
def test_published_templates(template: str) -> None:
    name, opening = PUBLISHED[template]
    source = published(template)
    assert tool_format_of(source).name == name
    reasoning = reasoning_of(source)
    assert (reasoning and reasoning.opening) == opening
    if "granite" in template:
        assert reasoning is not None
        assert reasoning.answer == ("<response>", "</response>")


@pytest.mark.parametrize(
    ("source", "opening"),
    [
        (None, None),
        ("{{ messages }} thinks", None),
        ("<think>\n{{ thought }}\n</think>", "<think>"),
        ("{{ content.split('</think>') }}", "<think>"),
        ("[THINK]{{ thought }}[/THINK]", "[THINK]"),
        ("<|START_THINKING|>", "<|START_THINKING|>"),
        ("<seed:think>", "<seed:think>"),
        ("Here is my thought process: ... Here is my response:", "Here is my thought process:"),
        ("<|channel|>final<|message|><think>", CHANNELS.opening),
    ],
)
def test_reasoning(source: str | None, opening: str | None) -> None:
    reasoning = reasoning_of(source)
    assert (reasoning and reasoning.opening) == opening


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("<|im_start|>assistant\n<think>\n", True),
        ("<|im_start|>assistant\n<think>", True),
        ("<think>\n\n</think>\n\n", False),
        ("<|im_start|>assistant\n", False),
        ("", False),
    ],
)
def test_a_prompt_that_ends_in_reasoning(prompt: str, expected: bool) -> None:
    assert TAGS.starts_in(prompt) == expected


def test_markers_of_form_and_reasoning() -> None:
    assert markers_of(None, None) == ()
    assert markers_of(FORMS["hermes"].tool_format, TAGS) == ("<tool_call>", "</tool_call>", "<think>", "</think>")
    assert markers_of(FORMS["harmony"].tool_format, CHANNELS) == CHANNELS.markers
    assert markers_of(FORMS["generic"].tool_format, None) == ()


@pytest.mark.parametrize("name", FORMS)
def test_whatever_opens_a_call_is_text_of_the_reply(name: str) -> None:
    """A control token that is no marker would not be seen; tags that are written out in letters need none."""
    tool_format = FORMS[name].tool_format
    assert name == "generic" or {each for each in tool_format.openings if each != "<function="} <= {
        *tool_format.markers
    }
