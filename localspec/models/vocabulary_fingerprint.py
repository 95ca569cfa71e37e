"""A vocabulary in 129 digests: enough to say exactly whether two models can draft for each other, without their tokens.

The rules of `compat.py` compare token texts up to the smaller of two sizes, which may differ by 128. So there is one
digest of the tokens up to each size from 128 less than the vocabulary's own on: two vocabularies have the same text for
all tokens that both have where the larger one's digest at the smaller one's size is the smaller one's last.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from localspec.models.compat import FIRST_COMPARED_ID, MAX_SIZE_DIFFERENCE
from localspec.models.vocabulary import Vocabulary

__all__ = ["VocabularyFingerprint", "compatible_groups", "fingerprint_of"]

_DIGITS: Final = 32  # hexadecimal digits of each digest


@dataclass(frozen=True, slots=True)
class VocabularyFingerprint:
    """What the rules for a pair look at. `start` and `end` are the tokens put around a text, None where none is.

    `digests` are those of the tokens up to size `n_tokens` - 128, ..., `n_tokens`, one after the other.
    """

    kind: str
    n_tokens: int
    start: int | None
    end: int | None
    digests: str

    def digest(self, n_tokens: int) -> str:
        """Of the first `n_tokens` tokens, from `n_tokens` - 128 of this vocabulary on."""
        at = (n_tokens - self.n_tokens + MAX_SIZE_DIFFERENCE) * _DIGITS
        return self.digests[at : at + _DIGITS]


def fingerprint_of(vocabulary: Vocabulary) -> VocabularyFingerprint:
    """The fingerprint of a vocabulary."""
    tokens, digest, done = vocabulary.tokens, hashlib.sha256(), FIRST_COMPARED_ID
    digests = []
    for size in range(len(tokens) - MAX_SIZE_DIFFERENCE, len(tokens) + 1):
        for piece in tokens.pieces(done, size):
            digest.update(piece)
        done = max(done, size)
        digests.append(digest.copy().hexdigest()[:_DIGITS])
    return VocabularyFingerprint(
        kind=vocabulary.kind,
        n_tokens=len(tokens),
        # A token is put there or not, and -1 stands for one that has no id: it differs from nothing put there.
        start=_put(vocabulary.add_bos, vocabulary.bos),
        end=_put(vocabulary.add_eos, vocabulary.eos),
        digests="".join(digests),
    )


def _put(is_put: bool, token: int | None) -> int | None:
    return None if not is_put else -1 if token is None else token


def compatible_groups(
    fingerprints: Iterable[VocabularyFingerprint],
) -> dict[VocabularyFingerprint, tuple[VocabularyFingerprint, ...]]:
    """For each vocabulary, those among all that can draft for it and it for them; it is one of them itself.

    Takes time in proportion to their number, not to its square.
    """
    known = dict.fromkeys(fingerprints)
    by_text = {_key(each, each.n_tokens): each for each in known}
    related: dict[VocabularyFingerprint, list[VocabularyFingerprint]] = {each: [each] for each in known}
    sizes = {each.n_tokens for each in known}
    for larger in known:
        for size in range(max(0, larger.n_tokens - MAX_SIZE_DIFFERENCE), larger.n_tokens):
            smaller = by_text.get(_key(larger, size)) if size in sizes else None
            if smaller is not None:
                related[larger].append(smaller)
                related[smaller].append(larger)
    return {each: tuple(others) for each, others in related.items()}


def _key(fingerprint: VocabularyFingerprint, n_tokens: int) -> tuple[object, ...]:
    return fingerprint.kind, fingerprint.start, fingerprint.end, n_tokens, fingerprint.digest(n_tokens)
