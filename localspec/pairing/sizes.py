"""How large a model is before anybody has asked: from its name, and from the bits of its quantization."""

from __future__ import annotations

import re
from typing import Final

from localspec.models.quantization import n_bits

__all__ = ["DEFAULT_QUANTIZATION", "active_share", "guessed_bytes", "guessed_parameters"]

DEFAULT_QUANTIZATION: Final = "Q4_K_M"
# Of a mix such as Q4_K_M, with its scales and the tensors that are kept finer; and of plain types.
_BITS_MORE: Final = 0.85
_BITS_MORE_IN_8: Final = 0.5
_FLOAT_BITS: Final = 16
_SIZE: Final = re.compile(r"(?<![\d.A-Za-z])(\d+(?:\.\d+)?)[bB](?![a-zA-Z])")
_ACTIVE: Final = re.compile(r"(?<![\d.A-Za-z])[aA](\d+(?:\.\d+)?)[bB](?![a-zA-Z])")


def guessed_parameters(title: str) -> int | None:
    """The billions in a name such as Qwen3-30B-A3B, the largest of several; None where it has none."""
    sizes = [float(size) for size in _SIZE.findall(title)]
    return round(max(sizes) * 1e9) if sizes else None


def active_share(title: str) -> float:
    """The part of its weights that a token uses, from a name such as Qwen3-30B-A3B; 1 where the name says nothing."""
    n_all, active = guessed_parameters(title), _ACTIVE.search(title)
    return min(1.0, float(active[1]) * 1e9 / n_all) if n_all and active else 1.0


def guessed_bytes(n_parameters: int, quantization: str = "") -> int:
    """Of the file; without a quantization that says something, of the usual one."""
    bits = n_bits(quantization) or n_bits(DEFAULT_QUANTIZATION) or _FLOAT_BITS
    more = _BITS_MORE if bits < 8 else _BITS_MORE_IN_8 if bits < _FLOAT_BITS else 0.0
    return round(n_parameters * (bits + more) / 8)
