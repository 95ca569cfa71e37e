"""The few tokens of a row of logits that a sampler chain can keep, found in one pass over the row.

A row of 152k logits is 0.6 MB: reading it once takes about as long as all that is done with the tokens that survive. So
the row is dealt out into stacks like cards, token i to stack i mod n_stacks, and only the largest logit of each stack
is looked at. Where k stacks have a maximum of at least some bound, k logits reach it, so the k largest logits do too.
All tokens that reach the bound lie in the stacks whose maximum does: few, and only those are searched.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.float32]
TokenIds = NDArray[np.int32]

_MAX_DEPTH: Final = 64
_MIN_STACKS: Final = 512
_MAX_FOLD: Final = 16
_LOWEST: Final = float(np.finfo(np.float32).min)


class Shortlist:
    """Searches rows of one size. The rows hold `n_padded` logits: pad with -inf what `n_vocab` lacks."""

    def __init__(self, n_vocab: int, k: int = 1, *, slack: float = 0.0, lead: float = math.inf) -> None:
        """Look for all tokens whose logit is at least the `k`-th largest less `slack`, 0 < k <= n_vocab / 2.

        A token that is more than `lead` ahead of all others is enough by itself.

        Raises:
            ValueError: `k` is out of range.
        """
        if not self.suits(n_vocab, k):
            raise ValueError(f"The {k} largest of {n_vocab} are no shortlist.")
        self._slack, self._lead = slack, lead
        n_stacks = max(_MIN_STACKS, 2 * k)
        # A power of two divides the vocabularies of most models: their rows need no padding, hence no copy.
        self._depth = 1 << (min(_MAX_DEPTH, max(1, n_vocab // n_stacks)).bit_length() - 1)
        self._n_stacks = math.ceil(n_vocab / self._depth)
        self.n_padded = self._n_stacks * self._depth
        self._layers = np.arange(0, self.n_padded, self._n_stacks, dtype=np.int32)[:, None]
        # The k-th largest of a few coarser maxima is nearly as good a bound as that of all of them.
        fold = min(_MAX_FOLD, max(1, self._n_stacks // (4 * k)))
        n_folded = math.ceil(self._n_stacks / fold)
        self._kth = n_folded - k
        self._folded = np.full((fold, n_folded), -np.inf, np.float32)
        self._maxima = self._folded.reshape(-1)[: self._n_stacks]

    @staticmethod
    def suits(n_vocab: int, k: int) -> bool:
        """True where `k` tokens are few among `n_vocab`."""
        return 0 < 2 * k <= n_vocab

    def find(self, row: Logits) -> tuple[TokenIds, Logits]:
        """Ids, ascending, and logits of a few tokens, those that are looked for among them; -inf is left out.

        Raises:
            ValueError: a logit is NaN or +inf.
        """
        stacks = self._deal(row)
        coarse = np.maximum.reduce(self._folded, axis=0)
        coarse.sort()
        if not coarse[-1] < np.inf:  # NaN is sorted to the end
            raise ValueError("its logits are not numbers")
        ahead = float(coarse[-1]) - self._lead
        if coarse[-2] < ahead:
            ids, logits = self._reaching(stacks, ahead)
            if ids.size == 1:
                return ids, logits
        return self._reaching(stacks, max(float(coarse[self._kth]) - self._slack, _LOWEST))

    def _reaching(self, stacks: Logits, bound: float) -> tuple[TokenIds, Logits]:
        winners = (self._maxima >= bound).nonzero()[0].astype(np.int32)
        cards = stacks.take(winners, axis=1)
        reaching = cards >= bound
        return (winners + self._layers)[reaching], cards[reaching]

    def top_probability(self, row: Logits) -> float:
        """About the probability of the largest logit under the row's softmax; 0.0 where there is no largest number.

        The softmax of the stacks' maxima: the likely tokens are nearly always in different stacks, and what else is in
        a stack weighs little. Never below the true value; on rows of a model with 49k tokens at most 0.02 above it.
        """
        self._deal(row)
        top = float(np.maximum.reduce(self._maxima))
        if not math.isfinite(top):
            return 0.0
        return 1.0 / float(np.add.reduce(np.exp(self._maxima - np.float32(top))))

    def _deal(self, row: Logits) -> Logits:
        stacks = row.reshape(self._depth, self._n_stacks)
        np.maximum.reduce(stacks, axis=0, out=self._maxima)
        return stacks
