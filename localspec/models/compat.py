"""Whether a draft model can draft for a target: by header alone, of files with weights and without.

A draft is proposed as token ids, so both models must mean the same text by the same id. The rules are those of
llama.cpp's own speculative decoding: the same type of vocabulary, the same treatment of the start and end of a text,
sizes that differ by padding at most, and the same text for every id from 5 on that both have.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from localspec.errors import IncompatiblePairError
from localspec.models.header import GgufHeader
from localspec.models.vocabulary import Vocabulary, read_vocabulary

__all__ = [
    "FIRST_COMPARED_ID",
    "MAX_SIZE_DIFFERENCE",
    "PairVerdict",
    "Reason",
    "Verdict",
    "judge_pair",
    "require_compatible",
]

MAX_SIZE_DIFFERENCE: Final = 128  # padding to a round number of rows
FIRST_COMPARED_ID: Final = 5  # below are unknown, start, end and padding, which families rename

_SAME_FAMILY: Final = "Choose a smaller model of the target's own family and generation as the draft."


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


def judge_pair(target: GgufHeader, draft: GgufHeader) -> PairVerdict:
    """Compare the vocabularies of two models.

    Raises:
        ModelFileError: the metadata of a tokenizer has the wrong type.
    """
    ours, theirs = read_vocabulary(target), read_vocabulary(draft)
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


def require_compatible(target: GgufHeader, draft: GgufHeader) -> PairVerdict:
    """As `judge_pair`, and raise where it refuses.

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
    return verdict


def _failures(target: Vocabulary, draft: Vocabulary) -> list[Reason]:
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
            texts = target.text(token), draft.text(token)
            failed.append(_reason("token text", *texts, f"token {token} means different texts to them"))
    return failed


def _harmless_differences(target: Vocabulary, draft: Vocabulary) -> list[Reason]:
    found = []
    sizes = len(target.tokens), len(draft.tokens)
    if sizes[0] != sizes[1]:
        text = "the larger vocabulary has tokens at its end that the other lacks; they are never drafted"
        found.append(Reason("vocabulary size", f"{sizes[0]:,}", f"{sizes[1]:,}", text))
    token = target.tokens.first_difference(draft.tokens)
    if token is not None:
        texts = target.text(token), draft.text(token)
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
