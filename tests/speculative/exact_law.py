"""The exact output law of code that draws uniform numbers: all its paths, each weighted by the width of its intervals.

Between two breakpoints of one number the code does the same thing. The guesses where they lie come from textbook
formulas over dense vectors; that the behaviour is constant in between is checked at both ends and in the middle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cache

import numpy as np

from localspec.speculative.distribution import RandomSource, TokenDistribution
from localspec.speculative.drafter import Draft, Drafting, WantsAnother

Law = dict[tuple[int, ...], float]
Table = Callable[[tuple[int, ...]], np.ndarray]  # history -> probabilities [n_vocab] of the next token

_EDGE = 1e-13


class Trace:
    """What a run did so far, and where the next uniform number may change what it does."""

    def __init__(self) -> None:
        self.events: list[Hashable] = []
        self.breakpoints: Callable[[], Iterable[float]] = tuple


class _OutOfNumbersError(Exception):
    pass


class _Script:
    def __init__(self, numbers: Sequence[float]) -> None:
        self._numbers = iter(numbers)

    def random(self) -> float:
        for number in self._numbers:
            return number
        raise _OutOfNumbersError


def exact_law(run: Callable[[RandomSource, Trace], Hashable]) -> dict[Hashable, float]:
    """Probability of each outcome of `run`, which is called afresh for every path."""

    def follow(numbers: tuple[float, ...]) -> tuple[Trace, Hashable]:
        trace = Trace()
        try:
            return trace, ("done", run(_Script(numbers), trace))
        except _OutOfNumbersError:
            return trace, "undecided"

    law: dict[Hashable, float] = defaultdict(float)
    paths = [((), 1.0, follow(()))]
    while paths:
        numbers, weight, (trace, outcome) = paths.pop()
        if outcome != "undecided":
            law[outcome[1]] += weight
            continue
        for low, high in _intervals(trace.breakpoints()):
            middle = (low + high) / 2
            inside = [follow((*numbers, u)) for u in (low + _EDGE, middle, high - _EDGE)]
            behaviours = {(tuple(t.events), end) for t, end in inside}
            assert len(behaviours) == 1, f"behaviour changes inside ({low}, {high}) after {numbers}: {behaviours}"
            paths.append(((*numbers, middle), weight * (high - low), inside[1]))
    return law


def _intervals(breakpoints: Iterable[float]) -> list[tuple[float, float]]:
    points = [0.0]
    for point in sorted(breakpoints):
        if points[-1] + 4 * _EDGE < point < 1 - 4 * _EDGE:
            points.append(point)
    return list(zip(points, [*points[1:], 1.0], strict=True))


def distribution(dense: np.ndarray) -> TokenDistribution:
    return _distribution(dense.tobytes())


@cache
def _distribution(dense: bytes) -> TokenDistribution:
    probs = np.frombuffer(dense)
    return TokenDistribution.from_probabilities(np.arange(len(probs)), probs)


class TableRows:
    """Target rows of a table model. The state is what was accepted, as with penalties: rows know no draft."""

    def __init__(self, target: Table, history: tuple[int, ...], proposals: Sequence, trace: Trace) -> None:
        """`proposals`: per row (token, dense draft probabilities), for the breakpoints."""
        self._target = target
        self._history = history
        self._proposals = proposals
        self._trace = trace
        self._accepted: list[int] = []

    def distribution(self, row: int) -> TokenDistribution:
        assert row == len(self._accepted), "rows are asked in order, after their draft tokens were accepted"
        self._trace.events.append(("row", row))
        target = self._target((*self._history, *self._accepted))
        self._trace.breakpoints = lambda: self._breakpoints(row, target)
        return distribution(target)

    def _breakpoints(self, row: int, target: np.ndarray) -> Iterable[float]:
        yield from np.cumsum(target)
        if row < len(self._proposals):
            token, draft = self._proposals[row]
            yield target[token] / draft[token]
            residual = np.maximum(target - draft, 0)
            if residual.any():
                yield from np.cumsum(residual / residual.sum())

    def accept(self, token: int) -> None:
        self._trace.events.append(("accept", token))
        self._accepted.append(token)


class MemorylessRows:
    """Target rows of a table model behind a draft that is known beforehand: read in order, accepted afterwards."""

    def __init__(self, target: Table, history: tuple[int, ...], proposals: Sequence, trace: Trace) -> None:
        tokens = [token for token, _ in proposals]
        self._laws = [target((*history, *tokens[:i])) for i in range(len(tokens) + 1)]
        self._proposals = proposals
        self._trace = trace
        self.n_read = 0
        self.accepted: list[int] = []

    def distribution(self, row: int) -> TokenDistribution:
        assert row == self.n_read, "rows are asked in order, once"
        self.n_read += 1
        self._trace.breakpoints = self._breakpoints
        return distribution(self._laws[row])

    def _breakpoints(self) -> Iterable[float]:
        """Of every number that may be drawn: it is not known here which of them comes next."""
        weight = 1.0
        for i, (token, draft) in enumerate(self._proposals):
            excess = np.maximum(weight * self._laws[i] - draft, 0)
            if excess.any():
                yield excess.sum() / (excess.sum() + 1 - weight)
                yield from np.cumsum(excess / excess.sum())
            yield from np.cumsum(self._laws[i])
            weight = min(1.0, weight * self._laws[i][token] / draft[token])
        yield weight
        yield from np.cumsum(self._laws[-1])

    def accept(self, token: int) -> None:
        self._trace.events.append(("accept", token))
        self.accepted.append(token)


class TableDrafter:
    """A draft model given as a table: samples from it, or proposes its argmax without a distribution."""

    def __init__(self, table: Table, rng: RandomSource, trace: Trace, *, argmax: bool = False) -> None:
        self._table = table
        self._rng = rng
        self._trace = trace
        self._argmax = argmax

    def start(self, history: Sequence[int]) -> None:
        pass

    def prefill(self, history: Sequence[int], max_tokens: int) -> int:
        return 0

    def n_unread(self, history: Sequence[int]) -> int:
        return 1

    def propose(self, history: Sequence[int], n_draft: int, wants_another: WantsAnother | None = None) -> Drafting:
        yield from ()
        tokens: list[int] = []
        distributions = []
        for _ in range(n_draft):
            dense = self._table((*history, *tokens))
            self._trace.breakpoints = lambda dense=dense: np.cumsum(dense)
            law = distribution(dense)
            tokens.append(law.top if self._argmax else law.sample(self._rng))
            self._trace.events.append(("draft", tokens[-1]))
            distributions.append(law)
            if wants_another is not None and not wants_another(law.probability(tokens[-1])):
                break
        return Draft(tuple(tokens), None if self._argmax else tuple(distributions))

    def observe(self, tokens: Sequence[int], position: int, first_row: int) -> None:
        pass

    def commit(self, tokens: Sequence[int], n_accepted: int) -> None:
        pass

    def close(self) -> None:
        pass


def dense_proposals(draft: Draft, n_vocab: int) -> list[tuple[int, np.ndarray]]:
    """Per row, the proposal and the dense law it came from; one-hot when the draft has no distributions."""
    rows = []
    for i, token in enumerate(draft.tokens):
        dense = np.zeros(n_vocab)
        if draft.distributions is None:
            dense[token] = 1
        else:
            dense[draft.distributions[i].ids] = draft.distributions[i].probs
        rows.append((token, dense))
    return rows


def random_table(seed: int, n_vocab: int, style: str = "dense") -> Table:
    """A next-token table that depends on the whole history. Styles: dense, zeros, ties, greedy, uniform."""

    @cache
    def table(history: tuple[int, ...]) -> np.ndarray:
        rng = np.random.default_rng([seed, *history, 97])
        weights = rng.dirichlet(np.full(n_vocab, 0.7)) + 0.01
        if style == "zeros":
            weights[rng.random(n_vocab) < 0.4] = 0
            weights[rng.integers(n_vocab)] = 1
        elif style == "ties":
            weights = rng.integers(0, 3, n_vocab).astype(float)
            weights[rng.integers(n_vocab)] = 2
        elif style == "greedy":
            weights = (np.arange(n_vocab) == rng.integers(n_vocab)).astype(float)
        elif style == "uniform":
            weights = np.ones(n_vocab)
        return weights / weights.sum()

    return table


def sequence_law(target: Table, history: tuple[int, ...], n_tokens: int, end_token: int | None) -> Law:
    """The target's own law of the next `n_tokens` tokens, shorter where `end_token` ends them."""
    law: Law = {(): 1.0}
    for _ in range(n_tokens):
        longer: Law = defaultdict(float)
        for tokens, p in law.items():
            if tokens and tokens[-1] == end_token:
                longer[tokens] += p
                continue
            for token, q in enumerate(target((*history, *tokens))):
                if q > 0:
                    longer[*tokens, token] += p * float(q)
        law = longer
    return law


def largest_difference(a: dict, b: dict) -> float:
    return max(abs(a.get(key, 0.0) - b.get(key, 0.0)) for key in a.keys() | b.keys())
