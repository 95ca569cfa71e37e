"""What every form of tool calls answers: the prompt, the constraint, and how a reply's calls are read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from localspec.engine.requests import ChatPrompt, Message
from localspec.llama.gbnf import literal
from localspec.server.reasoning import Reasoning
from localspec.server.tool_calls.calls import CallSink
from localspec.server.tool_calls.constraint import FREE, Constraint
from localspec.server.tool_calls.gbnf import WS, Rules, until
from localspec.server.tool_calls.source import Reading, Source
from localspec.server.tool_calls.tools import CallMode, ToolChoice
from localspec.server.tool_calls.turns import with_objects


class ToolFormat(ABC):
    """One form of tool calls: of a template, hence of a model.

    `openings`: texts within content at which a call may begin. `stands_bare`: a call may also begin right at the start
    of the content. `markers`: control tokens of the form, which are no text unless somebody asks for them. `triggers`:
    regular expressions of how calls begin; what the first group has matched is a beginning of the rule `calls`.
    """

    name: ClassVar[str]
    openings: ClassVar[tuple[str, ...]] = ()
    stands_bare: ClassVar[bool] = False
    markers: ClassVar[tuple[str, ...]] = ()
    triggers: ClassVar[tuple[str, ...]] = ()

    def chat_prompt(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        choice: ToolChoice,
        variables: Mapping[str, Any] | None = None,
    ) -> ChatPrompt:
        """The conversation as this form's templates read it. All tools are offered, unless none may be called.

        Raises:
            UsageError: a turn has tool calls that are none.
        """
        offered = () if choice.mode is CallMode.NONE else tuple(tools)
        return self._prompt(tuple(messages), offered, dict(variables or {}))

    def constraint(
        self,
        tools: Sequence[Mapping[str, Any]],
        choice: ToolChoice,
        parallel: bool = True,
        reasoning: Reasoning | None = None,
        *,
        starts_in_reasoning: bool = False,
    ) -> Constraint:
        """What makes calls of the reply be calls of these tools, with arguments by their schemas.

        In mode auto the grammar wakes up where a call begins, and holds to the end of the reply. In mode required the
        whole reply is a call, after reasoning if the model reasons. `parallel`: there may be several calls.

        Raises:
            UsageError: a tool cannot be written in this form.
        """
        allowed = choice.allowed(tools)
        if not allowed:
            return FREE
        rules = self._rules(allowed, parallel)
        if choice.mode is CallMode.AUTO:
            return Constraint(
                f"root ::= calls\n{rules.text}{WS}",
                rules.schemas,
                self._triggers(allowed),
                _passage(reasoning, starts_in_reasoning),
            )
        before = self._before(reasoning, starts_in_reasoning)
        return Constraint(f"root ::= before calls\n{before}{rules.text}{WS}", rules.schemas)

    def _prompt(
        self, messages: tuple[Message, ...], tools: tuple[Mapping[str, Any], ...], variables: Mapping[str, Any]
    ) -> ChatPrompt:
        return ChatPrompt(with_objects(messages), tools, variables)

    def _triggers(self, _tools: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
        return self.triggers

    def _before(self, reasoning: Reasoning | None, starts_in_reasoning: bool) -> str:
        """The rule `before`: what may stand before calls where the whole reply has to be calls."""
        if reasoning is None:
            return "before ::= ws\n"
        thought = until("thought", reasoning.closing)
        if starts_in_reasoning:
            return f"before ::= thought ws\n{thought}"
        return f"before ::= ws ( {literal(reasoning.opening)} thought )? ws\n{thought}"

    @abstractmethod
    def _rules(self, tools: Sequence[Mapping[str, Any]], parallel: bool) -> Rules:
        """The rule `calls`; `ws` is there to be used."""

    @abstractmethod
    def read(self, source: Source, calls: CallSink) -> Reading[None]:
        """Read the calls that begin here.

        Raises:
            NotACallError: there is none, or none any more. What was read since the last of them is content.
        """


def _passage(reasoning: Reasoning | None, starts_in_reasoning: bool) -> tuple[str, str] | None:
    if reasoning is None or reasoning.in_channels:
        return None
    return ("" if starts_in_reasoning else reasoning.opening, reasoning.closing)
