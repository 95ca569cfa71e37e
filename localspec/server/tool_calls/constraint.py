"""What a reply has to look like, so that its tool calls are calls: a grammar, and when it holds."""

from __future__ import annotations

from dataclasses import dataclass, replace

from localspec.engine.requests import SamplingParams
from localspec.errors import UsageError
from localspec.llama.sampling_params import GrammarSchema


@dataclass(frozen=True, slots=True)
class Constraint:
    """A grammar (GBNF, with rules that are made of JSON schemas) and its triggers, as `SamplingParams` has them.

    Without triggers the whole reply follows the grammar. `passes_over`: the opening and closing text of reasoning that
    a reply may begin with, in which no trigger is looked for. An empty constraint leaves the reply free.
    """

    grammar: str | None = None
    schemas: tuple[GrammarSchema, ...] = ()
    triggers: tuple[str, ...] = ()
    passes_over: tuple[str, str] | None = None

    def applied_to(self, sampling: SamplingParams) -> SamplingParams:
        """The request's sampling under this constraint.

        Raises:
            UsageError: the request has a grammar or a JSON schema of its own besides.
        """
        if self.grammar is None:
            return sampling
        if sampling.grammar is not None or sampling.json_schema is not None:
            raise UsageError(
                "A reply cannot follow a grammar or JSON schema and call tools too.",
                hint='Leave one of them out, or set tool_choice to "none".',
            )
        return replace(
            sampling,
            grammar=self.grammar,
            grammar_schemas=self.schemas,
            grammar_triggers=self.triggers,
            grammar_passes_over=self.passes_over,
        )


FREE = Constraint()
