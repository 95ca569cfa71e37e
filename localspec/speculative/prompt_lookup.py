"""Proposals copied from the text so far: what followed an earlier occurrence of the present n-gram.

Code, quotations and edits repeat their input, and a copied proposal costs no forward pass.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

from localspec.speculative.drafter import EMPTY_DRAFT, Draft, Drafting, WantsAnother

_NOWHERE: Final = -1
# Of the occurrences of the present n-gram so many are compared, the latest first, over so much of what precedes them.
_MOST_OCCURRENCES: Final = 8
MOST_MATCHING: Final = 32


class PromptLookup:
    """Drafter that looks up the longest n-gram ending the history and proposes what followed it earlier.

    Of several earlier occurrences it takes the one that agrees with the present text for longest, the latest of equals.

    The index is incremental: appending a token enters the n-grams that end at it and notes, per length, where the same
    n-gram ended before. The match of the present end is then one array entry, whatever the length of the history, and
    taking tokens back undoes the entries one by one. Drafts never enter it: it follows the committed history only.

    Raises:
        ValueError: not 1 <= min_ngram <= max_ngram.
    """

    def __init__(self, min_ngram: int = 2, max_ngram: int = 4) -> None:
        if not 1 <= min_ngram <= max_ngram:
            raise ValueError(
                f"min_ngram is {min_ngram} and max_ngram {max_ngram}; 1 <= min_ngram <= max_ngram must hold."
            )
        self._tokens: list[int] = []
        # Where each n-gram ended last. An end is the index after the n-gram: that of the token which followed it.
        self._latest: dict[tuple[int, ...], int] = {}
        # Per length n, longest first: at [end - 1], where the n-gram that ends at `end` had ended before.
        self._earlier = {n: array("i") for n in range(max_ngram, min_ngram - 1, -1)}
        self._found = (0, 0, 0)  # the length of the history, and what `_match` found for it

    def start(self, history: Sequence[int]) -> None:
        """Keep the index of the prefix that `history` shares with the text before; drop the rest."""
        n_shared = 0
        for ours, theirs in zip(self._tokens, history, strict=False):
            if ours != theirs:
                break
            n_shared += 1
        if n_shared < len(self._tokens) // 2:
            self._forget()  # indexing the shared half again is cheaper than undoing the other one
        while len(self._tokens) > n_shared:
            self._drop_last()

    def prefill(self, history: Sequence[int], max_tokens: int) -> int:
        """Index at most `max_tokens` more of `history`; how many remain."""
        n_indexed = len(self._tokens)
        for token in history[n_indexed : n_indexed + max_tokens]:
            self._append(token)
        return len(history) - len(self._tokens)

    def n_unread(self, history: Sequence[int]) -> int:  # noqa: ARG002 - the protocol's signature
        """None: looking up is indexing."""
        return 0

    def n_matching(self, history: Sequence[int]) -> int:
        """Tokens at the end of `history` that also precede what would be copied, counted up to `MOST_MATCHING`.

        0: there is nothing to copy.
        """
        return self._match(history)[1]

    def propose(
        self,
        history: Sequence[int],
        n_draft: int,
        wants_another: WantsAnother | None = None,  # noqa: ARG002 - a copy is free: there is nothing to ask
    ) -> Drafting:
        """Up to `n_draft` tokens, without a pass; none when no n-gram at the end of `history` occurred before.

        A continuation that runs into the end of the history goes on from its own first token, as if the text repeated
        with that period: after "a b a b" come "a b a b ...", and a run of one token continues as a run.
        """
        yield from ()
        match, n_matching = self._match(history)
        if not n_matching:
            return EMPTY_DRAFT
        continuation = self._tokens[match : match + n_draft]
        period = len(self._tokens) - match
        for i in range(len(continuation), n_draft):
            continuation.append(continuation[i - period])
        return Draft(tuple(continuation))

    def _match(self, history: Sequence[int]) -> tuple[int, int]:
        """Where the best occurrence ends, and how many tokens before that are those at the end of `history`."""
        self.prefill(history, len(history))
        end = len(self._tokens)
        if self._found[0] == end:
            return self._found[1:]
        match, n_matching = 0, 0
        for earlier in self._earlier.values():
            at = earlier[-1] if earlier else _NOWHERE
            n_seen = 0
            while at != _NOWHERE and n_seen < _MOST_OCCURRENCES and n_matching < MOST_MATCHING:
                n = self._n_common(at, end)
                if n > n_matching:
                    match, n_matching = at, n
                at = earlier[at - 1]
                n_seen += 1
            if n_seen:
                break
        self._found = (end, match, n_matching)
        return match, n_matching

    def _n_common(self, left_end: int, right_end: int) -> int:
        tokens = self._tokens
        most = min(left_end, MOST_MATCHING)
        return next((n for n in range(most) if tokens[left_end - 1 - n] != tokens[right_end - 1 - n]), most)

    def observe(self, tokens: Sequence[int], position: int, first_row: int) -> None:
        """Nothing to learn: the text is all there is."""

    def commit(self, tokens: Sequence[int], n_accepted: int) -> None:
        """Nothing to take back: the index follows the history that `propose` is given."""

    def close(self) -> None:
        """Nothing to free: the index stays, and the next `start` keeps what its prompt shares with it."""

    def _forget(self) -> None:
        self._found = (0, 0, 0)
        self._tokens.clear()
        self._latest.clear()
        for earlier in self._earlier.values():
            del earlier[:]

    def _append(self, token: int) -> None:
        self._found = (0, 0, 0)
        self._tokens.append(token)
        end = len(self._tokens)
        for n, earlier in self._earlier.items():
            if n > end:
                earlier.append(_NOWHERE)
                continue
            ngram = tuple(self._tokens[end - n :])
            earlier.append(self._latest.get(ngram, _NOWHERE))
            self._latest[ngram] = end

    def _drop_last(self) -> None:
        self._found = (0, 0, 0)
        end = len(self._tokens)
        for n, earlier in self._earlier.items():
            before = earlier.pop()
            if n > end:
                continue
            ngram = tuple(self._tokens[end - n :])
            if before == _NOWHERE:
                del self._latest[ngram]
            else:
                self._latest[ngram] = before
        self._tokens.pop()
