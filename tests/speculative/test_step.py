"""SpeculativeStep, with the drafters' and draft lengths' side of its contract."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pytest

from localspec.speculative.distribution import TokenDistribution
from localspec.speculative.draft_length import FixedDraftLength, StepOutcome
from localspec.speculative.drafter import EMPTY_DRAFT, Draft, Drafter, NoDrafter
from localspec.speculative.prompt_lookup import PromptLookup
from localspec.speculative.step import SpeculativeStep

END = 99


class CachingDrafter:
    """Counts on from the last token and keeps, as a draft model does, a cache of the tokens that it has fed."""

    def __init__(self) -> None:
        self.cache: list[int] = []
        self.commits: list[tuple[tuple[int, ...], int]] = []
        self.asked: list[int] = []
        self.failure: BaseException | None = None
        self.n_extra = 0
        self._n_history = 0

    def start(self, history: Sequence[int]) -> None:
        self.cache.clear()

    def prefill(self, history: Sequence[int], max_tokens: int) -> int:
        return 0

    def propose(self, history: Sequence[int], n_draft: int) -> Draft:
        self.asked.append(n_draft)
        self._n_history = len(history)
        self.cache += history[len(self.cache) :]
        assert self.cache == list(history), "the cache holds something that was not committed"
        tokens = tuple(history[-1] + 1 + i for i in range(n_draft + self.n_extra))
        self.cache += tokens[:-1]
        if self.failure is not None:
            raise self.failure
        return Draft(tokens, tuple(map(TokenDistribution.one_hot, tokens)))

    def observe(self, tokens: Sequence[int], position: int, first_row: int) -> None:
        pass

    def commit(self, tokens: Sequence[int], n_accepted: int) -> None:
        self.commits.append((tuple(tokens), n_accepted))
        del self.cache[self._n_history + n_accepted :]

    def close(self) -> None:
        pass


class CountingRows:
    """A target that counts on as well, up to `wrong_at` where it jumps to 50, or fails at `fails_at`."""

    def __init__(self, last: int, wrong_at: int = -1, fails_at: int = -1, failure: BaseException | None = None) -> None:
        self._last = last
        self._wrong_at = wrong_at
        self._fails_at = fails_at
        self._failure = failure

    def distribution(self, row: int) -> TokenDistribution:
        if row == self._fails_at:
            raise self._failure
        return TokenDistribution.one_hot(50 if row == self._wrong_at else self._last + 1)

    def accept(self, token: int) -> None:
        self._last = token


class RecordingLength:
    def __init__(self, *lengths: int) -> None:
        self._lengths = list(lengths)
        self.outcomes: list[StepOutcome] = []

    def next(self) -> int:
        return self._lengths.pop(0)

    def update(self, outcome: StepOutcome) -> None:
        self.outcomes.append(outcome)


def ends(token: int) -> bool:
    return token == END


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_steps_commit_what_was_verified(rng):
    drafter, length = CachingDrafter(), RecordingLength(3, 3, 0, 2)
    step = SpeculativeStep(drafter, length, ends)
    history = [1]
    for wrong_at in (1, -1, -1, 0):
        draft = step.propose(history, limit=10)
        history += step.verify(draft, CountingRows(history[-1], wrong_at), rng).tokens
        outcome = step.record(verify_s=0.25, batch_width=2)
        assert (outcome.draft_s > 0) == (len(draft) > 0)
    assert history == [1, 2, 50, 51, 52, 53, 54, 55, 50]
    assert drafter.commits == [((2, 50), 1), ((51, 52, 53, 54), 3), ((55,), 0), ((50,), 0)]
    assert [(o.n_draft, o.n_accepted, o.verify_s, o.batch_width) for o in length.outcomes] == [
        (3, 1, 0.25, 2),
        (3, 3, 0.25, 2),
        (0, 0, 0.25, 2),
        (2, 0, 0.25, 2),
    ]


@pytest.mark.parametrize(("wanted", "limit", "asked"), [(5, 3, [3]), (2, 3, [2]), (0, 3, []), (5, 0, []), (5, -1, [])])
def test_the_draft_is_as_long_as_wanted_and_allowed(wanted, limit, asked):
    drafter = CachingDrafter()
    draft = SpeculativeStep(drafter, FixedDraftLength(wanted), ends).propose([1], limit)
    assert drafter.asked == asked
    assert len(draft) == sum(asked)


def test_a_drafter_that_proposes_too_much_is_cut():
    drafter = CachingDrafter()
    drafter.n_extra = 4
    draft = SpeculativeStep(drafter, FixedDraftLength(3), ends).propose([1], 2)
    assert draft.tokens == (2, 3)
    assert [law.top for law in draft.distributions] == [2, 3]


def test_nothing_is_drafted_after_an_end_of_generation(rng):
    drafter = CachingDrafter()
    step = SpeculativeStep(drafter, FixedDraftLength(5), ends)
    draft = step.propose([END - 2], limit=10)
    assert draft.tokens == (END - 1, END)
    assert step.verify(draft, CountingRows(END - 2), rng).tokens == (END - 1, END)
    assert drafter.commits == [((END - 1, END), 2)]
    assert (step.record(0.1, 1).n_draft, step.record(0.1, 1).n_accepted) == (2, 2)


@pytest.mark.parametrize("fails_at", [0, 1, 3])
@pytest.mark.parametrize("failure", [RuntimeError("no logits"), KeyboardInterrupt()])
def test_a_failure_while_verifying_rewinds_the_drafter(rng, fails_at, failure):
    drafter = CachingDrafter()
    step = SpeculativeStep(drafter, FixedDraftLength(3), ends)
    history = [1, 2]
    draft = step.propose(history, limit=3)
    with pytest.raises(type(failure)) as caught:
        step.verify(draft, CountingRows(2, fails_at=fails_at, failure=failure), rng)
    assert caught.value is failure
    assert drafter.commits == [((), 0)]
    assert drafter.cache == history
    assert step.propose(history, limit=3).tokens == (3, 4, 5)
    assert step.verify(draft, CountingRows(2), rng).tokens == (3, 4, 5, 6)


def test_a_decode_that_fails_rewinds_the_drafter(rng):
    drafter = CachingDrafter()
    step = SpeculativeStep(drafter, FixedDraftLength(3), ends)
    step.propose([1, 2], limit=3)
    step.abandon()
    assert drafter.commits == [((), 0)]
    assert step.propose([1, 2], limit=3).tokens == (3, 4, 5)


def test_a_drafter_that_fails_half_way_is_rewound():
    drafter = CachingDrafter()
    drafter.failure = RuntimeError("the draft model's decode failed")
    step = SpeculativeStep(drafter, FixedDraftLength(3), ends)
    with pytest.raises(RuntimeError, match="draft model's decode"):
        step.propose([1, 2], limit=3)
    assert drafter.commits == [((), 0)]
    drafter.failure = None
    assert step.propose([1, 2], limit=3).tokens == (3, 4, 5)


def test_plain_mode_proposes_nothing(rng):
    drafter: Drafter = NoDrafter()
    step = SpeculativeStep(drafter, FixedDraftLength(4), ends)
    drafter.start([1])
    assert drafter.prefill([1], 512) == 0
    draft = step.propose([1], limit=4)
    assert draft is EMPTY_DRAFT
    drafter.observe([], 0, 0)
    assert step.verify(draft, CountingRows(1), rng).tokens == (2,)
    step.record(0.1, 1)
    drafter.close()


def test_prompt_lookup_is_a_drafter():
    drafter: Drafter = PromptLookup()
    step = SpeculativeStep(drafter, FixedDraftLength(3), ends)
    assert step.propose([7, 8, END, 5, 7, 8], limit=3).tokens == (END,)


def test_a_draft_needs_one_distribution_per_token():
    with pytest.raises(ValueError, match="2 tokens and 1 distributions"):
        Draft((1, 2), (TokenDistribution.one_hot(1),))


def test_cutting_a_draft():
    laws = tuple(map(TokenDistribution.one_hot, (4, 5, 6)))
    assert Draft((4, 5, 6), laws).cut(2) == Draft((4, 5), laws[:2])
    assert Draft((4, 5, 6)).cut(1) == Draft((4,))
    assert len(Draft((4, 5, 6)).cut(0)) == 0
    whole = Draft((4, 5, 6))
    assert whole.cut(3) is whole


def test_the_algorithm_loads_nothing_but_numpy_and_the_standard_library():
    script = (
        "import sys, localspec.speculative.step, localspec.speculative.prompt_lookup\n"
        "known = {*sys.stdlib_module_names, 'numpy', 'localspec'}\n"
        "print({m for m in sys.modules if m.partition('.')[0] not in known and not m.startswith('_')})\n"
        "print({m for m in sys.modules if m.startswith('localspec.') and not m.startswith('localspec.speculative')})\n"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["set()", "set()"]
