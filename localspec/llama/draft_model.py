"""A second, small model that proposes tokens: it samples from its own transformed distribution and hands that over."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from typing import Final

from localspec.errors import LocalspecError
from localspec.llama.sampler import SamplerChain
from localspec.llama.sequence_cache import SequenceCache
from localspec.speculative.distribution import RandomSource, TokenDistribution
from localspec.speculative.drafter import EMPTY_DRAFT, Draft, Drafting, PassRow, WantsAnother

logger = logging.getLogger(__name__)

# A pass that other sequences share has room for so many tokens of each.
_MOST_AT_ONCE: Final = 32


def read_in_one_pass(reads: Sequence[tuple[SequenceCache, Sequence[int]]]) -> list[int]:
    """Put tokens into caches of one context, in one pass; the rows whose logits follow the last token of each.

    Raises:
        LocalspecError: the pass failed. Where the caches' contents are then unknown, they are cleared.
    """
    context = reads[0][0].context
    try:
        rows = [cache.add(tokens, n_outputs=1) + len(tokens) - 1 for cache, tokens in reads]
        context.decode()
    except BaseException:
        context.discard_batch()
        for cache, _ in reads:
            cache.clear()
        raise
    for cache, tokens in reads:
        cache.confirm(tokens)
    return rows


class DraftModelDrafter:
    """Implements `Drafter` for one request. The cache belongs to the caller and outlives it."""

    def __init__(
        self,
        cache: SequenceCache,
        make_sampler: Callable[[], SamplerChain],
        rng: RandomSource,
        *,
        greedy: bool,
        ends_generation: Callable[[int], bool],
    ) -> None:
        """`make_sampler` makes the request's chain; `greedy` says whether it leaves one token."""
        self._cache = cache
        self._rng = rng
        self._is_greedy = greedy
        self._ends_generation = ends_generation
        # Where samplers have state, one follows the committed text and a second runs ahead over the draft.
        self._committed = make_sampler()
        self._ahead = make_sampler() if self._committed.has_state else self._committed
        self._has_given_up = False
        self._n_history: int | None = None  # length of the history under the open draft

    def close(self) -> None:
        """Free the samplers."""
        self._committed.close()
        self._ahead.close()

    def start(self, history: Sequence[int]) -> None:
        """Begin a request whose prompt is `history`."""
        self._cache.keep_common_prefix(history)
        self._committed.accept_prompt(history)

    def prefill(self, history: Sequence[int], max_tokens: int) -> int:
        """Decode at most `max_tokens` of what the cache lacks; returns how many are still pending.

        The last token of the history does not count: the first draft decodes it. A history that is longer than the
        draft model's context is not worth the work: nothing will be proposed after it.
        """
        n_pending = len(history) - 1 - self._cache.n_past
        n = min(n_pending, max_tokens, self._cache.context.n_batch)
        chunk = history[self._cache.n_past :][:n]
        is_too_long = len(history) >= self._cache.context.n_ctx
        if n_pending <= 0 or is_too_long or self._has_given_up or not self._can_read(chunk):
            return 0
        try:
            self._cache.feed(chunk, n_outputs=0)
        except LocalspecError as error:
            self._give_up(error)
            return 0
        return n_pending - n

    def n_unread(self, history: Sequence[int]) -> int:
        """What the cache lacks: one token, or two after a draft that was accepted whole; more after a rest."""
        return len(history) - self._cache.n_past

    def propose(self, history: Sequence[int], n_draft: int, wants_another: WantsAnother | None = None) -> Drafting:
        """Sample up to `n_draft` tokens after `history`; an end-of-generation token is the last.

        Each pass puts what it yields into the cache, see `read_in_one_pass`.
        """
        n_draft = min(n_draft, self._cache.context.n_ctx - len(history))
        if n_draft <= 0 or self._has_given_up:
            return EMPTY_DRAFT
        self._n_history = len(history)
        tokens: list[int] = []
        distributions: list[TokenDistribution] = []
        try:
            pending = yield from self._catch_up(history)
            while pending:
                row, n_sharing = yield pending
                logits = self._cache.context.logits(row)
                distribution = self._ahead.distribution(logits)
                token = distribution.sample(self._rng)
                tokens.append(token)
                distributions.append(distribution)
                is_enough = wants_another is not None and not wants_another(
                    # A greedy draft is certain of itself by construction: how sure the model is, its logits tell.
                    self._ahead.confidence(logits) if self._is_greedy else distribution.probability(token),
                    n_sharing,
                )
                if is_enough or len(tokens) == n_draft or self._ends_generation(token):
                    break
                if self._ahead is not self._committed:
                    self._ahead.accept(token)
                pending = [token]
        except LocalspecError as error:
            self._give_up(error)
        if self._is_greedy or all(each.is_one_hot for each in distributions):
            return Draft(tuple(tokens))
        return Draft(tuple(tokens), tuple(distributions))

    def _give_up(self, error: LocalspecError) -> None:
        """A draft model that fails costs speed; the reply is the target's."""
        self._has_given_up = True
        logger.warning("The draft model stops drafting for this reply: %s", error)

    def _catch_up(self, history: Sequence[int]) -> Generator[Sequence[int], PassRow, list[int]]:
        """Read all but the last few of what is pending; returns those, or nothing where they cannot be read."""
        cache = self._cache
        n_most = min(_MOST_AT_ONCE, cache.context.n_batch)
        while len(history) - cache.n_past > n_most:
            chunk = history[cache.n_past :][:n_most]
            if not self._can_read(chunk):
                return []
            yield chunk
        if self._ahead is not self._committed:
            self._ahead.copy_state_from(self._committed)
        # One token, or two when the last draft was accepted whole: the model has not seen its own last token.
        pending = list(history[cache.n_past :])
        return pending if self._can_read(pending) else []

    def _can_read(self, tokens: Sequence[int]) -> bool:
        """False where the text has a token that only the target's larger vocabulary knows: no draft can follow it."""
        return max(tokens, default=0) < self._cache.context.n_vocab

    def observe(self, tokens: Sequence[int], position: int, first_row: int) -> None:
        """Nothing: a draft model keeps a cache of its own and reads no hidden state of the target."""

    def commit(self, tokens: Sequence[int], n_accepted: int) -> None:
        """Follow the committed tokens and drop the rejected ones from the cache."""
        for token in tokens:
            self._committed.accept(token)
        if self._n_history is not None:
            self._cache.rollback(self._n_history + n_accepted)
            self._n_history = None
