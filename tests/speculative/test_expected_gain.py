"""The adaptive policy in worlds with known times and acceptance, on a clock of their own: what it reaches there."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from localspec.speculative.drafter import EMPTY_DRAFT, Draft, Drafting, DraftSource, WantsAnother
from localspec.speculative.evidence import Agreement, Evidence
from localspec.speculative.expected_gain import ExpectedGain
from localspec.speculative.pass_times import PassTimes
from localspec.speculative.policy import StepOutcome
from localspec.speculative.prompt_lookup import PromptLookup
from tests.speculative.drafts import drafted_at_once

MODEL, LOOKUP = DraftSource.MODEL, DraftSource.LOOKUP


@dataclass
class World:
    """One pair on one machine. Seconds of a pass: `base_s` plus `row_s` for each row after the first.

    `acceptance(i, confidence)` of the i-th drafted token (from 1), `confidence()` of each token that is drafted,
    Over a text of `n_cells` tokens every row takes `row_and_cell_s` more for each of them, in both models.
    `copies()` how much a copy matches now (0: nothing to copy) and `copied` the acceptance of a copied token.
    """

    acceptance: Callable[[int, float], float] = lambda i, confidence: 0.9
    base_s: float = 0.020
    row_s: float = 0.0005
    draft_base_s: float = 0.002
    draft_row_s: float = 0.0001
    confidence: Callable[[random.Random], float] = lambda rng: 0.9
    copies: Callable[[random.Random], int] = lambda rng: 0
    copied: float = 0.0
    noise: float = 0.05
    seed: int = 1
    now: float = 0.0
    n_cells: int = 0
    row_and_cell_s: float = 0.0
    n_history: int = 100
    n_read: int = 0
    lengths: list[int] = field(default_factory=list)
    sources: Counter = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def target_s(self, rows: int) -> float:
        return self.base_s + self.row_s * (rows - 1) + self.n_cells * rows * self.row_and_cell_s

    def draft_s(self, rows: int) -> float:
        return self.draft_base_s + self.draft_row_s * (rows - 1) + self.n_cells * rows * self.row_and_cell_s

    def spend(self, seconds: float) -> float:
        seconds *= self.rng.uniform(1 - self.noise, 1 + self.noise)
        self.now += seconds
        return seconds

    def evidence(self) -> Evidence:
        widths = (1, 2, 3, 5, 9, 17, 33)
        return Evidence(
            PassTimes({n: self.target_s(n) for n in widths}), PassTimes({n: self.draft_s(n) for n in widths})
        )


class WorldModel:
    """The draft model of a world: `propose` takes its time and draws confidences."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.confidences: list[float] = []
        self.is_broken = False

    def start(self, history: Sequence[int]) -> None:
        pass

    def prefill(self, history: Sequence[int], max_tokens: int) -> int:
        return 0

    def n_unread(self, history: Sequence[int]) -> int:
        return self.world.n_history - self.world.n_read

    def propose(self, history: Sequence[int], n_draft: int, wants_another: WantsAnother | None = None) -> Drafting:
        yield from ()
        world, self.confidences = self.world, []
        if self.is_broken:
            return EMPTY_DRAFT
        world.spend(world.draft_s(self.n_unread(history)))
        while True:
            self.confidences.append(world.confidence(world.rng))
            if not wants_another(self.confidences[-1]) or len(self.confidences) == n_draft:
                return Draft((0,) * len(self.confidences))
            world.spend(world.draft_s(1))

    def observe(self, tokens: Sequence[int], position: int, first_row: int) -> None:
        pass

    def commit(self, tokens: Sequence[int], n_accepted: int) -> None:
        pass

    def close(self) -> None:
        pass


class WorldLookup(PromptLookup):
    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def n_matching(self, history: Sequence[int]) -> int:
        return self.world.copies(self.world.rng)


class Reply:
    """One request: the loop around a policy that `SpeculativeStep` and the scheduler are."""

    def __init__(
        self, world: World, evidence: Evidence, *, with_model: bool = True, with_lookup: bool = False, ceiling: int = 16
    ) -> None:
        self.world, self.model, self.lookup = world, WorldModel(world), WorldLookup(world)
        self.policy = ExpectedGain(
            evidence,
            model=self.model if with_model else None,
            lookup=self.lookup if with_lookup else None,
            greedy=False,
            ceiling=ceiling,
            copy_ceiling=32,
            now=lambda: world.now,
        )
        world.n_history, world.n_read = 100, 0
        if with_model and self.policy.begin(MODEL, world.n_cells):
            world.n_read = 99

    def step(self, n_prompt_rows: int = 0) -> int:
        world, started = self.world, self.world.now
        plan = self.policy.plan(range(world.n_cells), 32)
        n_draft, source = 0, None
        if plan is not None:
            n_draft = plan.n_draft
            if plan.source is MODEL:
                n_draft = len(drafted_at_once(self.model.propose((), plan.n_draft, plan.wants_another)))
            source = plan.source if n_draft else None
        draft_s = world.now - started
        n_rows = 1 + n_draft + n_prompt_rows
        verify_s = world.spend(world.target_s(n_rows))
        n_accepted = 0
        while n_accepted < n_draft and world.rng.random() < (
            world.copied if source is LOOKUP else world.acceptance(n_accepted + 1, self.model.confidences[n_accepted])
        ):
            n_accepted += 1
        if source is MODEL:
            world.n_read = world.n_history + min(n_accepted, n_draft - 1)
        world.n_history += n_accepted + 1
        world.lengths.append(n_draft)
        world.sources[source] += 1
        self.policy.update(StepOutcome(source, n_draft, n_accepted, draft_s, verify_s, n_rows, 0, 1))
        return n_accepted + 1

    def run(self, n_tokens: int) -> float:
        """Tokens per second over `n_tokens`."""
        started, done = self.world.now, 0
        while done < n_tokens:
            done += self.step()
        return done / (self.world.now - started)


def best_fixed_rate(world: World, acceptance: float) -> float:
    """Tokens per second of the best fixed length, for independent tokens of one acceptance."""

    def rate(n: int) -> float:
        tokens = sum(acceptance**i for i in range(n + 1))
        drafting_s = n * world.draft_s(1) + (world.draft_s(2) - world.draft_s(1) if n else 0.0)
        return tokens / (drafting_s + world.target_s(1 + n))

    return max(rate(n) for n in range(17))


MACHINES = {
    "a GPU: rows cost nothing, the draft a tenth": World(row_s=0.0001),
    "a CPU: a row costs a quarter of a pass, the draft a third": World(
        row_s=0.005, draft_base_s=0.007, draft_row_s=0.003
    ),
    "a draft that is nearly free": World(draft_base_s=0.0002, draft_row_s=0.0),
}


def copy_of(world: World, **changes: object) -> World:
    own = {name: getattr(world, name) for name in ("base_s", "row_s", "draft_base_s", "draft_row_s")}
    return World(**{**own, **changes})


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("acceptance", [0.0, 0.3, 0.6, 0.8, 0.95, 1.0])
def test_it_comes_near_the_best_fixed_length(machine, acceptance):
    world = copy_of(MACHINES[machine], acceptance=lambda i, confidence: acceptance)
    evidence = world.evidence()
    Reply(world, evidence).run(300)
    assert Reply(world, evidence).run(10_000) > 0.96 * best_fixed_rate(world, acceptance)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("acceptance", [0.0, 0.2, 0.5])
def test_a_bad_draft_costs_little_from_the_first_token_on(machine, acceptance):
    """Also while it learns, and after a rest, when the draft model has much to read."""
    world = copy_of(MACHINES[machine], acceptance=lambda i, confidence: acceptance, noise=0.02)
    evidence = world.evidence()
    plain = 1 / world.target_s(1)
    assert Reply(world, evidence).run(400) > 0.97 * plain
    assert min(Reply(world, evidence).run(192) for _ in range(20)) > 0.97 * plain


def test_confidence_decides_where_a_draft_ends():
    """A fifth of the tokens is nearly lost. Where the drafter knows which, it saves what would follow them."""

    def rate(confidence_of_lost: float) -> float:
        lost = 1e-3  # a mark in the number that the policy cannot tell apart
        world = World(
            draft_base_s=0.004,
            confidence=lambda rng: confidence_of_lost + lost if rng.random() < 0.2 else 0.99,
            acceptance=lambda i, confidence: 0.02 if confidence == confidence_of_lost + lost else 0.98,
        )
        evidence = world.evidence()
        Reply(world, evidence).run(1000)
        return Reply(world, evidence).run(10_000)

    assert rate(0.3) > 1.04 * rate(0.985)


def test_it_follows_a_text_that_changes():
    odds = [0.95]
    world = World(acceptance=lambda i, confidence: odds[0], draft_base_s=0.004)
    evidence = world.evidence()
    reply = Reply(world, evidence)
    reply.run(400)
    assert sum(world.lengths[-20:]) / 20 > 4
    odds[0] = 0.0
    reply.run(300)
    assert sum(world.lengths[-100:]) < 12
    odds[0] = 0.95
    reply.run(3000)
    assert sum(world.lengths[-20:]) / 20 > 4


def test_probes_become_rarer_while_they_fail():
    world = World(acceptance=lambda i, confidence: 0.0, draft_base_s=0.004, draft_row_s=0.0)
    reply = Reply(world, world.evidence())
    reply.run(4000)
    first, second = world.lengths[:2000], world.lengths[2000:]
    assert 0 < sum(n > 0 for n in second) < sum(n > 0 for n in first)


@pytest.mark.parametrize("read_s", [0.0001, 0.003])
@pytest.mark.parametrize("n_tokens", [50, 800])
def test_a_draft_model_that_does_not_pay_rests_for_whole_requests_and_comes_back(read_s, n_tokens):
    """However long the replies, and however much may be saved up for probes in them."""
    odds = [0.0]
    world = World(acceptance=lambda i, confidence: odds[0], draft_base_s=0.010, draft_row_s=read_s)
    evidence = world.evidence()
    for _ in range(4):
        Reply(world, evidence).run(200)
    has_read = []
    for _ in range(24):
        reply = Reply(world, evidence)
        has_read.append(world.n_read > 0)
        reply.run(n_tokens)
    assert 0 < sum(has_read) < 8
    odds[0] = 1.0
    for _ in range(60):
        Reply(world, evidence).run(200)
    assert Reply(world, evidence).run(400) > 1.3 / world.target_s(1)


def test_a_machine_on_which_drafting_gets_dear_is_noticed():
    world = World(acceptance=lambda i, confidence: 0.7, draft_base_s=0.002)
    evidence = world.evidence()
    reply = Reply(world, evidence)
    reply.run(300)
    world.draft_base_s = 0.030
    reply.run(300)
    assert sum(world.lengths[-100:]) < 30


@pytest.mark.parametrize("copied", [0.0, 0.3, 0.9, 1.0])
def test_lookup_alone_is_never_much_slower_than_plain_and_long_where_it_pays(copied):
    world = World(row_s=0.005, copies=lambda rng: rng.choice([0, 2, 4, 12]), copied=copied, noise=0.02)
    evidence = world.evidence()
    plain = 1 / world.target_s(1)
    rates = [Reply(world, evidence, with_model=False, with_lookup=True).run(192) for _ in range(10)]
    assert rates[0] > 0.95 * plain, "long matches that are never accepted are the worst case for what is believed first"
    assert min(rates[1:]) > 0.97 * plain
    if copied >= 0.9:
        assert rates[-1] > 1.5 * plain
    if copied == 1.0:
        assert max(world.lengths) == 32


def test_of_both_sources_the_better_one_drafts():
    good_copies = World(copies=lambda rng: rng.choice([0, 20]), copied=1.0, acceptance=lambda i, c: 0.8)
    bad_copies = World(copies=lambda rng: 3, copied=0.05, acceptance=lambda i, c: 0.9)
    for world in (good_copies, bad_copies):
        evidence = world.evidence()
        Reply(world, evidence, with_lookup=True).run(400)
        world.sources.clear()
        Reply(world, evidence, with_lookup=True).run(400)
    assert good_copies.sources[LOOKUP] > 5
    assert good_copies.sources[MODEL] > 5
    assert bad_copies.sources[LOOKUP] < 0.1 * bad_copies.sources[MODEL]


@pytest.mark.parametrize("machine", list(MACHINES)[:2])
@pytest.mark.parametrize("others_between", [3, 12])
def test_a_good_draft_model_reads_what_was_copied_where_that_lasts(machine, others_between):
    """Reading costs time before it brings any: it must not be spared for ever, nor be paid for a single draft."""
    n_others = [0]

    def copies(rng: random.Random) -> int:
        n_others[0] = (n_others[0] + 1) % (1 + others_between)
        return 0 if n_others[0] else 30

    world = copy_of(MACHINES[machine], acceptance=lambda i, confidence: 0.97, copies=copies, copied=0.97)
    evidence = world.evidence()
    for _ in range(3):
        Reply(world, evidence, with_lookup=True).run(200)
    world.sources.clear()
    plain = 1 / world.target_s(1)
    rates = [Reply(world, evidence, with_lookup=True).run(200) for _ in range(20)]
    assert world.sources[LOOKUP] > 20
    assert sum(rates) / len(rates) > 1.3 * plain
    if others_between == 12:
        assert world.sources[None] < 0.03 * world.sources.total()


def test_a_hiccup_of_the_machine_does_not_silence_a_good_draft():
    world = World(acceptance=lambda i, confidence: 0.95)
    reply = Reply(world, world.evidence())
    reply.run(200)
    for _ in range(3):
        world.now += 2.0  # seen by the policy as a very slow draft
        reply.step()
    reply.run(60)
    assert sum(world.lengths[-5:]) > 10


def test_a_drafter_without_a_draft_is_not_asked_again_in_this_request():
    world = World()
    evidence = world.evidence()
    reply = Reply(world, evidence)
    reply.model.is_broken = True
    reply.run(50)
    assert world.sources[MODEL] == 0
    assert reply.policy.plan((), 32) is None
    lookup_only = Reply(World(copies=lambda rng: 8, copied=1.0), evidence, with_model=False, with_lookup=True)
    plan = lookup_only.policy.plan((), 32)
    assert plan is not None
    assert plan.source is LOOKUP
    lookup_only.policy.update(StepOutcome(None, 0, 0, 0.0, 0.02, 1, 0, 1))
    assert lookup_only.policy.plan((), 32) is None


def test_a_full_batch_leaves_no_room_for_drafts():
    """Where a pass is shared by many and rows cost time, a drafted token must be worth everybody's waiting."""
    world = World(acceptance=lambda i, confidence: 0.8, row_s=0.004)
    reply = Reply(world, world.evidence())
    reply.run(300)
    assert reply.policy.plan((), 32) is not None
    reply.policy.update(StepOutcome(None, 0, 0, 0.0, world.target_s(16), 16, 15, 16))
    assert reply.policy.plan((), 32) is None


def test_the_pass_that_ends_a_prompt_says_nothing_about_steps():
    world = World()
    evidence = world.evidence()
    reply = Reply(world, evidence)
    plan = reply.policy.plan((), 32)
    before = evidence.regime(greedy=False).account(1).ledger.balance_s
    n_draft = len(drafted_at_once(reply.model.propose((), 1, plan.wants_another)))
    reply.policy.update(StepOutcome(MODEL, n_draft, 0, 0.01, 5.0, 300, 0, 1))
    assert evidence.target_times.seconds(33) == pytest.approx(world.target_s(33))
    lost_s = before - evidence.regime(greedy=False).account(1).ledger.balance_s
    assert lost_s == pytest.approx(world.draft_s(1) + world.target_s(2) - world.target_s(1), rel=0.1), "the draft's own"


@pytest.mark.parametrize("width", [1, 2, 5])
@pytest.mark.parametrize("with_model", [True, False])
def test_a_hiccup_while_a_width_is_measured_at_load_costs_no_reply(width, with_model):
    world = World(acceptance=lambda i, confidence: 0.9, copies=lambda rng: 0 if with_model else 8, copied=0.9)
    slow_s = {n: world.target_s(n) + (0.3 if n == width else 0.0) for n in (1, 2, 5, 9, 17, 33)}
    evidence = Evidence(PassTimes(slow_s), PassTimes({n: world.draft_s(n) for n in (1, 2, 5, 9, 17, 33)}))
    reply = Reply(world, evidence, with_model=with_model, with_lookup=not with_model)
    assert reply.run(400) > 2 / world.target_s(1)


def test_drafts_of_short_replies_are_settled_too():
    """Each begins in the pass that ends its prompt: a first draft that went uncounted could lose for ever."""
    world = World(acceptance=lambda i, confidence: 0.0, row_s=0.005, draft_base_s=0.007, draft_row_s=0.003)
    evidence = world.evidence()
    for _ in range(60):
        reply = Reply(world, evidence)
        reply.step(n_prompt_rows=40)
        for _ in range(19):
            reply.step()
    assert sum(n > 0 for n in world.lengths) < 30


@pytest.mark.parametrize("n_sequences", [4, 8])
def test_sequences_in_one_pass_share_what_may_be_lost(n_sequences):
    world = copy_of(MACHINES["a CPU: a row costs a quarter of a pass, the draft a third"], noise=0.0)
    world.acceptance = lambda i, confidence: 0.0
    evidence = world.evidence()
    policies = [Reply(world, evidence).policy for _ in range(n_sequences)]
    spent_s, n_passes = 0.0, 400
    for _ in range(n_passes):
        plans = [policy.plan((), 32) for policy in policies]
        sizes = []
        for plan in plans:
            world.n_read = world.n_history - 1
            draft = drafted_at_once(WorldModel(world).propose((), plan.n_draft, plan.wants_another)) if plan else ()
            sizes.append(len(draft))
        n_rows = sum(1 + size for size in sizes)
        pass_s = world.target_s(n_rows)
        spent_s += pass_s + sum(world.draft_s(1) * size for size in sizes)
        for policy, size in zip(policies, sizes, strict=True):
            outcome = StepOutcome(MODEL if size else None, size, 0, 0.0, pass_s, n_rows, n_rows - 1 - size, n_sequences)
            policy.update(outcome)
    assert n_passes * world.target_s(n_sequences) > 0.97 * spent_s


def test_a_prompt_in_the_same_pass_makes_no_draft_cheaper():
    """Its rows are not steps: beside them a drafted row looks free, and a step slow."""
    world = World(acceptance=lambda i, confidence: 0.0, row_s=0.005, draft_base_s=0.007)
    evidence = world.evidence()
    reply = Reply(world, evidence)
    reply.run(400)
    before, rate = evidence.target_times.seconds(1), reply.policy.plan((), 32)
    assert rate is None
    for _ in range(5):
        reply.policy.update(StepOutcome(None, 0, 0, 0.0, world.target_s(513), 513, 0, 2))
        assert reply.policy.plan((), 32) is None or reply.policy._is_probe
    assert evidence.target_times.seconds(1) == before


def test_a_ceiling_of_zero_never_drafts():
    world = World(copies=lambda rng: 8, copied=1.0)
    policy = ExpectedGain(
        world.evidence(), model=WorldModel(world), lookup=WorldLookup(world), greedy=True, ceiling=0, copy_ceiling=0
    )
    assert not policy.begin(MODEL, 10)
    assert policy.begin(LOOKUP, 10)
    assert policy.plan((), 32) is None


def test_without_a_draft_model_there_is_none_to_read():
    evidence = Evidence(PassTimes({1: 0.02}))
    policy = ExpectedGain(evidence, model=None, lookup=None, greedy=True, ceiling=8, copy_ceiling=32)
    assert not policy.begin(MODEL, 10)
    assert policy.plan((), 32) is None
    policy.update(StepOutcome(None, 0, 0, 0.0, 0.02, 1, 0, 1))


def test_a_step_without_a_plan_is_not_taken_for_the_one_before():
    """At the end of a reply there is room for one token: nobody is asked for a draft."""
    world = World(acceptance=lambda i, confidence: 0.95)
    evidence = world.evidence()
    reply = Reply(world, evidence)
    reply.run(100)
    drafting_s = evidence.draft_times.seconds(1)
    for _ in range(30):
        reply.policy.update(StepOutcome(None, 0, 0, 0.0, 0.02, 1, 0, 1))
    assert evidence.draft_times.seconds(1) == drafting_s
    assert reply.policy.plan((), 32) is not None


def test_a_slow_model_whose_wide_passes_nobody_had_time_to_measure_learns_them():
    """Known at first: one row. Rows seem to cost a pass each, which forbids every draft but probes."""
    world = World(base_s=0.4, row_s=0.004, draft_base_s=0.04, draft_row_s=0.002, copies=lambda rng: 6, copied=0.9)
    evidence = Evidence(PassTimes({1: 0.4}, widest=33), PassTimes({1: 0.04}, widest=33))
    Reply(world, evidence, with_lookup=True).run(600)
    assert Reply(world, evidence, with_lookup=True).run(300) > 2 / world.target_s(1)


@pytest.mark.parametrize(("limit", "wants"), [(2, False), (8, True)])
def test_a_draft_is_not_drawn_out_for_tokens_that_it_may_not_have(limit, wants):
    """Passes take a stair at the third row: the second token pays only together with those after it."""
    world = World()
    target_times = PassTimes({1: 0.020, 2: 0.020, 3: 0.035, 17: 0.035})
    evidence = Evidence(target_times, PassTimes({1: 0.001, 17: 0.001}), Agreement(greedy=0.9, sampled=0.9))
    plan = Reply(world, evidence).policy.plan((), limit)
    assert plan is not None
    assert plan.n_draft == limit
    assert plan.wants_another(0.9) == wants


def test_a_reply_of_another_kind_is_told_apart_within_it():
    """Copies never hold in every second reply and always in the others: averages would be wrong in both."""
    world = World(row_s=0.004, copies=lambda rng: 4)
    evidence = world.evidence()
    rates: dict[float, list[float]] = {0.0: [], 1.0: []}
    for n in range(24):
        world.copied = float(n % 2)
        rates[world.copied].append(Reply(world, evidence, with_model=False, with_lookup=True).run(160))
    plain = 1 / world.target_s(1)
    assert min(rates[0.0][4:]) > 0.95 * plain
    assert min(rates[1.0][4:]) > 2.5 * plain


def in_long_text(world: World, evidence: Evidence, n_cells: int) -> None:
    """The text becomes so long, and the engine measures passes over it."""
    world.n_cells = n_cells
    for times, seconds in ((evidence.target_times, world.target_s), (evidence.draft_times, world.draft_s)):
        if times.is_worth_measuring(n_cells):
            times.learn_context(n_cells, {n: seconds(n) for n in (1, 3)})


@pytest.mark.parametrize("n_cells", [2_000, 8_000, 32_000])
def test_where_attention_makes_every_row_dear_it_steps_aside_at_once(n_cells):
    """A CPU: over a long text three rows take three times as long as one, and the small draft model no less."""
    world = World(draft_base_s=0.002, row_and_cell_s=3e-6)
    evidence = world.evidence()
    Reply(world, evidence).run(300)  # short texts, where drafts pay well
    in_long_text(world, evidence, n_cells)
    first = Reply(world, evidence)
    assert first.run(100) > 0.97 / world.target_s(1)
    assert first.run(5_000) > 0.96 * best_fixed_rate(world, 0.9)


def test_long_and_short_texts_in_turn_keep_what_each_can_have():
    world = World(draft_base_s=0.002, row_and_cell_s=3e-6)
    evidence = world.evidence()
    rates: dict[int, list[float]] = {0: [], 8_000: []}
    for i in range(20):
        in_long_text(world, evidence, n_cells := (0, 8_000)[i % 2])
        rates[n_cells].append(Reply(world, evidence).run(100))
    for n_cells, measured in rates.items():
        world.n_cells = n_cells
        assert sum(measured[2:]) / len(measured[2:]) > 0.93 * best_fixed_rate(world, 0.9)
        assert min(measured) > 0.97 / world.target_s(1)


def test_a_long_prompt_that_drafts_would_not_pay_for_is_not_read_by_the_draft_model():
    world = World(row_and_cell_s=3e-6)
    evidence = world.evidence()
    in_long_text(world, evidence, 16_000)
    assert not Reply(world, evidence).policy.begin(MODEL, 16_000)
    assert Reply(world, evidence).policy.begin(MODEL, 100)


# --- beside other replies --------------------------------------------------------------------------------------------


class Together:
    """Replies that share every pass: of the target, and of the draft model as long as they still draft."""

    def __init__(self, world: World, evidence: Evidence, n_replies: int) -> None:
        self.world = world
        evidence.batch_width = n_replies
        self.policies = [Reply(world, evidence).policy for _ in range(n_replies)]
        self.n_drafting: list[int] = []

    def step(self) -> int:
        world, n_replies = self.world, len(self.policies)
        world.n_read = world.n_history - 1
        started = world.now
        plans = [policy.plan(range(world.n_cells), 32) for policy in self.policies]
        lengths, confidences = [0] * n_replies, [[] for _ in plans]
        drafting = [i for i, plan in enumerate(plans) if plan is not None]
        n_drafting = len(drafting)
        while drafting:
            world.spend(world.draft_s(len(drafting)))
            n_sharing, goes_on = len(drafting), []
            for i in drafting:
                lengths[i] += 1
                confidences[i].append(world.confidence(world.rng))
                wants = plans[i].wants_another(confidences[i][-1], n_sharing)
                if wants and lengths[i] < plans[i].n_draft:
                    goes_on.append(i)
            drafting = goes_on
        draft_s = world.now - started
        n_rows = n_replies + sum(lengths)
        verify_s = world.spend(world.target_s(n_rows))
        done = 0
        for policy, length, confidence in zip(self.policies, lengths, confidences, strict=True):
            n_accepted = 0
            while n_accepted < length and world.rng.random() < world.acceptance(n_accepted + 1, confidence[n_accepted]):
                n_accepted += 1
            done += 1 + n_accepted
            source, others = (MODEL if length else None), n_rows - 1 - length
            policy.update(
                StepOutcome(source, length, n_accepted, draft_s, verify_s, n_rows, others, n_replies, n_drafting)
            )
        self.n_drafting.append(n_drafting)
        return done

    def run(self, n_steps: int) -> float:
        """Tokens per second of all together."""
        started = self.world.now
        return sum(self.step() for _ in range(n_steps)) / (self.world.now - started)


# Measured on two cores: alone, drafts gain a half; beside others, rows and the draft model's passes cost too much.
TWO_CORES = World(base_s=0.031, row_s=0.004, draft_base_s=0.0145, draft_row_s=0.005, acceptance=lambda i, c: 0.93)


@pytest.mark.parametrize("n_replies", [3, 4, 8])
def test_beside_others_it_steps_aside_where_a_batch_of_plain_steps_does_more(n_replies):
    """Each alone would find its draft worth its own time; all of them make each other wait."""
    world = copy_of(TWO_CORES, acceptance=TWO_CORES.acceptance)
    evidence = world.evidence()
    assert Reply(world, evidence).run(600) > 1.1 / world.target_s(1)
    plain = n_replies / world.target_s(n_replies)
    for _ in range(4):  # what was gained alone is not lost in a batch, not even at first
        assert Together(world, evidence, n_replies).run(100) > 0.94 * plain
    assert Together(world, evidence, n_replies).run(2_000) > 0.97 * plain
    evidence.batch_width = 1
    assert Reply(world, evidence).run(600) > 1.1 / world.target_s(1), "and alone it drafts as before"


@pytest.mark.parametrize("n_replies", [2, 4, 8])
def test_beside_others_it_drafts_where_all_gain(n_replies):
    """A GPU: rows are free, and a pass of the draft model serves everybody. Alone, nobody could afford to draft."""
    world = World(row_s=0.0001, draft_base_s=0.004, draft_row_s=0.00001)
    plain = n_replies / world.target_s(n_replies)
    batch = Together(world, world.evidence(), n_replies)
    assert batch.run(600) > 1.8 * plain
    assert batch.n_drafting.count(n_replies) > 500


def test_the_last_one_that_drafts_bears_the_pass_alone():
    world = World(row_s=0.0001, draft_base_s=0.008, draft_row_s=0.0)
    evidence = world.evidence()
    batch = Together(world, evidence, 4)
    plan = batch.policies[0].plan((), 8)
    assert plan is not None
    assert plan.wants_another(0.9, 4)
    assert not plan.wants_another(0.9, 1)


@pytest.mark.parametrize(
    ("n_unread", "n_most", "reads"),
    [(0, None, True), (100, None, True), (2_000, None, False), (100, 16, False), (8, 16, True), (2_000, 10_000, False)],
)
def test_a_prompt_is_read_only_for_what_the_reply_can_save(n_unread, n_most, reads):
    """A draft model that reads slowly: its reading is time until the first token."""
    world = World(draft_base_s=0.004)
    evidence = world.evidence()
    first = Reply(world, evidence)
    assert first.policy.begin(MODEL, 5_000, 5_000), "to see what reading takes"
    first.policy.has_read(8, 100.0)  # too little to say anything
    first.policy.has_read(512, 512 * 0.003)
    assert Reply(world, evidence).policy.begin(MODEL, 5_000, n_unread, n_most) == reads


def test_what_replies_usually_have_counts():
    world = World(draft_base_s=0.004)
    evidence = world.evidence()
    evidence.note_reading(512, 512 * 0.003)
    assert Reply(world, evidence).policy.begin(MODEL, 200, 200)
    for _ in range(30):
        reply = Reply(world, evidence)
        reply.run(8)
        reply.policy.end()
        reply.policy.end()  # closed twice
    assert not Reply(world, evidence).policy.begin(MODEL, 200, 200)
    assert Reply(world, evidence).policy.begin(MODEL, 200, 4)


def test_beside_others_nobody_waits_for_a_first_reading():
    evidence = World(draft_base_s=0.004).evidence()
    evidence.batch_width = 4
    assert not Reply(World(draft_base_s=0.004), evidence).policy.begin(MODEL, 5_000, 5_000)
