"""What may disappoint in a pair that fits together: differences that no rule refuses but that cost acceptance or speed.

The vocabularies decide whether a pair works (`compat.py`); this is about whether it pays.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from localspec.models.description import ModelDescription, describe
from localspec.models.header import GgufHeader
from localspec.models.quantization import n_bits

__all__ = ["PairWarning", "warnings_for"]

# Drafting pays where a drafted token is accepted more often than the share of the target's reading that it costs
# (Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", 2023, corollary 3.9). From which share
# on that is doubtful enough to say is a rule of thumb: a third of the tokens is accepted in most texts.
_LARGE_DRAFT: Final = 1 / 3
_FEW_BITS: Final = 4

_TUNED_WORDS: Final = frozenset(["instruct", "it", "chat", "thinking", "reasoning", "assistant"])
_UNTUNED_WORDS: Final = frozenset(["base", "pt", "pretrained", "pretrain"])
# Published as small and large members of one family under different versions.
_SAME_TRAINING: Final = (
    frozenset(["llama-3.1", "llama-3.2", "llama-3.3"]),
    frozenset(["qwen3.5", "qwen3.6"]),
    frozenset(["mistral-small", "mistral-small-3.1", "mistral-small-3.2"]),
)
# How templates mark who speaks: <|im_start|>, <start_of_turn>, [INST].
_MARKER: Final = re.compile(r"<\|[^|<>\s]{1,40}\|>|</?[a-z_]{2,40}>|\[/?[A-Z_]{2,40}\]")


@dataclass(frozen=True, slots=True)
class PairWarning:
    """One reason to expect less of a pair: the rule that looks at it, both values, and a sentence."""

    rule: str
    target_value: str
    draft_value: str
    text: str


@dataclass(frozen=True, slots=True)
class _Model:
    described: ModelDescription
    template: str
    words: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Pair:
    """`n_ctx`: the tokens of context that it is meant for; 0: unknown."""

    target: _Model
    draft: _Model
    n_ctx: int


def warnings_for(target: GgufHeader, draft: GgufHeader, n_ctx: int | None = None) -> tuple[PairWarning, ...]:
    """What speaks against a pair, in the order of the rules.

    `n_ctx` is the context that it is meant for; None: the target's own. What a header does not say warns of nothing.
    """
    ours = _model(target)
    pair = _Pair(ours, _model(draft), n_ctx or ours.described.n_ctx_train)
    return tuple(warning for rule in _RULES for warning in rule(pair))


def _model(header: GgufHeader) -> _Model:
    template = header.metadata.get("tokenizer.chat_template")
    texts = [header.metadata.get(f"general.{key}") for key in ("name", "finetune", "basename")]
    words = re.split(r"[^a-z0-9]+", " ".join(text for text in texts if isinstance(text, str)).lower())
    return _Model(describe(header), template if isinstance(template, str) else "", frozenset(words))


def _answers(model: _Model) -> bool:
    """Whether it was tuned to answer: by its name, else by a chat template, which some base models carry too."""
    if model.words & _UNTUNED_WORDS:
        return False
    return bool(model.words & _TUNED_WORDS) or bool(model.template)


def _base_draft(pair: _Pair) -> Iterator[PairWarning]:
    if _answers(pair.target) and not _answers(pair.draft) and "draft" not in pair.draft.words:
        text = "the draft is a base model under a target that was tuned to answer, so fewer drafts will be accepted"
        yield PairWarning("tuning", "instruct", "base", text)


def _other_template(pair: _Pair) -> Iterator[PairWarning]:
    templates = pair.target.template, pair.draft.template
    if not all(templates) or templates[0].split() == templates[1].split():
        return
    ours, theirs = (set(_MARKER.findall(template)) for template in templates)
    if ours == theirs:
        values = _digest(templates[0]), _digest(templates[1])
        text = "their chat templates differ in wording only, which seldom matters"
    else:
        values = _some(ours - theirs), _some(theirs - ours)
        text = "their chat templates mark turns differently; the draft reads the target's, which it was not trained on"
    yield PairWarning("chat template", *values, text)


def _some(markers: set[str]) -> str:
    return ", ".join(sorted(markers)[:4]) or "fewer markers"


def _digest(text: str) -> str:
    return f"sha256 {hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def _other_family(pair: _Pair) -> Iterator[PairWarning]:
    families = pair.target.described.family, pair.draft.described.family
    if not all(families) or families[0] == families[1] or any({*families} <= group for group in _SAME_TRAINING):
        return
    text = "they come from different training families, so they agree less often"
    yield PairWarning("family", *families, text)


def _large_draft(pair: _Pair) -> Iterator[PairWarning]:
    ours, theirs = _bytes_per_token(pair.target.described), _bytes_per_token(pair.draft.described)
    if ours and theirs > _LARGE_DRAFT * ours:
        pays = "cannot pay" if theirs >= ours else "pays only where a larger share of its tokens is accepted"
        text = f"the draft reads {theirs / ours:.0%} of what the target reads per token: drafting {pays}"
        yield PairWarning("size", f"{ours / 2**20:,.1f} MiB", f"{theirs / 2**20:,.1f} MiB", text)


def _bytes_per_token(model: ModelDescription) -> float:
    """Weights that one token reads: of those of experts, the share that is used."""
    if not model.n_parameters:
        return 0.0
    return model.n_weight_bytes * model.n_active_parameters / model.n_parameters


def _experts(pair: _Pair) -> Iterator[PairWarning]:
    if pair.target.described.n_experts:
        text = "several tokens in one pass use more of the target's experts than one does, so verifying costs more"
        yield PairWarning("experts", _experts_of(pair.target.described), _experts_of(pair.draft.described), text)


def _experts_of(model: ModelDescription) -> str:
    return f"{model.n_experts_used or '?'} of {model.n_experts} experts" if model.n_experts else "none"


def _short_context(pair: _Pair) -> Iterator[PairWarning]:
    trained = pair.draft.described.n_ctx_train
    if 0 < trained < pair.n_ctx:
        text = f"the draft was trained on {trained:,} tokens of context; beyond that its drafts are worth little"
        yield PairWarning("context", f"{pair.n_ctx:,}", f"{trained:,}", text)


def _few_bits(pair: _Pair) -> Iterator[PairWarning]:
    labels = pair.target.described.quantization, pair.draft.described.quantization
    few = ["target" if number == 0 else "draft" for number, label in enumerate(labels) if _is_coarse(label)]
    if few:
        who = " and ".join(few)
        text = f"fewer than {_FEW_BITS} bits per weight change what the {who} writes, so they agree less often"
        yield PairWarning("quantization", labels[0] or "unknown", labels[1] or "unknown", text)


def _is_coarse(quantization: str) -> bool:
    bits = n_bits(quantization)
    return bits is not None and bits < _FEW_BITS


_RULES: Final[tuple[Callable[[_Pair], Iterator[PairWarning]], ...]] = (
    _base_draft,
    _other_template,
    _other_family,
    _large_draft,
    _experts,
    _short_context,
    _few_bits,
)
