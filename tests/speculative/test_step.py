"""SpeculativeStep, with the drafters' and draft lengths' side of its contract."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pytest

from localspec.speculative.distribution import TokenDistribution
from localspec.speculative.drafter import (
    EMPTY_DRAFT,
    Draft,
    Drafter,
    Drafting,
    DraftSource,
    WantsAnother,
)
from localspec.speculative.policy import FixedLength, Plan, StepOutcome
from localspec.speculative.prompt_lookup import PromptLookup
from localspec.speculative.step import SpeculativeStep
from tests.speculative.drafts import drafted_at_once

END = 99
MODEL, LOOKUP = DraftSource.MODEL, DraftSource.LOOKUP


class CachingDrafter:
    """Counts on from the last token and keeps, as a draft model does, a cache of the tokens that it has fed."""

    def __init__(self) -> None:
        self.cache: list[int] = []
        self.commits: list[tuple[tuple[int, ...], int]] = []
        self.asked: list[int] = []
        self.failure: BaseException | None = None
        self.n_extra = 0
        self.n_prefills = 0
        self.is_closed = False
        self._n_history = 0

    def start(self, history: Sequence[int]) -> None:
        self.cache.clear()

    def prefill(self, history: Sequence[int], max_tokens: int) -> int:
        self.n_prefills += 1
        return 3 - self.n_prefills

    def n_unread(self, history: Sequence[int]) -> int:
        return len(history) - len(self.cache)

    def propose(self, history: Sequence[int], n_draft: int, wants_another: WantsAnother | None = None) -> Drafting:
        yield from ()
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
        self.is_closed = True


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


class RecordingPolicy:
    """Plans what it is given, in order: an int for the model, a Plan, or None."""

    def __init__(self, *plans: int | Plan | None) -> None:
        self._plans = list(plans)
        self.outcomes: list[StepOutcome] = []
        self.readings: list[tuple[int, float]] = []
        self.has_ended = False

    def begin(self, source: DraftSource, n_prompt: int, n_unread: int = 0, n_most: int | None = None) -> bool:
        return source is MODEL

    def has_read(self, n_tokens: int, seconds: float) -> None:
        self.readings.append((n_tokens, seconds))

    def end(self) -> None:
        self.has_ended = True

    def plan(self, history: Sequence[int], limit: int) -> Plan | None:
        plan = self._plans.pop(0)
        return (Plan(MODEL, min(plan, limit)) if plan else None) if isinstance(plan, int) else plan

    def update(self, outcome: StepOutcome) -> None:
        self.outcomes.append(outcome)


def ends(token: int) -> bool:
    return token == END


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_steps_commit_what_was_verified(rng):
    drafter, policy = CachingDrafter(), RecordingPolicy(3, 3, 0, 2)
    step = SpeculativeStep({MODEL: drafter}, policy, ends)
    history = [1]
    for wrong_at in (1, -1, -1, 0):
        draft = drafted_at_once(step.propose(history, limit=10))
        history += step.verify(draft, CountingRows(history[-1], wrong_at), rng).tokens
        outcome = step.record(0.25, n_rows=5 + len(draft), n_other_rows=4, batch_width=2)
        assert (outcome.draft_s > 0) == (len(draft) > 0)
    assert history == [1, 2, 50, 51, 52, 53, 54, 55, 50]
    assert drafter.commits == [((2, 50), 1), ((51, 52, 53, 54), 3), ((55,), 0), ((50,), 0)]
    assert policy.outcomes[-1] is outcome
    assert [(o.source, o.n_draft, o.n_accepted, o.n_rows, o.n_other_rows, o.batch_width) for o in policy.outcomes] == [
        (MODEL, 3, 1, 8, 4, 2),
        (MODEL, 3, 3, 8, 4, 2),
        (None, 0, 0, 5, 4, 2),
        (MODEL, 2, 0, 7, 4, 2),
    ]
    assert all(0.25 < o.verify_s < 0.3 for o in policy.outcomes), "the pass and the judging after it"


@pytest.mark.parametrize(("wanted", "limit", "asked"), [(5, 3, [3]), (2, 3, [2]), (0, 3, []), (5, 0, []), (5, -1, [])])
def test_the_draft_is_as_long_as_wanted_and_allowed(wanted, limit, asked):
    drafter = CachingDrafter()
    draft = drafted_at_once(SpeculativeStep({MODEL: drafter}, FixedLength({MODEL: wanted}), ends).propose([1], limit))
    assert drafter.asked == asked
    assert len(draft) == sum(asked)


def test_a_drafter_that_proposes_too_much_is_cut():
    drafter = CachingDrafter()
    drafter.n_extra = 4
    draft = drafted_at_once(SpeculativeStep({MODEL: drafter}, FixedLength({MODEL: 3}), ends).propose([1], 2))
    assert draft.tokens == (2, 3)
    assert [law.top for law in draft.distributions] == [2, 3]


def test_nothing_is_drafted_after_an_end_of_generation(rng):
    drafter = CachingDrafter()
    step = SpeculativeStep({MODEL: drafter}, FixedLength({MODEL: 5}), ends)
    draft = drafted_at_once(step.propose([END - 2], limit=10))
    assert draft.tokens == (END - 1, END)
    assert step.verify(draft, CountingRows(END - 2), rng).tokens == (END - 1, END)
    assert drafter.commits == [((END - 1, END), 2)]
    assert (step.record(0.1, n_rows=3).n_draft, step.record(0.1, n_rows=3).n_accepted) == (2, 2)


@pytest.mark.parametrize("fails_at", [0, 1, 3])
@pytest.mark.parametrize("failure", [RuntimeError("no logits"), KeyboardInterrupt()])
def test_a_failure_while_verifying_rewinds_the_drafter(rng, fails_at, failure):
    drafter = CachingDrafter()
    step = SpeculativeStep({MODEL: drafter}, FixedLength({MODEL: 3}), ends)
    history = [1, 2]
    draft = drafted_at_once(step.propose(history, limit=3))
    with pytest.raises(type(failure)) as caught:
        step.verify(draft, CountingRows(2, fails_at=fails_at, failure=failure), rng)
    assert caught.value is failure
    assert drafter.commits == [((), 0)]
    assert drafter.cache == history
    assert drafted_at_once(step.propose(history, limit=3)).tokens == (3, 4, 5)
    assert step.verify(draft, CountingRows(2), rng).tokens == (3, 4, 5, 6)


def test_a_decode_that_fails_rewinds_the_drafter(rng):
    drafter = CachingDrafter()
    step = SpeculativeStep({MODEL: drafter}, FixedLength({MODEL: 3}), ends)
    drafted_at_once(step.propose([1, 2], limit=3))
    step.abandon()
    assert drafter.commits == [((), 0)]
    assert drafted_at_once(step.propose([1, 2], limit=3)).tokens == (3, 4, 5)


def test_a_drafter_that_fails_half_way_is_rewound():
    drafter = CachingDrafter()
    drafter.failure = RuntimeError("the draft model's decode failed")
    step = SpeculativeStep({MODEL: drafter}, FixedLength({MODEL: 3}), ends)
    with pytest.raises(RuntimeError, match="draft model's decode"):
        drafted_at_once(step.propose([1, 2], limit=3))
    assert drafter.commits == [((), 0)]
    drafter.failure = None
    assert drafted_at_once(step.propose([1, 2], limit=3)).tokens == (3, 4, 5)


def test_plain_mode_proposes_nothing(rng):
    step = SpeculativeStep({}, FixedLength({LOOKUP: 0}), ends)
    step.start([1])
    assert step.prefill([1], 512) == 0
    draft = drafted_at_once(step.propose([1], limit=4))
    assert draft is EMPTY_DRAFT
    step.observe([], 0, 0)
    assert step.verify(draft, CountingRows(1), rng).tokens == (2,)
    assert step.record(0.1, n_rows=1).source is None
    step.close()


def test_prompt_lookup_is_a_drafter():
    drafter: Drafter = PromptLookup()
    step = SpeculativeStep({LOOKUP: drafter}, FixedLength({LOOKUP: 3}), ends)
    assert drafted_at_once(step.propose([7, 8, END, 5, 7, 8], limit=3)).tokens == (END,)
    step.observe([7], 0, 0)
    assert drafter.n_unread([7, 8]) == 0
    step.close()


def test_only_the_drafter_of_the_step_has_accepted_something(rng):
    """The others follow the text as after a plain step."""
    model, other = CachingDrafter(), CachingDrafter()
    step = SpeculativeStep({LOOKUP: other, MODEL: model}, RecordingPolicy(2, Plan(LOOKUP, 2)), ends)
    history = [1]
    for _ in range(2):
        draft = drafted_at_once(step.propose(history, limit=4))
        history += step.verify(draft, CountingRows(history[-1]), rng).tokens
    assert model.commits == [((2, 3, 4), 2), ((5, 6, 7), 0)]
    assert other.commits == [((2, 3, 4), 0), ((5, 6, 7), 2)]


def test_a_request_reaches_every_drafter_and_only_those_that_will_draft_read_the_prompt():
    model, other = CachingDrafter(), CachingDrafter()
    step = SpeculativeStep({LOOKUP: other, MODEL: model}, RecordingPolicy(), ends)
    other.cache = model.cache = [5]
    step.start([1, 2])
    assert (model.cache, other.cache) == ([], [])
    assert [step.prefill([1, 2], 512) for _ in range(3)] == [2, 1, 0]
    assert (model.n_prefills, other.n_prefills) == (3, 0)
    step.close()
    assert model.is_closed
    assert other.is_closed


def test_what_was_read_of_a_prompt_is_told_with_its_time_and_the_end_too():
    class Reading(CachingDrafter):
        def prefill(self, history: Sequence[int], max_tokens: int) -> int:
            self.cache += history[len(self.cache) : -1][:max_tokens]
            return len(history) - 1 - len(self.cache)

    policy = RecordingPolicy()
    step = SpeculativeStep({MODEL: Reading()}, policy, ends)
    step.start([1, 2, 3, 4, 5, 6], 10)
    assert [step.prefill([1, 2, 3, 4, 5, 6], 3) for _ in range(3)] == [2, 0, 0]
    assert [n for n, _ in policy.readings] == [3, 2]
    assert all(seconds > 0.0 for _, seconds in policy.readings)
    assert not policy.has_ended
    step.close()
    assert policy.has_ended


def test_a_draft_that_has_to_read_is_not_made_at_once():
    def reads() -> Drafting:
        yield [1]
        return Draft(())

    with pytest.raises(ValueError, match="forward pass"):
        drafted_at_once(reads())


def test_a_plan_without_a_draft_is_a_plain_step(rng):
    step = SpeculativeStep({LOOKUP: PromptLookup()}, RecordingPolicy(Plan(LOOKUP, 3)), ends)
    draft = drafted_at_once(step.propose([1, 2, 3], limit=3))
    step.verify(draft, CountingRows(3), rng)
    assert step.record(0.1, n_rows=1).source is None


@pytest.mark.parametrize(("memoryless", "n_draft", "jointly"), [(True, 3, True), (False, 3, False), (True, 1, False)])
def test_sampled_drafts_are_verified_jointly_where_rows_are_memoryless(rng, memoryless, n_draft, jointly):
    """Joint verification reads every row before it accepts any."""
    log: list[str] = []

    class Rows(CountingRows):
        def distribution(self, row: int) -> TokenDistribution:
            log.append("row")
            return TokenDistribution.one_hot(2 + row)

        def accept(self, token: int) -> None:
            log.append("accept")

    step = SpeculativeStep(
        {MODEL: CachingDrafter()}, FixedLength({MODEL: n_draft}), ends, rows_are_memoryless=memoryless
    )
    draft = drafted_at_once(step.propose([1], limit=n_draft))
    assert step.verify(draft, Rows(1), rng).n_accepted == n_draft
    assert (log[:n_draft] == ["row"] * n_draft and n_draft > 1) == jointly


def test_a_draft_needs_one_distribution_per_token():
    with pytest.raises(ValueError, match="2 tokens and 1 distributions"):
        Draft((1, 2), (TokenDistribution.one_hot(1),))


def test_a_fixed_length_is_for_one_source():
    assert FixedLength({MODEL: 3}).plan([1], 5) == Plan(MODEL, 3)
    assert FixedLength({MODEL: 3}).plan([1], 2) == Plan(MODEL, 2)
    assert FixedLength({MODEL: 0}).plan([1], 2) is None
    assert [FixedLength({MODEL: 3}).begin(source, 10) for source in (MODEL, LOOKUP)] == [True, False]
    with pytest.raises(ValueError, match="one source"):
        FixedLength({MODEL: 3, LOOKUP: 3})


def test_cutting_a_draft():
    laws = tuple(map(TokenDistribution.one_hot, (4, 5, 6)))
    assert Draft((4, 5, 6), laws).cut(2) == Draft((4, 5), laws[:2])
    assert Draft((4, 5, 6)).cut(1) == Draft((4,))
    assert len(Draft((4, 5, 6)).cut(0)) == 0
    whole = Draft((4, 5, 6))
    assert whole.cut(3) is whole


def test_the_algorithm_loads_nothing_but_numpy_and_the_standard_library():
    script = (
        "import sys, localspec.speculative.step, localspec.speculative.expected_gain\n"
        "known = {*sys.stdlib_module_names, 'numpy', 'localspec'}\n"
        "print({m for m in sys.modules if m.partition('.')[0] not in known and not m.startswith('_')})\n"
        "print({m for m in sys.modules if m.startswith('localspec.') and not m.startswith('localspec.speculative')})\n"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["set()", "set()"]
