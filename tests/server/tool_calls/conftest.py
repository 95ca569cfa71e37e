"""The grammars of all forms in llama.cpp, made once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from localspec.llama.grammar import grammar_source
from localspec.llama.model import Model
from localspec.llama.sampling_params import SamplingParams
from localspec.server.tool_calls import CallMode, Constraint, ToolChoice
from tests.server.grammar_probe import GrammarProbe
from tests.server.tool_calls.forms import FORMS, TOOLS

# Form, mode, parallel, thinking -> its grammar.
Grammars = Callable[..., GrammarProbe]


def source_of(constraint: Constraint) -> str:
    source = grammar_source(constraint.applied_to(SamplingParams()))
    assert source is not None
    return source


@pytest.fixture(scope="module")
def grammars(target: Model) -> Iterator[Grammars]:
    made: dict[object, GrammarProbe] = {}
    with ExitStack() as stack:

        def grammar(
            name: str, mode: CallMode = CallMode.REQUIRED, *, parallel: bool = True, reasons: bool = False, **more: bool
        ) -> GrammarProbe:
            key = (name, mode, parallel, reasons, *more.items())
            if key not in made:
                form = FORMS[name]
                reasoning = form.reasoning if reasons or form.separate else None
                constraint = form.tool_format.constraint(TOOLS, ToolChoice(mode), parallel, reasoning, **more)
                made[key] = stack.enter_context(GrammarProbe(target, source_of(constraint)))
            return made[key]

        yield grammar
