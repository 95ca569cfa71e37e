"""Whether a draft model can draft for a target, and whether a file holds a model that writes text: by header alone.

A draft is proposed as token ids, so both models must mean the same text by the same id. The rules are those of
llama.cpp's own speculative decoding: the same type of vocabulary, the same treatment of the start and end of a text,
sizes that differ by padding at most, and the same text for every id from 5 on that both have.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from localspec.errors import IncompatiblePairError, UnsupportedModelError
from localspec.models.header import GgufHeader, StringArray

__all__ = ["PairVerdict", "Reason", "Verdict", "judge_pair", "refuse_unless_generative", "require_compatible"]

MAX_SIZE_DIFFERENCE: Final = 128  # padding to a round number of rows
FIRST_COMPARED_ID: Final = 5  # below are unknown, start, end and padding, which families rename

_SAME_FAMILY: Final = "Choose a smaller model of the target's own family and generation as the draft."

# How llama.cpp reads `tokenizer.ggml.model`: type of vocabulary, and the ids of its start and end token by default.
_TYPES: Final[dict[str, tuple[str, int | None, int | None]]] = {
    "llama": ("SentencePiece", 1, 2),
    "bert": ("WordPiece", 101, None),
    "gpt2": ("BPE", 11, 11),
    "hybriddna": ("BPE", 11, 11),
    "whitespace": ("BPE", 11, 11),
    "gemma4": ("BPE", None, None),
    "t5": ("Unigram", None, 1),
    "rwkv": ("RWKV", None, None),
    "plamo2": ("PLaMo-2", 1, 2),
}
# Where the file does not say, llama.cpp puts the start token before a text for these types and pre-tokenizers.
_ADD_BOS_TYPES: Final = frozenset(["SentencePiece", "WordPiece"])
_ADD_BOS_PRE: Final = (
    "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano tekken chameleon gemma4"
)


class Verdict(StrEnum):
    """What comparing two vocabularies came to."""

    IDENTICAL = "identical"
    COMPATIBLE = "compatible"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Reason:
    """One difference: the rule that looks at it, both values, a sentence, and what to do where it is fatal."""

    rule: str
    target_value: str
    draft_value: str
    text: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class PairVerdict:
    """REFUSED: `reasons` are the rules that failed. COMPATIBLE: the differences that do no harm. IDENTICAL: none."""

    verdict: Verdict
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    kind: str
    tokens: StringArray
    add_bos: bool
    bos: int | None
    add_eos: bool
    eos: int | None

    def shown(self, added: bool, token: int | None) -> str:
        """What is added at one end of a text, as "'<s>' (1)"."""
        if not added or token is None or not 0 <= token < len(self.tokens):
            return "none"
        return f"{self.tokens[token]!r} ({token})"


def judge_pair(target: GgufHeader, draft: GgufHeader) -> PairVerdict:
    """Compare the vocabularies of two models.

    Raises:
        ModelFileError: the metadata of a tokenizer has the wrong type.
    """
    ours, theirs = _vocabulary(target), _vocabulary(draft)
    if ours is None or theirs is None:
        reason = Reason(
            "vocabulary",
            "missing" if ours is None else "present",
            "missing" if theirs is None else "present",
            "a vocabulary is missing, so nothing says that their tokens mean the same",
            "Use files that hold a tokenizer.",
        )
        return PairVerdict(Verdict.REFUSED, (reason,))
    failed = _failures(ours, theirs)
    if failed:
        return PairVerdict(Verdict.REFUSED, tuple(failed))
    harmless = _harmless_differences(ours, theirs)
    return PairVerdict(Verdict.COMPATIBLE if harmless else Verdict.IDENTICAL, tuple(harmless))


def require_compatible(target: GgufHeader, draft: GgufHeader) -> None:
    """Raise where `judge_pair` refuses.

    Raises:
        IncompatiblePairError: with the first rule that failed and both values.
        ModelFileError: as `judge_pair`.
    """
    verdict = judge_pair(target, draft)
    if verdict.verdict is Verdict.REFUSED:
        reason = verdict.reasons[0]
        raise IncompatiblePairError(
            f"{draft.path.name} cannot draft for {target.path.name}: {reason.text}.",
            rule=reason.rule,
            target_value=reason.target_value,
            draft_value=reason.draft_value,
            hint=reason.hint,
        )


def _vocabulary(header: GgufHeader) -> _Vocabulary | None:
    model = header.text("tokenizer.ggml.model")
    tokens = header.strings("tokenizer.ggml.tokens")
    if not model or not tokens:
        return None
    kind, bos, eos = _TYPES.get(model, (repr(model), None, None))
    add_bos = header.flag("tokenizer.ggml.add_bos_token")
    add_eos = header.flag("tokenizer.ggml.add_eos_token")
    given_bos = header.integer("tokenizer.ggml.bos_token_id")
    given_eos = header.integer("tokenizer.ggml.eos_token_id")
    if add_bos is None:
        add_bos = kind in _ADD_BOS_TYPES or (
            kind == "BPE" and header.text("tokenizer.ggml.pre") in _ADD_BOS_PRE.split()
        )
    return _Vocabulary(
        kind=kind,
        tokens=tokens,
        add_bos=add_bos,
        bos=bos if given_bos is None else given_bos,
        add_eos=kind == "Unigram" if add_eos is None else add_eos,
        eos=eos if given_eos is None else given_eos,
    )


def _failures(target: _Vocabulary, draft: _Vocabulary) -> list[Reason]:
    failed = []
    if target.kind != draft.kind:
        failed.append(_reason("vocabulary type", target.kind, draft.kind, "their types of vocabulary differ"))
    if target.add_bos != draft.add_bos or (target.add_bos and target.bos != draft.bos):
        values = target.shown(target.add_bos, target.bos), draft.shown(draft.add_bos, draft.bos)
        failed.append(_reason("start token", *values, "they put different tokens before a text"))
    if target.add_eos != draft.add_eos or (target.add_eos and target.eos != draft.eos):
        values = target.shown(target.add_eos, target.eos), draft.shown(draft.add_eos, draft.eos)
        failed.append(_reason("end token", *values, "they put different tokens after a text"))
    sizes = len(target.tokens), len(draft.tokens)
    if abs(sizes[0] - sizes[1]) > MAX_SIZE_DIFFERENCE:
        text = f"their vocabularies differ by more than {MAX_SIZE_DIFFERENCE} tokens"
        failed.append(_reason("vocabulary size", f"{sizes[0]:,}", f"{sizes[1]:,}", text))
    elif target.kind == draft.kind:
        token = target.tokens.first_difference(draft.tokens, FIRST_COMPARED_ID)
        if token is not None:
            texts = repr(target.tokens[token]), repr(draft.tokens[token])
            failed.append(_reason("token text", *texts, f"token {token} means different texts to them"))
    return failed


def _harmless_differences(target: _Vocabulary, draft: _Vocabulary) -> list[Reason]:
    found = []
    sizes = len(target.tokens), len(draft.tokens)
    if sizes[0] != sizes[1]:
        text = "the larger vocabulary has tokens at its end that the other lacks; they are never drafted"
        found.append(Reason("vocabulary size", f"{sizes[0]:,}", f"{sizes[1]:,}", text))
    token = target.tokens.first_difference(draft.tokens)
    if token is not None:
        texts = repr(target.tokens[token]), repr(draft.tokens[token])
        found.append(Reason("token text", *texts, f"token {token}, a special one, has different names"))
    for rule, ids in (("start token", (target.bos, draft.bos)), ("end token", (target.eos, draft.eos))):
        if ids[0] != ids[1]:
            text = f"their {rule}s differ, but neither adds one to a text"
            found.append(Reason(rule, str(ids[0]), str(ids[1]), text))
    return found


def _reason(rule: str, target_value: str, draft_value: str, text: str) -> Reason:
    values = f"target {_short(target_value)}, draft {_short(draft_value)}"
    return Reason(rule, target_value, draft_value, f"{text} ({values})", _SAME_FAMILY)


def _short(value: str) -> str:
    return value if len(value) <= 60 else f"{value[:57]}..."


# --- models that do not write text ------------------------------------------------------------------------------------

_FOR_CHAT: Final = "Choose a model that was made for chat."
_EMBEDS: Final = "is an embedding model: it turns text into vectors and cannot write", _FOR_CHAT
_HEAD: Final = (
    "is a draft head: it reads another model's hidden states and is no model by itself",
    "Choose a whole, smaller model of the target's family as the draft.",
)
_DIFFUSES: Final = "is a diffusion model: it does not write from left to right", _FOR_CHAT
_SPEAKS: Final = "is a speech model: it makes sound, not text", _FOR_CHAT
_SEES: Final = (
    "is the image encoder of another model, not a model by itself",
    "Choose the model's main file; the name of this one often starts with mmproj.",
)
# By architecture. Whether llama.cpp knows an architecture at all is for llama.cpp to say.
_NOT_GENERATIVE: Final = {
    **dict.fromkeys(["bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2"], _EMBEDS),
    **dict.fromkeys(["jina-bert-v3", "eurobert", "gemma-embedding", "llama-embed", "t5encoder"], _EMBEDS),
    **dict.fromkeys(["eagle3", "dflash", "gemma4-assistant"], _HEAD),
    **dict.fromkeys(["dream", "llada", "llada-moe", "rnd1"], _DIFFUSES),
    **dict.fromkeys(["wavtokenizer-dec", "qwen3tts", "pockettts"], _SPEAKS),
    "clip": _SEES,
    "t5": ("is an encoder-decoder model, which localspec does not run", "Choose a decoder-only model made for chat."),
}
_NOT_A_MODEL: Final = {
    "adapter": ("is a LoRA adapter, not a model by itself", "Choose the model that it belongs to."),
    "imatrix": ("is an importance matrix for quantizing, not a model", "Choose the quantized model itself."),
    "mmproj": _SEES,
}


def refuse_unless_generative(header: GgufHeader) -> None:
    """Refuse a file that holds no model that can write text.

    Raises:
        UnsupportedModelError: says what the file is and what to use instead.
        ModelFileError: a value in its metadata has the wrong type.
    """
    problem = _problem(header)
    if problem is not None:
        what, hint = problem
        raise UnsupportedModelError(f"{header.path} {what}.", hint=hint)


def _problem(header: GgufHeader) -> tuple[str, str] | None:
    architecture, kind = header.architecture, header.text("general.type")
    part, n_parts = header.integer("split.no") or 0, header.integer("split.count") or 1
    problem = None
    if part > 0:
        problem = f"is part {part + 1} of {n_parts} of a model", "Name its first part; the others are found beside it."
    elif kind in _NOT_A_MODEL:
        problem = _NOT_A_MODEL[kind]
    elif not architecture:
        problem = "names no architecture, so nothing can run it", "Choose another file of this model."
    elif architecture in _NOT_GENERATIVE:
        problem = _NOT_GENERATIVE[architecture]
    elif (
        header.flag(f"{architecture}.attention.causal") is False
        or (header.integer(f"{architecture}.pooling_type") or 0) > 0
    ):
        problem = _EMBEDS
    elif not header.tensors and n_parts == 1:  # the first part of several may hold metadata only
        problem = "holds a vocabulary only, no weights", "Choose the file with the model's weights."
    elif _vocabulary(header) is None:
        problem = "has no tokenizer, so text cannot be read or written", "Choose another file of this model."
    return problem
