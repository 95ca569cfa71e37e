from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.speculative.prompt_lookup import MOST_MATCHING, PromptLookup
from tests.speculative.drafts import drafted_at_once


def n_common(left: Sequence[int], right: Sequence[int]) -> int:
    """Length of the common end, up to what is counted."""
    n = 0
    while n < min(len(left), len(right), MOST_MATCHING) and left[-1 - n] == right[-1 - n]:
        n += 1
    return n


def by_scanning(history: Sequence[int], n_draft: int, min_ngram: int, max_ngram: int) -> tuple[int, ...]:
    """The same proposal, found by reading the whole history."""
    history = list(history)
    for n in range(max_ngram, min_ngram - 1, -1):
        ends = [end for end in range(len(history) - 1, n - 1, -1) if history[end - n : end] == history[-n:]]
        if ends:
            end = max(ends[:8], key=lambda end: n_common(history[:end], history))  # the first of equals: the latest
            copied = list(history)
            for i in range(n_draft):
                copied.append(copied[end + i])
            return tuple(copied[len(history) :])
    return ()


def proposal(history: Sequence[int], n_draft: int = 4, **lengths: int) -> tuple[int, ...]:
    lookup = PromptLookup(**lengths)
    lookup.start(history)
    draft = drafted_at_once(lookup.propose(history, n_draft))
    assert draft.distributions is None
    return draft.tokens


texts = st.lists(st.integers(0, 3), max_size=40)


@given(texts, st.integers(1, 9), st.integers(1, 3), st.integers(0, 3))
def test_proposals_are_those_of_a_scan(history, n_draft, min_ngram, more):
    found = proposal(history, n_draft, min_ngram=min_ngram, max_ngram=min_ngram + more)
    assert found == by_scanning(history, n_draft, min_ngram, min_ngram + more)


@given(st.lists(st.tuples(texts, st.integers(0, 40), st.lists(texts, max_size=3), st.integers(1, 20)), max_size=6))
@settings(max_examples=150)
def test_one_object_serves_many_requests_as_a_fresh_one_would(requests):
    lookup = PromptLookup()
    before: list[int] = []
    for new, n_kept, steps, chunk in requests:
        history = before[:n_kept] + new  # a prefix of the text before, then something else
        lookup.start(history)
        pending = len(history)
        while pending:
            left = lookup.prefill(history, chunk)
            assert left < pending
            pending = left
        for committed in steps:
            assert drafted_at_once(lookup.propose(history, 5)).tokens == by_scanning(history, 5, 2, 4)
            history += committed
            lookup.commit(committed, 0)
        before = history


def test_a_longer_match_wins_over_a_more_recent_one():
    assert proposal([1, 2, 3, 50, 9, 2, 3, 60, 8, 1, 2, 3], 1) == (50,)


def test_of_equal_matches_the_most_recent_wins():
    assert proposal([1, 2, 50, 1, 2, 60, 1, 2], 1) == (60,)


def test_an_occurrence_that_agrees_for_longer_wins_over_a_more_recent_one():
    text = [5, 1, 2, 3, 4, 50, 6, 1, 2, 3, 4, 60, 5, 1, 2, 3, 4]
    assert proposal(text, 1) == (50,)
    lookup = PromptLookup()
    assert lookup.n_matching(text) == 5
    assert lookup.n_matching([*text, 50]) == 6
    lookup.start([1, 2])
    assert lookup.n_matching([1, 2]) == 0


def test_how_much_matches_is_counted_up_to_a_limit():
    assert PromptLookup().n_matching([7] * 200) == MOST_MATCHING


def test_the_end_does_not_match_itself():
    assert proposal([1, 2, 3, 4]) == ()
    assert proposal([7]) == ()
    assert proposal([]) == ()


def test_an_ngram_below_the_minimum_is_no_match():
    assert proposal([5, 1, 6, 1]) == ()
    assert proposal([5, 1, 6, 1], min_ngram=1) == (6, 1, 6, 1)


def test_repetition_goes_on_with_its_period():
    assert proposal([7, 7, 7, 7], 6) == (7,) * 6
    assert proposal([1, 2, 3, 1, 2, 3], 7) == (1, 2, 3, 1, 2, 3, 1)


def test_a_long_continuation_is_copied_as_it_stands():
    assert proposal([1, 2, 11, 12, 13, 14, 15, 1, 2], 4) == (11, 12, 13, 14)


def test_a_rejected_draft_leaves_no_trace():
    lookup = PromptLookup()
    history = [1, 2, 3, 1, 2]
    lookup.start(history)
    assert drafted_at_once(lookup.propose(history, 3)).tokens == (3, 1, 2)
    lookup.commit([9], 0)
    history += [9, 1, 2]
    assert drafted_at_once(lookup.propose(history, 3)).tokens == (9, 1, 2)
    lookup.commit((), 0)
    assert drafted_at_once(lookup.propose(history, 3)).tokens == (9, 1, 2)


def test_a_step_without_a_draft_is_caught_up_with():
    lookup = PromptLookup()
    history = [1, 2, 3]
    lookup.start(history)
    history += [4, 1, 2]
    assert drafted_at_once(lookup.propose(history, 2)).tokens == (3, 4)


def test_a_closed_index_serves_the_next_request():
    lookup = PromptLookup()
    drafted_at_once(lookup.propose([1, 2, 3, 1, 2], 2))
    lookup.observe([], 0, 0)
    lookup.close()
    lookup.close()
    lookup.start([1, 2, 3, 9])
    assert lookup.prefill([1, 2, 3, 9], 0) == 1  # only what the two prompts do not share
    assert drafted_at_once(lookup.propose([1, 2, 3, 9, 1, 2], 2)).tokens == (3, 9)


@pytest.mark.parametrize(("low", "high"), [(0, 4), (-1, 2), (3, 2)])
def test_impossible_ngram_lengths_are_refused(low, high):
    with pytest.raises(ValueError, match=f"min_ngram is {low} and max_ngram {high}"):
        PromptLookup(low, high)


class CountedToken(int):
    """A token that counts how often it is hashed or compared, also by C code."""

    n_touched = 0

    def __hash__(self) -> int:
        CountedToken.n_touched += 1
        return int.__hash__(self)

    def __eq__(self, other: object) -> bool:
        CountedToken.n_touched += 1
        return int.__eq__(self, other)


class CountedHistory(Sequence):
    """A history that counts how many of its items are read."""

    def __init__(self, tokens: list[int]) -> None:
        self.tokens = tokens
        self.n_read = 0

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, at):
        found = self.tokens[at]
        self.n_read += len(found) if isinstance(at, slice) else 1
        return found


def work_per_step(tokens: list[int]) -> tuple[int, int]:
    """(tokens hashed or compared, items of the history read) by the costliest of 20 steps of 3 tokens each."""
    lookup = PromptLookup()
    history = CountedHistory([CountedToken(token) for token in tokens])
    lookup.start(history)
    lookup.prefill(history, len(history))
    touched = read = 0
    for i in range(20):
        history.tokens += map(CountedToken, (i % 5, 1, 2))
        history.n_read = CountedToken.n_touched = 0
        drafted_at_once(lookup.propose(history, 8))
        touched, read = max(touched, CountedToken.n_touched), max(read, history.n_read)
    return touched, read


@pytest.mark.parametrize("n_distinct", [1, 50, 30_000])
def test_a_step_costs_the_same_after_any_history(n_distinct):
    rng = np.random.default_rng(1)
    tokens = rng.integers(n_distinct, size=32_768).tolist()
    touched, read = work_per_step(tokens)
    assert read == 3
    # Three new tokens, each ending n-grams of 2 + 3 + 4 tokens: hashed and compared once to look up, once to store.
    assert touched <= 3 * (2 + 3 + 4) * 2 * 2


def test_the_next_turn_reuses_the_index_of_the_turns_before():
    tokens = np.random.default_rng(2).integers(500, size=20_000).tolist()
    lookup = PromptLookup()
    lookup.start(tokens)
    lookup.prefill(tokens, len(tokens))
    next_turn = [CountedToken(token) for token in [*tokens[:-10], *range(30)]]
    CountedToken.n_touched = 0
    lookup.start(next_turn)
    assert lookup.prefill(next_turn, 0) == 30
    lookup.prefill(next_turn, 30)
    compared_with_the_text_before = len(tokens)
    assert CountedToken.n_touched < compared_with_the_text_before + 2000
    assert drafted_at_once(lookup.propose(next_turn, 5)).tokens == by_scanning(next_turn, 5, 2, 4)
