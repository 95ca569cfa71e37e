"""Token distributions: what a row of the target or of the draft model turns into after every transform."""

from __future__ import annotations

import math
from typing import Final, Protocol, Self

import numpy as np
import numpy.typing as npt

TokenIds = npt.NDArray[np.int32]
Probabilities = npt.NDArray[np.float64]

# Up to this many comparisons, matching two supports pairwise is faster than through a table indexed by token id.
_MAX_PAIRWISE: Final = 4096

_CERTAINTY: Final = np.ones(1)
_CERTAINTY.setflags(write=False)


class RandomSource(Protocol):
    """Where uniform numbers come from. A `numpy.random.Generator` and a `random.Random` are ones."""

    def random(self) -> float:
        """A number in [0, 1)."""


class TokenDistribution:
    """Probabilities of the tokens that can come next; a token that is not listed has probability 0.

    Never empty, every listed probability is above 0, they sum to 1 up to rounding, no token is listed twice.
    Immutable by convention. Sampling walks the tokens in the order in which they were given: sorting a whole
    vocabulary takes longer than everything else that verification does with it, so the sorted view is made on demand.
    """

    __slots__ = ("_ids", "_probs", "_ranked")

    def __init__(self, ids: TokenIds, probs: Probabilities) -> None:
        """Wrap arrays of shape [n] that already hold a distribution; nothing is checked or copied."""
        self._ids = ids
        self._probs = probs
        self._ranked: tuple[TokenIds, Probabilities] | None = None

    @classmethod
    def one_hot(cls, token: int) -> Self:
        """All probability on one token."""
        return cls(np.array([token], dtype=np.int32), _CERTAINTY)

    @classmethod
    def from_logits(cls, ids: npt.ArrayLike, logits: npt.ArrayLike) -> Self:
        """Softmax in float64 of `logits` [n], the scores of `ids` [n]; -inf means impossible. Copies both.

        Raises:
            ValueError: the shapes differ, a logit is NaN or +inf, or every token is impossible.
        """
        ids, scores = _paired(ids, logits)
        highest = float(scores[scores.argmax()])  # NaN counts as the largest
        if not math.isfinite(highest):
            problem = "no token is possible" if highest == -math.inf else f"the highest is {highest}"
            raise ValueError(f"{scores.size} logits make no distribution: {problem}.")
        scores -= highest
        return cls._from_weights(ids, np.exp(scores, out=scores))

    @classmethod
    def from_probabilities(cls, ids: npt.ArrayLike, probs: npt.ArrayLike) -> Self:
        """Normalise `probs` [n], the weights of `ids` [n]; zeros are dropped. Copies both.

        Raises:
            ValueError: the shapes differ, a weight is negative, NaN or infinite, or all are zero.
        """
        ids, weights = _paired(ids, probs)
        if not (weights.min() >= 0.0 and 0.0 < weights.sum() < math.inf):
            raise ValueError(
                f"{weights.size} weights make no distribution: lowest {weights.min()}, sum {weights.sum()}; "
                "they must be finite, none negative, one at least above 0."
            )
        return cls._from_weights(ids, weights)

    @classmethod
    def _from_weights(cls, ids: TokenIds, weights: Probabilities) -> Self:
        probs = weights / np.add.reduce(weights)
        # Zeros are dropped after the division, which can take the smallest weights to 0.
        possible = probs.nonzero()[0]
        return cls(ids, probs) if possible.size == probs.size else cls(ids[possible], probs[possible])

    @property
    def ids(self) -> TokenIds:
        """Token ids [n], the most probable first; equals keep the order in which they were given."""
        return self._sorted()[0]

    @property
    def probs(self) -> Probabilities:
        """Probabilities [n] of `ids`, descending."""
        return self._sorted()[1]

    @property
    def is_one_hot(self) -> bool:
        """True when only one token is possible."""
        return self._ids.size == 1

    @property
    def top(self) -> int:
        """The most probable token; of equals, the one that was given first."""
        return int(self._ids[self._probs.argmax()])

    def __len__(self) -> int:
        return self._ids.size

    def __repr__(self) -> str:
        return f"<TokenDistribution of {len(self)}, top {self.top}: {self._probs.max():.4g}>"

    def probability(self, token: int) -> float:
        """Probability of `token`; 0.0 when it is not listed."""
        at = (self._ids == token).argmax()
        return float(self._probs[at]) if self._ids[at] == token else 0.0

    def sample(self, rng: RandomSource) -> int:
        """Draw a token by inverse CDF: one number from `rng`, none when the distribution is one-hot."""
        if self.is_one_hot:
            return int(self._ids[0])
        cumulative = self._probs.cumsum()
        # u < 1 keeps the product below the last entry, also in floating point: the index is always in range.
        return int(self._ids[cumulative.searchsorted(rng.random() * cumulative[-1], side="right")])

    def excess(self, draft: TokenDistribution, weight: float = 1.0) -> Probabilities:
        """max(0, weight * self - draft), token by token in an order of our own, [n]."""
        return np.maximum(weight * self._probs - draft._probabilities_of(self._ids), 0.0)

    def residual(self, draft: TokenDistribution, weight: float = 1.0) -> TokenDistribution | None:
        """Normalised `excess`: what is left of the target once `draft` has had its share.

        None when nothing is left: no token is more probable here than in `draft`.
        """
        excess = self.excess(draft, weight)
        return self._from_weights(self._ids, excess) if excess.any() else None

    def without(self, token: int) -> TokenDistribution | None:
        """The law given that the token is not `token`; None when no other one is possible."""
        others = self._ids != token
        return self._from_weights(self._ids[others], self._probs[others]) if others.any() else None

    def _probabilities_of(self, ids: TokenIds) -> Probabilities:
        if self._ids.size * ids.size <= _MAX_PAIRWISE:
            # Each row has at most one match, so the product picks values and never rounds.
            matched: Probabilities = (ids[:, None] == self._ids) @ self._probs
            return matched
        table = np.zeros(max(int(ids.max()), int(self._ids.max())) + 1)
        table[self._ids] = self._probs
        return table[ids]

    def _sorted(self) -> tuple[TokenIds, Probabilities]:
        if self._ranked is None:
            order = np.argsort(-self._probs, kind="stable")
            self._ranked = (self._ids[order], self._probs[order])
        return self._ranked


def _paired(ids: npt.ArrayLike, values: npt.ArrayLike) -> tuple[TokenIds, Probabilities]:
    # Copies always: callers hand over views of native memory that the next decode overwrites.
    tokens, numbers = np.array(ids, dtype=np.int32), np.array(values, dtype=np.float64)
    if tokens.ndim != 1 or tokens.shape != numbers.shape or not tokens.size:
        raise ValueError(
            f"Token ids {tokens.shape} and their values {numbers.shape} must be two lists of one length above 0."
        )
    return tokens, numbers
