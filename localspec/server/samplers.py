"""llama.cpp's field `samplers`: which transforms run. Those that it does not name are switched off.

The engine applies them in llama.cpp's default order, so another order is refused. "infill", which editors ask for with
every completion, and "adaptive_p", which does nothing by default, are taken and do nothing: `generation_settings` of
the answer lists what did run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Final

from pydantic import AfterValidator, WithJsonSchema

from localspec.engine.requests import SamplingParams

__all__ = ["ALL_SAMPLERS", "SamplersField", "only_samplers", "parse_samplers"]

# In the order in which they run: llama.cpp's name, its letter, and the values that switch it off.
_OFF: Final[dict[str, tuple[str, dict[str, float]]]] = {
    "penalties": ("e", {"repeat_penalty": 1.0, "frequency_penalty": 0.0, "presence_penalty": 0.0}),
    "dry": ("d", {"dry_multiplier": 0.0}),
    "top_n_sigma": ("s", {"top_n_sigma": -1.0}),
    "top_k": ("k", {"top_k": 0}),
    "typ_p": ("y", {"typical_p": 1.0}),
    "top_p": ("p", {"top_p": 1.0}),
    "min_p": ("m", {"min_p": 0.0}),
    "xtc": ("x", {"xtc_probability": 0.0}),
    "temperature": ("t", {"temperature": 1.0, "dynatemp_range": 0.0}),
}
ALL_SAMPLERS: Final = tuple(_OFF)
_WITHOUT_EFFECT: Final = {"infill": "i", "adaptive_p": "a"}
_LETTERS: Final = {letter: name for name, (letter, _) in _OFF.items()} | {
    letter: name for name, letter in _WITHOUT_EFFECT.items()
}
_NAMES: Final = (*_OFF, *_WITHOUT_EFFECT)
# llama.cpp takes "top-k" and "topk" for "top_k", and some names of its own.
_ALIASES: Final = (
    {name: name for name in _NAMES}
    | {name.replace("_", joint): name for name in _NAMES for joint in ("-", "")}
    | {"nucleus": "top_p", "temp": "temperature", "typ": "typ_p", "typical_p": "typ_p"}
)
_MAX_NAMES: Final = len(_NAMES)


def parse_samplers(value: Any) -> tuple[str, ...]:
    """The transforms that an array of names, or a text of llama.cpp's letters, leaves on.

    Raises:
        ValueError: one is unknown or named twice, or they are in an order in which they do not run.
    """
    names: list[str]
    if isinstance(value, str):
        names = [_known(letter, _LETTERS) for letter in value[: _MAX_NAMES + 1]]
    elif isinstance(value, list) and all(isinstance(name, str) for name in value):
        names = [_known(name.lower(), _ALIASES) for name in value[: _MAX_NAMES + 1]]
    else:
        raise ValueError("it should be an array of names of samplers")
    if len(set(names)) < len(names):
        raise ValueError("it names a sampler twice; each runs once")
    chosen = tuple(name for name in names if name in _OFF)
    if list(chosen) != sorted(chosen, key=ALL_SAMPLERS.index):
        raise ValueError(f"samplers run in this order: {', '.join(ALL_SAMPLERS)}")
    return chosen


def _known(name: str, names: dict[str, str]) -> str:
    if name not in names:
        raise ValueError(f"there is no sampler {name[:40]!r}; there are {', '.join(_NAMES)}")
    return names[name]


def only_samplers(sampling: SamplingParams, names: Sequence[str]) -> SamplingParams:
    """With all other transforms switched off."""
    off: dict[str, Any] = {}
    for name, (_, values) in _OFF.items():
        if name not in names:
            off |= values
    return replace(sampling, **off)


SamplersField = Annotated[
    Any,
    AfterValidator(parse_samplers),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "array", "uniqueItems": True, "items": {"type": "string", "enum": list(_NAMES)}},
                {"type": "string", "description": "llama.cpp's letters for them"},
            ]
        }
    ),
]
"""A field of a request body that holds what `parse_samplers` makes of it."""
