"""What a request may ask of the sampler: llama.cpp's names, defaults and order of transforms."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Final

from localspec.errors import UsageError

# (low, high) of every bounded number, both ends included.
_BOUNDS: Final = {
    "temperature": (0.0, 100.0),
    "dynatemp_range": (0.0, 100.0),
    "dynatemp_exponent": (0.0, 100.0),
    "top_k": (0, 2**31 - 1),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "typical_p": (0.0, 1.0),
    "top_n_sigma": (-1.0, 100.0),
    "xtc_probability": (0.0, 1.0),
    "xtc_threshold": (0.0, 1.0),
    "repeat_penalty": (0.01, 100.0),
    "repeat_last_n": (-1, 2**31 - 1),
    "frequency_penalty": (-100.0, 100.0),
    "presence_penalty": (-100.0, 100.0),
    "dry_multiplier": (0.0, 100.0),
    "dry_base": (1.0, 100.0),
    "dry_allowed_length": (1, 2**31 - 1),
    "dry_penalty_last_n": (-1, 2**31 - 1),
    "seed": (0, 2**64 - 1),
}


@dataclass(frozen=True, slots=True)
class GrammarSchema:
    """A rule of a grammar that is made of a JSON schema: `rule` names it, `owner` says in errors whose schema it is."""

    rule: str
    owner: str
    schema: str


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """The transforms from logits to the distribution that is sampled.

    Applied in llama.cpp's order: logit bias, penalties, DRY, top-n-sigma, top-k, typical, top-p, min-p, XTC,
    temperature; a grammar restricts the tokens before all of them. `temperature` 0 is greedy decoding.
    `repeat_last_n` and `dry_penalty_last_n` of -1 mean the whole context. `seed` None draws a fresh one.

    `grammar_schemas` are rules that the grammar refers to and that are made of JSON schemas. With `grammar_triggers`,
    Python's regular expressions, the grammar sleeps until the reply so far ends with a match of one of them: what it
    must match begins at the expression's first group, and what the match has of it must be a beginning of what it
    allows.
    `grammar_passes_over`: opening and closing text of a passage at the reply's start (no opening: the reply starts
    within it) in which no trigger is looked for; the reply begins after it, as far as triggers are concerned.

    Raises:
        UsageError: a value is outside its range; the message names field, value and range.
    """

    temperature: float = 0.8
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    top_n_sigma: float = -1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    logit_bias: tuple[tuple[int, float], ...] = ()
    grammar: str | None = None
    json_schema: str | None = None
    grammar_schemas: tuple[GrammarSchema, ...] = ()
    grammar_triggers: tuple[str, ...] = ()
    grammar_passes_over: tuple[str, str] | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            bounds = _BOUNDS.get(field.name)
            value = getattr(self, field.name)
            if bounds is None or value is None:
                continue
            low, high = bounds
            if math.isnan(value) or not low <= value <= high:
                raise UsageError(
                    f"{field.name} is {value}; it must be between {low} and {high}.",
                    hint=f"Leave it out for the default, {field.default}.",
                )
        for token, bias in self.logit_bias:
            if math.isnan(bias) or bias == math.inf:
                raise UsageError(f"logit_bias of token {token} is {bias}; it must be a finite number or -inf.")
        if self.grammar is not None and self.json_schema is not None:
            raise UsageError("A request has both a grammar and a JSON schema.", hint="Give one of them.")

    @property
    def greedy(self) -> bool:
        """True when every distribution is one-hot."""
        return self.temperature <= 0.0
