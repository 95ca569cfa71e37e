"""Fixed JSON values and names as GBNF: as they are written, and all other names."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Final

from localspec.llama.gbnf import literal, one_of
from localspec.llama.schema_pattern import in_string, others

# More alternatives than these are told apart by what they begin with: llama.cpp follows each on its own.
_MAX_ALTERNATIVES: Final = 16
_HALF_CHARACTER: Final = re.compile("[\ud800-\udfff]")

# Adds a rule of an expression and returns its name.
AddRule = Callable[[str], str]


def value_expression(value: object) -> str:
    """A JSON value, with white space as in other JSON."""
    if isinstance(value, Mapping) and value:
        pairs = (f'{json_literal(key)} ":" json-ws {value_expression(inner)}' for key, inner in value.items())
        return '"{" json-ws ' + ' "," json-ws '.join(pairs) + ' json-ws "}"'
    if isinstance(value, list) and value:
        return '"[" json-ws ' + ' "," json-ws '.join(map(value_expression, value)) + ' json-ws "]"'
    return json_literal(value)


def json_literal(value: object) -> str:
    """The value in one spelling."""
    return literal(_json(value))


def any_of(values: Iterable[object], add_rule: AddRule) -> str:
    """One of the values."""
    values = list(values)
    texts = [_json(value) for value in values if not (isinstance(value, Mapping | list) and value)]
    options = [value_expression(value) for value in values if isinstance(value, Mapping | list) and value]
    if texts:
        options.append(_one_text(sorted(set(texts)), add_rule))
    return options[0] if len(options) == 1 else one_of(dict.fromkeys(options))


def other_names(names: Iterable[str], add_rule: AddRule) -> str:
    """A JSON string that is none of these names, however it is written."""
    # A half of a character cannot be written at all.
    known = sorted({name for name in names if not _HALF_CHARACTER.search(name)})
    return '"\\"" ' + add_rule(_other_end(known, add_rule))


def _other_end(ends: list[str], add_rule: AddRule) -> str:
    """The rest of a string, and the quote after it, that is none of these; sorted."""
    options = [] if "" in ends else ['"\\""']
    firsts = []
    for first, group in groupby((end for end in ends if end), key=lambda end: end[0]):
        firsts.append((ord(first), ord(first)))
        options.append(f"{in_string([firsts[-1]])} {add_rule(_other_end([end[1:] for end in group], add_rule))}")
    # Written with \u, it could be one of the names.
    options.append(f'{in_string(others(firsts))} json-char* "\\""')
    return " | ".join(options)


def _one_text(texts: list[str], add_rule: AddRule) -> str:
    """One of the texts, which are sorted."""
    if len(texts) <= _MAX_ALTERNATIVES:
        return literal(texts[0]) if len(texts) == 1 else one_of(map(literal, texts))
    options = []
    for _, group in groupby(texts, key=lambda text: text[:1]):
        same = list(group)
        common = same[0][: _n_common(same[0], same[-1])]
        rest = [text[len(common) :] for text in same]
        options.append(literal(common) if rest == [""] else f"{literal(common)} {add_rule(_one_text(rest, add_rule))}")
    return options[0] if len(options) == 1 else one_of(options)


def _n_common(one: str, other: str) -> int:
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def _json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return _HALF_CHARACTER.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
