"""Chat templates: the signs by which each form is known, and the published ones where there is a folder of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from localspec.engine.chat_template import ChatTemplate
from localspec.engine.requests import ChatPrompt, Message

_PUBLISHED = os.environ.get("CHAT_TEMPLATES_DIR")
needs_published = pytest.mark.skipif(_PUBLISHED is None, reason="CHAT_TEMPLATES_DIR names no folder of templates")

# Form -> what a template that teaches it holds, in short.
SIGNS = {
    "hermes": "{% if tools %}<tool_call>\n{}\n</tool_call>{% endif %}",
    "llama3": '<|start_header_id|>{% if tools %}{"name": function name, "parameters": dictionary}{% endif %}',
    "mistral": "[AVAILABLE_TOOLS]{{ tools }}[/AVAILABLE_TOOLS][TOOL_CALLS][",
    "mistral-args": "{{ tools }}[TOOL_CALLS]{{ name }}[ARGS]",
    "granite": "<|start_of_role|>available_tools<|end_of_role|>{{ tools }}<|tool_call|>",
    "harmony": "<|start|>assistant<|channel|>commentary<|message|>{{ tools }}",
    "qwen-xml": "{{ tools }}<tool_call>\n<function=name>\n<parameter=key>\n",
    "generic": "<|im_start|>{{ messages[0].content }}<|im_end|>",
}
# Published template -> its form, and the marks of reasoning.
PUBLISHED = {
    "HuggingFaceTB-SmolLM3-3B": ("generic", "<think>"),
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": ("hermes", None),
    "Qwen-Qwen2.5-7B-Instruct": ("hermes", None),
    "Qwen-Qwen3-0.6B": ("hermes", "<think>"),
    "Qwen3-Coder": ("qwen-xml", None),
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": ("generic", "<think>"),
    "google-gemma-2-2b-it": ("generic", None),
    "ibm-granite-granite-3.3-2B-Instruct": ("granite", "<think>"),
    "meta-llama-Llama-3.2-3B-Instruct": ("llama3", None),
    "microsoft-Phi-3.5-mini-instruct": ("generic", None),
    "mistralai-Mistral-Nemo-Instruct-2407": ("mistral", None),
    "openai-gpt-oss-120b": ("harmony", "<|channel|>analysis<|message|>"),
}


def published(name: str) -> str:
    return (Path(_PUBLISHED or "") / f"{name}.jinja").read_text(encoding="utf-8")


def render(source: str, prompt: ChatPrompt) -> str:
    """As the engine does it."""
    variables: dict[str, Any] = {**prompt.variables, **({"tools": list(prompt.tools)} if prompt.tools else {})}
    return ChatTemplate(source, bos_token="<s>", eos_token="</s>").render(prompt.messages, extra=variables)


def asks(text: str) -> Message:
    return Message("user", text)


def calls(*made: tuple[str, str, Any], content: str = "", **more: Any) -> Message:
    """An assistant's turn as clients send it: id, name and arguments as text."""
    listed = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for call_id, name, arguments in made
    ]
    return Message("assistant", content, {"tool_calls": listed, **more})


def result(call_id: str, content: str) -> Message:
    return Message("tool", content, {"tool_call_id": call_id})


def turns_of(prompt: ChatPrompt) -> list[Mapping[str, Any]]:
    return [{"role": each.role, "content": each.content, **each.more} for each in prompt.messages]


def roles(messages: Sequence[Message]) -> list[str]:
    return [message.role for message in messages]
