"""The filters and functions that a chat template may call.

Those of Jinja that cannot make more text than they are given are kept as they are. Those that can are measured before
they run. The rest (HTML, random choices, placeholder text ...) has no use in a prompt and is left out.
"""

from __future__ import annotations

import datetime
import json
import re
import string
from collections.abc import Callable, Iterable
from typing import Any, Final

import jinja2
from jinja2 import filters
from jinja2.nodes import EvalContext
from jinja2.utils import Namespace

from localspec.engine.template_budget import MAX_DETAIL, MAX_RANGE, TooMuchError, text_bytes, weigh, within_value

__all__ = ["FILTERS", "GLOBALS", "TemplateRefusalError", "check_format", "check_percent", "check_text_method"]

_KEPT_FILTERS: Final = """
    abs attr capitalize count d default dictsort e escape first groupby items last length list lower map max min
    reject rejectattr reverse safe select selectattr sort string title truncate unique upper wordcount
"""

_MAX_WIDTH: Final = 4 * 999  # bytes of a field that is padded to three digits
_WIDE: Final = "it formats text with a width that is too large or computed"


class TemplateRefusalError(jinja2.TemplateError):
    """The template called `raise_exception` with these words."""


def check_percent(layout: str, values: object) -> None:
    """Before `layout % values`: no large or computed widths, and room for every value in every field."""
    # Four digits anywhere: a mapping key may hide them from a stricter pattern.
    if re.search(r"\d{4}|%[^a-zA-Z%]*\*", layout):
        raise TooMuchError(_WIDE)
    within_value(weigh(layout) + layout.count("%") * (_MAX_WIDTH + weigh(values)))


def check_format(layout: str, values: object) -> None:
    """Before `layout.format(...)`: as for "%"."""
    specs = [spec or "" for _, field, spec, _ in string.Formatter().parse(layout) if field is not None]
    if any("{" in spec or re.search(r"\d{4}", spec) for spec in specs):
        raise TooMuchError(_WIDE)
    within_value(weigh(layout) + len(specs) * (_MAX_WIDTH + weigh(values)))


def check_text_method(text: str, method: str, args: tuple[Any, ...]) -> None:
    """Before a method of `text` that may make more text, or take very long over it."""
    if method == "replace" and len(args) >= 2:
        old, new = str(args[0]), str(args[1])
        within_value(text_bytes(len(text) + text.count(old) * len(new), text, new))
    elif method == "join" and args and isinstance(args[0], list | tuple):
        within_value(weigh(text) * len(args[0]) + weigh(args[0]))
    elif method.endswith("strip") and args and len(str(args[0])) > MAX_DETAIL:
        raise TooMuchError(f"it strips more than {MAX_DETAIL} different characters")


def _replace(value: Any, old: str, new: str, count: int | None = None) -> str:
    text = str(value)
    check_text_method(text, "replace", (old, new))
    return text.replace(str(old), str(new), -1 if count is None else count)


@jinja2.pass_eval_context
def _join(eval_ctx: EvalContext, value: Iterable[Any], d: str = "", attribute: str | int | None = None) -> str:
    items = list(value)
    check_text_method(str(d), "join", (items,))
    return filters.sync_do_join(eval_ctx, items, d, attribute)


def _indent(text: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    pad = " " * min(width, MAX_DETAIL + 1) if isinstance(width, int) else width
    if len(pad) > MAX_DETAIL:
        raise TooMuchError(f"it indents by more than {MAX_DETAIL} characters")
    within_value(text_bytes(len(text) + (text.count("\n") + 2) * len(pad), text, pad))
    return filters.do_indent(text, width, first, blank)


def _trim(value: Any, chars: str | None = None) -> str:
    text = str(value)
    check_text_method(text, "strip", () if chars is None else (chars,))
    return text.strip(chars)


def _format(value: Any, *args: Any, **kwargs: Any) -> str:
    check_percent(str(value), [args, kwargs])
    return filters.do_format(value, *args, **kwargs)


def _sum(iterable: Iterable[Any], attribute: str | int | None = None, start: float = 0) -> Any:
    items = [start, *(iterable if attribute is None else (item[attribute] for item in iterable))]
    if not all(isinstance(item, int | float) for item in items):
        raise TypeError("sum is for numbers")
    return sum(items)


def _round(value: float, precision: int = 0, method: Any = "common") -> float:
    if abs(precision) > 15:
        raise TooMuchError(f"it rounds to {precision} digits")
    return filters.do_round(value, precision, method)


def _reading_a_number(convert: Callable[..., Any]) -> Callable[..., Any]:
    def bounded(value: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(value, str) and len(value) > MAX_DETAIL:
            raise TooMuchError(f"it reads a number of more than {MAX_DETAIL} characters")
        return convert(value, *args, **kwargs)

    return bounded


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As transformers has it: plain JSON, nothing escaped for HTML."""
    if (indent is not None and not 0 <= int(indent) <= 8) or (separators and max(map(len, separators)) > 8):
        raise TooMuchError("it writes JSON with an indent or separators of more than 8 characters")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _range(*args: int) -> range:
    numbers = range(*args)
    if numbers[MAX_RANGE:]:  # not len(), which overflows where the range is huge
        raise TooMuchError(f"it counts over more than {MAX_RANGE:,} numbers")
    return numbers


class _OpaqueNamespace(Namespace):
    """A namespace that prints as itself: its contents may refer to one another without end."""

    def __repr__(self) -> str:
        return "<Namespace>"


def _raise_exception(message: object) -> None:
    raise TemplateRefusalError(str(message))


def _strftime_now(layout: str) -> str:
    if len(layout) > MAX_DETAIL:
        raise TooMuchError(f"it formats the date with more than {MAX_DETAIL} characters")
    return datetime.datetime.now().astimezone().strftime(layout)


FILTERS: Final[dict[str, Callable[..., Any]]] = {name: filters.FILTERS[name] for name in _KEPT_FILTERS.split()} | {
    "float": _reading_a_number(filters.do_float),
    "format": _format,
    "indent": _indent,
    "int": _reading_a_number(filters.do_int),
    "join": _join,
    "replace": _replace,
    "round": _round,
    "sum": _sum,
    "tojson": _tojson,
    "trim": _trim,
}

GLOBALS: Final[dict[str, Any]] = {
    "dict": dict,
    "joiner": jinja2.utils.Joiner,
    "cycler": jinja2.utils.Cycler,
    "namespace": _OpaqueNamespace,
    "raise_exception": _raise_exception,
    "range": _range,
    "strftime_now": _strftime_now,
}
