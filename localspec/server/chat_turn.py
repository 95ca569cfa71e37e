"""From a chat to what the engine is asked and how its reply is read: template, tools, reasoning, and their grammar.

turn = await chat_turn(service, messages, tools=body.tools, tool_choice=body.tool_choice)
request = GenerateRequest(turn.prompt, turn.constrained(sampling), ...)
parser = turn.parser()                      # one for each choice
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from localspec.engine.questions import Render
from localspec.engine.requests import ChatPrompt, Message, SamplingParams
from localspec.llama.gbnf import literal
from localspec.llama.sampling_params import GrammarSchema
from localspec.server.reasoning import Reasoning, reasoning_of
from localspec.server.service import EngineService
from localspec.server.tool_calls import (
    Constraint,
    ReplyParser,
    ToolChoice,
    ToolFormat,
    markers_of,
    read_tools,
    tool_format_of,
)
from localspec.server.tool_calls.gbnf import until

__all__ = ["ChatTurn", "chat_turn"]


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """The assistant's turn that is asked for.

    `allowed_tools` are those that the reply may call; `starts_in_reasoning`: the prompt ends inside of reasoning. With
    `tells_reasoning` reasoning is told apart from content. `markers`: control tokens whose texts the reply must show.
    """

    prompt: ChatPrompt
    tool_format: ToolFormat
    reasoning: Reasoning | None
    allowed_tools: tuple[Mapping[str, Any], ...]
    starts_in_reasoning: bool
    tells_reasoning: bool
    constraint: Constraint
    markers: tuple[str, ...]

    def constrained(self, sampling: SamplingParams) -> SamplingParams:
        """The request's sampling, with the grammar of its tools; one of its own holds for the answer after reasoning.

        Raises:
            UsageError: it has a grammar or a JSON schema and tools that may be called.
        """
        sampling = self.constraint.applied_to(sampling)
        if sampling.json_schema is None or self.reasoning is None:
            return sampling
        rules = _answer_after(self.reasoning, self.starts_in_reasoning)
        schema = GrammarSchema("answer", "the reply", sampling.json_schema)
        return replace(sampling, json_schema=None, grammar=rules, grammar_schemas=(schema,))

    def parser(self) -> ReplyParser:
        """Reads one reply."""
        return ReplyParser(
            self.tool_format,
            self.reasoning,
            starts_in_reasoning=self.starts_in_reasoning,
            tools=self.allowed_tools,
            tells_reasoning=self.tells_reasoning,
        )


async def chat_turn(
    service: EngineService,
    messages: Sequence[Message],
    *,
    tools: Sequence[object] = (),
    tool_choice: object = None,
    parallel_tool_calls: bool = True,
    variables: Mapping[str, Any] | None = None,
    tells_reasoning: bool = True,
) -> ChatTurn:
    """The turn that follows `messages`. `tools` and `tool_choice` in any of OpenAI's forms.

    Raises:
        UsageError: tools or calls that cannot be used.
        ChatTemplateError: the model's template refuses the messages.
    """
    about = service.require_loaded().about
    template = about.chat_template if about is not None else None
    tool_format, reasoning = tool_format_of(template), reasoning_of(template)
    offered = read_tools(tools)
    choice = ToolChoice.read(tool_choice, offered)
    prompt = tool_format.chat_prompt(tuple(messages), offered, choice, variables or {})
    starts = False
    if reasoning is not None:
        text = await service.ask(Render(prompt))
        assert isinstance(text, str)
        starts = reasoning.starts_in(text)
    return ChatTurn(
        prompt=prompt,
        tool_format=tool_format,
        reasoning=reasoning,
        allowed_tools=choice.allowed(offered),
        starts_in_reasoning=starts,
        tells_reasoning=tells_reasoning,
        constraint=tool_format.constraint(offered, choice, parallel_tool_calls, reasoning, starts_in_reasoning=starts),
        markers=markers_of(tool_format, reasoning),
    )


def _answer_after(reasoning: Reasoning, is_open: bool) -> str:
    """A grammar of reasoning, which may be left out where it has not begun, and then the rule `answer`."""
    before, after = reasoning.answer
    thought = "thought" if is_open else f"( {literal(reasoning.opening)} thought )?"
    if reasoning.in_channels:
        before = "<|channel|>final<|message|>"
        thought = (
            "thought " + literal("<|start|>assistant")
            if is_open
            else (f"( {literal(reasoning.opening)} thought {literal('<|start|>assistant')} )?")
        )
    parts = [thought, "space", *([literal(before)] if before else []), "answer", *([literal(after)] if after else [])]
    return f"root ::= {' '.join(parts)}\nspace ::= [ \\t\\n]{{0,8}}\n" + until("thought", reasoning.closing)
