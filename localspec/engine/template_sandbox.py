"""The sandbox in which a model's chat template runs: Jinja's own, with every step counted.

A template is a program by whoever made the model file. Jinja's sandbox keeps it away from Python; this one also bounds
what it costs, on every system and in any thread. The parsed template is rewritten so that each expression that makes a
value, each turn of a loop and each piece of output passes through the `Budget`, and what can grow without a loop
(repetition, padding, formatting, joining) is measured before it runs. So no value passes MAX_VALUE_BYTES, and all of
them together stay below MAX_TOTAL_BYTES.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from localspec.engine.template_budget import STEP, Budget, TooMuchError, weigh, weigh_number, within_value
from localspec.engine.template_functions import (
    FILTERS,
    GLOBALS,
    TemplateRefusalError,
    check_format,
    check_percent,
    check_text_method,
)

__all__ = ["TemplateRefusalError", "TooMuchError", "compile_template", "run"]

# Names that no template can write, for what the rewriting puts in.
_MEASURED: Final = " measured"
_PACED: Final = " paced"
_CONCATENATED: Final = " concatenated"
_BUDGET: Final = " budget"

_TEXT_METHODS: Final = """
    capitalize casefold count endswith find format index isalnum isalpha isdecimal isdigit islower isnumeric isspace
    istitle isupper join lower lstrip partition removeprefix removesuffix replace rfind rindex rpartition rsplit rstrip
    split splitlines startswith strip swapcase title upper
"""
_CONTAINER_METHODS: Final = frozenset(["count", "get", "index", "items", "keys", "values"])


def compile_template(source: str) -> jinja2.Template:
    """Parse, rewrite and compile a template.

    Raises:
        jinja2.TemplateSyntaxError: with the line.
        Exception: whatever else the compiler meets in a text that only pretends to be a template.
    """
    environment = _TemplateEnvironment()
    tree = _Rewriter().visit(environment.parse(source))
    return jinja2.Template.from_code(environment, environment.compile(tree), environment.globals)


def run(template: jinja2.Template, variables: Mapping[str, Any]) -> str:
    """Render with a fresh budget. Raises whatever the template provokes."""
    text = template.render({**variables, _BUDGET: Budget()})
    weigh(text)
    return text


def _budget(context: Context) -> Budget:
    budget = context.resolve_or_missing(_BUDGET)
    assert isinstance(budget, Budget)
    return budget


@jinja2.pass_context
def _measured(context: Context, value: Any) -> Any:
    """A value just made, once it is paid for. Iterators become lists, so that nothing is made unseen later."""
    budget = _budget(context)
    if isinstance(value, Iterator):
        items = []
        total = STEP
        for item in value:
            total = within_value(total + weigh(item))
            budget.spend(STEP)
            items.append(item)
        value = items
    budget.spend(weigh(value))
    return value


@jinja2.pass_context
def _paced(context: Context, iterable: Iterable[Any]) -> Iterator[Any]:
    budget = _budget(context)
    for item in iterable:
        budget.spend(STEP)
        yield item


@jinja2.pass_context
def _printed(context: Context, value: Any) -> str:
    text = value if isinstance(value, str) else str(value)
    _budget(context).spend(weigh(text))
    return text


def _concatenated(items: list[Any]) -> str:
    return "".join(map(str, items))


class _Rewriter(NodeTransformer):
    """Puts the functions above around every expression that makes a value, every loop and every piece of output."""

    def _measure(self, node: nodes.Expr) -> nodes.Expr:
        self.generic_visit(node)
        return _through(node, _MEASURED)

    visit_Filter = visit_Call = visit_Compare = visit_Dict = visit_List = visit_Test = _measure  # noqa: N815 (Jinja's)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:  # noqa: N802
        return self._measure(node) if node.ctx == "load" else node  # else it is a loop's target

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:  # noqa: N802
        # As a list first: its size is known before anything is joined.
        self.generic_visit(node)
        return _through(_through(nodes.List(node.nodes, lineno=node.lineno), _MEASURED), _CONCATENATED)

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802
        self.generic_visit(node)
        node.iter = _through(node.iter, _PACED)
        return node

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.CallBlock:  # noqa: N802
        # The compiler wants a bare call here; what the macro prints is paid for as it is printed.
        self.generic_visit(node)
        measured: Any = node.call
        node.call = measured.node
        return node

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Const:  # noqa: N802
        # Literal text inside a loop is output too, and only expressions are counted when printed.
        return nodes.Const(node.data, lineno=node.lineno)


def _through(node: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


class _GenerationTag(Extension):
    """`{% generation %}` marks the assistant's text for training; it changes nothing in the text."""

    tags = {"generation"}  # noqa: RUF012 (Jinja's protocol)

    def parse(self, parser: Parser) -> nodes.Node:
        lineno = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=lineno)


class _TemplateEnvironment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset(ImmutableSandboxedEnvironment.default_binop_table)

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _GenerationTag],
            optimized=False,  # folding constants would run them before there is a budget
            finalize=_printed,
        )
        self.filters = FILTERS | {_MEASURED: _measured, _PACED: _paced, _CONCATENATED: _concatenated}
        self.globals = dict(GLOBALS)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if not super().is_safe_attribute(obj, attr, value):
            return False
        if isinstance(obj, str):
            return attr in _TEXT_METHODS.split()
        if isinstance(obj, list | tuple | dict):
            return attr in _CONTAINER_METHODS
        return not isinstance(obj, int | float | bytes)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        sandboxed = super().wrap_str_format(value)
        if sandboxed is None or value.__name__ != "format":
            return None
        layout: str = value.__self__

        def bounded(*args: Any, **kwargs: Any) -> str:
            check_format(layout, [args, kwargs])
            return sandboxed(*args, **kwargs)

        return bounded

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, str):
            check_text_method(owner, obj.__name__, args)  # in a loop, `kwargs` holds Jinja's own variables
        return super().call(context, obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        numbers = isinstance(left, int) and isinstance(right, int)
        if operator == "**" and numbers:
            weigh_number(left.bit_length() * right)
        elif operator == "*" and not numbers:
            for value, times in ((left, right), (right, left)):
                if isinstance(times, int):
                    within_value((weigh(value) - STEP) * times)
        elif operator == "%" and isinstance(left, str):
            check_percent(left, right)
        return _measured(context, super().call_binop(context, operator, left, right))
