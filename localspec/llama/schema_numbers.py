"""Numbers within bounds as GBNF: digit by digit, as they are written in JSON."""

from __future__ import annotations

from typing import Final

from localspec.llama.gbnf import literal, one_of
from localspec.llama.schema_keywords import Limits, NothingFitsError, SchemaError

# As many as 64 bits hold for certain; so many has `json-natural`.
_N_DIGITS: Final = 18
_LARGEST: Final = 10**_N_DIGITS - 1


def integer_expression(limits: Limits) -> str:
    """The integers within the limits."""
    low, high = limits.least, limits.greatest
    if low is not None and high is not None and low > high:
        raise NothingFitsError("there is no integer between its bounds")
    if (low is not None and low > _LARGEST) or (high is not None and high < -_LARGEST):
        raise SchemaError(f"it asks for integers of more than {_N_DIGITS} digits")
    low, high = -_LARGEST if low is None else max(low, -_LARGEST), _LARGEST if high is None else min(high, _LARGEST)
    if (low, high) == (-_LARGEST, _LARGEST):
        return "json-integer"
    if (low, high) == (0, _LARGEST):
        return "json-natural"
    options = []
    if low < 0:
        options.append('"-" ' + one_of(_naturals(max(1, -high), -low)))
    if high >= 0:
        options += _naturals(max(low, 0), high)
    return one_of(options)


def number_expression(limits: Limits) -> str:
    """Numbers of the sign that the limits leave; within it they are not kept."""
    if limits.low is not None and limits.low >= 0:
        return "json-natural json-fraction"
    if limits.high is not None and limits.high <= 0:
        return '"-" json-natural json-fraction'
    return "json-number"


def _naturals(low: int, high: int) -> list[str]:
    """Alternatives of the numbers from `low` to `high`, both included and not negative."""
    options = []
    whole: list[int] = []
    for n_digits in range(len(str(low)), len(str(high)) + 1):
        least, most = 10 ** (n_digits - 1) if n_digits > 1 else 0, 10**n_digits - 1
        if n_digits > 1 and low <= least and most <= high:
            whole.append(n_digits - 1)
        else:
            options.append(_same_length(str(max(low, least)), str(min(high, most))))
    if whole:
        options.append(f"[1-9] [0-9]{{{whole[0]},{whole[-1]}}}")
    return options


def _same_length(low: str, high: str) -> str:
    """The numbers between two of equally many digits."""
    if low == high:
        return literal(low)
    if set(low) == {"0"} and set(high) == {"9"}:
        return f"[0-9]{{{len(low)}}}"
    if len(low) == 1:
        return f"[{low}-{high}]"
    if low[0] == high[0]:
        return f"{literal(low[0])} {_group(_same_length(low[1:], high[1:]))}"
    n, first, last = len(low) - 1, int(low[0]), int(high[0])
    options = []
    if set(low[1:]) != {"0"}:
        options.append(f"{literal(low[0])} {_group(_same_length(low[1:], '9' * n))}")
        first += 1
    if set(high[1:]) != {"9"}:
        options.append(f"{literal(high[0])} {_group(_same_length('0' * n, high[1:]))}")
        last -= 1
    if first <= last:
        options.append(f"[{first}-{last}] [0-9]{{{n}}}")
    return " | ".join(options)


def _group(expression: str) -> str:
    return f"( {expression} )" if "|" in expression else expression
