"""The shortlist of a row holds what it promises, at every size and for every kind of row."""

from __future__ import annotations

import numpy as np
import pytest

from localspec.llama.shortlist import Shortlist

# Tiny; not a multiple of anything; stacks of two and of four; real ones, one of which needs padding.
SIZES = [4, 259, 1_024, 2_859, 32_000, 49_152, 50_257]
KINDS = ["smooth", "ties", "all equal", "few possible", "ascending", "spikes"]


def make_row(kind: str, n_vocab: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    row = rng.normal(0, 3, n_vocab).astype(np.float32)
    if kind == "ties":
        row = rng.integers(0, 4, n_vocab).astype(np.float32)
    elif kind == "all equal":
        row[:] = -1.5
    elif kind == "few possible":
        row[rng.permutation(n_vocab)[3:]] = -np.inf
    elif kind == "ascending":
        row.sort()
    elif kind == "spikes":
        row[rng.integers(0, n_vocab, 5)] += 20
    return row


def padded(row: np.ndarray, shortlist: Shortlist) -> np.ndarray:
    return np.concatenate([row, np.full(shortlist.n_padded - len(row), -np.inf, np.float32)])


@pytest.mark.parametrize(("n_vocab", "k"), [(n, k) for n in SIZES for k in (1, 2, 40, 129, 1_000) if 2 * k <= n])
@pytest.mark.parametrize("kind", KINDS)
def test_the_k_largest_are_among_those_found(n_vocab: int, kind: str, k: int):
    shortlist = Shortlist(n_vocab, k)
    for seed in range(3):
        row = make_row(kind, n_vocab, seed)
        ids, logits = shortlist.find(padded(row, shortlist))
        assert (np.diff(ids) > 0).all()
        np.testing.assert_array_equal(logits, row[ids])
        largest = np.sort(row[row > -np.inf])[-k:]
        np.testing.assert_array_equal(np.sort(logits)[-k:], largest)
        # Whoever equals the k-th may stand for it, so all of them are there.
        assert set(np.flatnonzero((row >= largest[0]) & (row > -np.inf))) <= set(ids)


@pytest.mark.parametrize("n_vocab", SIZES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("slack", [0.0, 0.5, 3.0, 1_000.0])
def test_all_within_the_slack_are_found(n_vocab: int, kind: str, slack: float):
    shortlist = Shortlist(n_vocab, 1, slack=slack)
    row = make_row(kind, n_vocab)
    ids, _ = shortlist.find(padded(row, shortlist))
    assert set(np.flatnonzero((row >= row.max() - slack) & (row > -np.inf))) <= set(ids)


@pytest.mark.parametrize("n_vocab", [4, 259, 2_859])
def test_who_leads_by_enough_is_enough(n_vocab: int):
    k = min(40, n_vocab // 2)
    shortlist = Shortlist(n_vocab, k, lead=3.0)
    for position in (0, 1, n_vocab // 3, n_vocab - 1):
        row = np.linspace(-1, 0, n_vocab, dtype=np.float32)
        row[position] = 3.5
        assert [each.tolist() for each in shortlist.find(padded(row, shortlist))] == [[position], [3.5]]
        # Another one that comes close, wherever it is: then the k largest count.
        for other in range(n_vocab):
            if other != position:
                close = row.copy()
                close[other] = 0.6
                ids, _ = shortlist.find(padded(close, shortlist))
                assert {position, other} <= set(ids)
                assert len(ids) >= k


@pytest.mark.parametrize("n_vocab", [32_000, 50_257, 151_936])
def test_it_is_short(n_vocab: int):
    shortlist = Shortlist(n_vocab, 40)
    ids, _ = shortlist.find(padded(make_row("smooth", n_vocab), shortlist))
    assert 40 <= len(ids) < 100


@pytest.mark.parametrize("n_vocab", [32_000, 49_152, 128_256, 151_936, 152_064, 256_000])
def test_rows_of_common_vocabularies_need_no_padding(n_vocab: int):
    assert Shortlist(n_vocab, 40).n_padded == n_vocab


@pytest.mark.parametrize("n_vocab", [259, 2_859, 49_152])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("others", ["smooth", "few possible"])
def test_what_is_not_a_number_is_noticed_wherever_it_is(n_vocab: int, value: float, others: str):
    shortlist = Shortlist(n_vocab, 40)
    for position in (0, 1, n_vocab // 3, n_vocab - 2, n_vocab - 1):
        row = make_row(others, n_vocab)
        row[position] = value
        with pytest.raises(ValueError, match="not numbers"):
            shortlist.find(padded(row, shortlist))
        assert shortlist.top_probability(padded(row, shortlist)) == 0.0


def test_a_row_without_a_possible_token():
    shortlist = Shortlist(2_859, 40)
    row = np.full(shortlist.n_padded, -np.inf, np.float32)
    assert len(shortlist.find(row)[0]) == 0
    assert shortlist.top_probability(row) == 0.0


@pytest.mark.parametrize(("n_vocab", "k"), [(100, 0), (100, 51), (1, 1)])
def test_more_than_half_is_no_shortlist(n_vocab: int, k: int):
    assert not Shortlist.suits(n_vocab, k)
    with pytest.raises(ValueError, match=f"The {k} largest of {n_vocab}"):
        Shortlist(n_vocab, k)


@pytest.mark.parametrize("n_vocab", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_top_probability_is_never_below_the_softmax(n_vocab: int, kind: str):
    row = make_row(kind, n_vocab)
    shortlist = Shortlist(n_vocab)
    exact = 1 / np.exp(row.astype(np.float64) - row.max()).sum()
    about = shortlist.top_probability(padded(row, shortlist))
    assert exact * (1 - 1e-5) <= about <= 1.0
    if kind in {"spikes", "few possible"} or n_vocab < 1_024:  # a few likely tokens, or stacks of one card
        assert about == pytest.approx(exact, rel=0.01)
