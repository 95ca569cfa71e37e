"""verify_block(): lossless by enumeration, whatever ends a draft, and never behind token by token."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.speculative.block_verification import verify_block
from localspec.speculative.distribution import TokenDistribution
from localspec.speculative.drafter import EMPTY_DRAFT, Draft
from localspec.speculative.rejection import Origin, Verification, verify
from tests.speculative.exact_law import (
    Law,
    MemorylessRows,
    Table,
    TableRows,
    Trace,
    dense_proposals,
    distribution,
    exact_law,
    largest_difference,
    random_table,
    sequence_law,
)

HISTORY = (1, 0)
# Whether to go on, by the tokens drafted so far: all that a drafter may look at.
GoesOn = Callable[[tuple[int, ...]], bool]


def drafts(table: Table, n_draft: int, goes_on: GoesOn, end_token: int | None) -> Iterator[tuple[Draft, float]]:
    """Every draft that a model with this table and stopping rule can sample, and how probable it is."""

    def longer(tokens: tuple[int, ...], probability: float) -> Iterator[tuple[Draft, float]]:
        if tokens and (len(tokens) == n_draft or tokens[-1] == end_token or not goes_on(tokens)):
            laws = tuple(distribution(table((*HISTORY, *tokens[:i]))) for i in range(len(tokens)))
            yield Draft(tokens, laws), probability
            return
        for token, p in enumerate(table((*HISTORY, *tokens))):
            if p > 0:
                yield from longer((*tokens, token), probability * float(p))

    return longer((), 1.0)


def step_law(target: Table, draft: Draft, n_vocab: int, end_token: int | None) -> dict[Verification, float]:
    proposals = dense_proposals(draft, n_vocab)
    return exact_law(
        lambda rng, trace: verify_block(
            draft, MemorylessRows(target, HISTORY, proposals, trace), rng, ends_generation=lambda t: t == end_token
        )
    )


def assert_lossless(
    target: Table,
    draft_model: Table,
    n_draft: int,
    n_vocab: int,
    goes_on: GoesOn = lambda tokens: True,
    end_token: int | None = None,
) -> None:
    n_tokens = n_draft + 1
    law: Law = defaultdict(float)
    for draft, p in drafts(draft_model, n_draft, goes_on, end_token):
        for verification, q in step_law(target, draft, n_vocab, end_token).items():
            tokens = verification.tokens
            ended = tokens[-1] == end_token
            rest = {(): 1.0} if ended else sequence_law(target, (*HISTORY, *tokens), n_tokens - len(tokens), end_token)
            for more, r in rest.items():
                law[tokens + more] += p * q * r
    assert largest_difference(law, sequence_law(target, HISTORY, n_tokens, end_token)) < 1e-12


STYLES = ["dense", "zeros", "ties", "greedy", "uniform"]


@pytest.mark.parametrize("target_style", STYLES)
@pytest.mark.parametrize("draft_style", STYLES)
@pytest.mark.parametrize(("n_draft", "n_vocab"), [(1, 4), (2, 3), (3, 2)])
def test_it_is_lossless(target_style, draft_style, n_draft, n_vocab):
    assert_lossless(random_table(41, n_vocab, target_style), random_table(42, n_vocab, draft_style), n_draft, n_vocab)


RULES: dict[str, GoesOn] = {
    "stops after a 0": lambda tokens: tokens[-1] != 0,
    "stops after the second token if it repeats the first": lambda tokens: len(tokens) < 2 or tokens[0] != tokens[1],
    "stops by a sum": lambda tokens: sum(tokens) < 2,
    "stops after one": lambda tokens: False,
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("style", ["dense", "zeros"])
def test_it_is_lossless_for_drafts_that_stop_by_their_own_tokens(rule, style):
    target, draft_model = random_table(43, 3, style), random_table(44, 3)
    assert_lossless(target, draft_model, 3, 3, RULES[rule])


@pytest.mark.parametrize("end_token", [0, 1])
def test_it_is_lossless_through_an_end_of_generation(end_token):
    assert_lossless(random_table(45, 2), random_table(46, 2), 3, 2, end_token=end_token)


def test_a_stopping_rule_that_drops_a_token_for_what_it_is_would_not_be():
    """The counterexample to the sentence in `Drafter.propose`: here the rule looks at the token before keeping it."""
    target, draft_model = random_table(47, 2), random_table(48, 2)
    law: Law = defaultdict(float)
    for draft, p in drafts(draft_model, 1, lambda tokens: True, None):
        kept = draft if draft.tokens[0] == 0 else EMPTY_DRAFT
        outcomes = (
            step_law(target, kept, 2, None)
            if kept
            else {Verification((t,), (Origin.TARGET,), 0): float(q) for t, q in enumerate(target(HISTORY))}
        )
        for verification, q in outcomes.items():
            law[verification.tokens[:1]] += p * q
    assert largest_difference(law, sequence_law(target, HISTORY, 1, None)) > 0.01


weights = st.lists(st.sampled_from([0.0, 0.0, 1e-3, 0.1, 0.5, 1.0, 3.0]), min_size=3, max_size=3).filter(any)


@given(st.lists(weights, min_size=4, max_size=4), st.lists(weights, min_size=4, max_size=4))
@settings(max_examples=40)
def test_it_is_lossless_for_any_tables(of_target, of_draft):
    """Laws that depend on the last token (row 0 on none), zeros and tiny numbers included."""

    def table(rows) -> Table:
        laws = [np.array(row) / sum(row) for row in rows]
        return lambda history: laws[0] if len(history) == len(HISTORY) else laws[1 + history[-1]]

    assert_lossless(table(of_target), table(of_draft), 2, 3)


def accepted(target: Table, draft_model: Table, n_draft: int, n_vocab: int, *, jointly: bool) -> float:
    """Expected accepted tokens per step."""
    expected = 0.0
    for draft, p in drafts(draft_model, n_draft, lambda tokens: True, None):
        proposals = dense_proposals(draft, n_vocab)
        if jointly:
            law = step_law(target, draft, n_vocab, None)
        else:
            law = exact_law(
                lambda rng, trace, draft=draft, proposals=proposals: verify(
                    draft, TableRows(target, HISTORY, proposals, trace), rng, ends_generation=lambda t: False
                )
            )
        expected += p * sum(q * verification.n_accepted for verification, q in law.items())
    return expected


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("style", ["dense", "zeros"])
def test_it_accepts_no_fewer_tokens_than_token_by_token(seed, style):
    target, draft_model = random_table(seed, 3, style), random_table(seed + 50, 3)
    block = accepted(target, draft_model, 3, 3, jointly=True)
    token_by_token = accepted(target, draft_model, 3, 3, jointly=False)
    assert block >= token_by_token - 1e-12
    if style == "dense":
        assert block > token_by_token + 1e-3


def test_the_example_of_the_paper():
    """Target (1/3, 2/3), draft (2/3, 1/3), independent, two tokens: 10/9 accepted one by one, 11/9 as a block."""
    target, draft_model = np.array([1 / 3, 2 / 3]), np.array([2 / 3, 1 / 3])
    assert accepted(lambda _: target, lambda _: draft_model, 2, 2, jointly=False) == pytest.approx(10 / 9)
    assert accepted(lambda _: target, lambda _: draft_model, 2, 2, jointly=True) == pytest.approx(11 / 9)


def run(draft: Draft, target: Table, numbers: list[float], end_token: int = -1) -> tuple[Verification, MemorylessRows]:
    class Numbers:
        def random(self) -> float:
            return numbers.pop(0)

    rows = MemorylessRows(target, HISTORY, dense_proposals(draft, len(target(HISTORY))), Trace())
    return verify_block(draft, rows, Numbers(), ends_generation=lambda t: t == end_token), rows


def test_rows_behind_a_token_that_the_target_excludes_are_not_evaluated():
    law = distribution(np.array([0.5, 0.5]))
    verification, rows = run(Draft((0, 1, 0), (law,) * 3), lambda _: np.array([1.0, 0.0]), [])
    assert (verification.tokens, verification.n_accepted, rows.n_read) == ((0, 0), 1, 2)
    assert rows.accepted == [0, 0]


def test_nothing_follows_an_accepted_end_of_generation_and_no_number_is_drawn_for_what_is_certain():
    law = distribution(np.array([0.25, 0.75]))
    verification, rows = run(Draft((0, 1), (law, law)), lambda _: np.array([0.25, 0.75]), [], end_token=1)
    assert verification == Verification((0, 1), (Origin.DRAFT, Origin.DRAFT), 2)
    assert rows.n_read == 2


def test_an_empty_draft_is_a_plain_step():
    verification, _ = run(Draft((), ()), lambda _: np.array([0.5, 0.5]), [0.7])
    assert verification == Verification((1,), (Origin.TARGET,), 0)


def test_rounding_that_leaves_no_excess_falls_back_to_the_target():
    """The draft claims a last bit more than the target for every token: rejected with nothing left to draw from."""
    source = TokenDistribution(np.array([0, 1], np.int32), np.array([0.5000000000000001, 0.5000000000000001]))
    verification, _ = run(Draft((0,), (source,)), lambda _: np.array([0.5, 0.5]), [0.9999999999999999, 0.7])
    assert verification == Verification((1,), (Origin.RESIDUAL,), 0)


def test_a_draft_without_distributions_is_not_for_it():
    with pytest.raises(ValueError, match="token by token"):
        run(Draft((0,)), lambda _: np.array([0.5, 0.5]), [])


def test_a_proposal_without_probability_in_its_own_law_is_an_error():
    with pytest.raises(ValueError, match="probability 0 in its own"):
        run(Draft((1,), (TokenDistribution.one_hot(0),)), lambda _: np.array([0.5, 0.5]), [])
