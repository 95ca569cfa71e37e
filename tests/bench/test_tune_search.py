"""The search on scripted measurements: response surfaces that are known, with noise that is seeded."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import pytest

from localspec.bench.paired import Pass
from localspec.bench.tune_search import Dimension, Outcome, OutOfTimeError, Search, UnusableError, Verdict

Settings = tuple[int, ...]
N_CASES = 6


class Machine:
    """Answers from `speed`, with noise, and takes `pass_s` for it on a clock of its own."""

    def __init__(
        self, speed: Callable[[Settings], float], *, noise: float = 0.0, seed: int = 0, pass_s: float = 1.0
    ) -> None:
        self.speed = speed
        self.noise = noise
        self.rng = random.Random(seed)
        self.pass_s = pass_s
        self.time = 0.0
        self.asked: list[tuple[Settings, Settings, int]] = []

    def measure(self, incumbent: Settings, challenger: Settings, number: int) -> Pass:
        self.asked.append((incumbent, challenger, number))
        self.time += self.pass_s
        gain = math.log(self.speed(challenger) / self.speed(incumbent))
        # What a case costs, and how much more one gains than another, is part of the surface and not of the noise.
        return [gain * (0.5 + i / (N_CASES - 1)) + self.rng.gauss(0, self.noise) for i in range(N_CASES)]

    def search(
        self, start: Settings, dimensions: Sequence[Dimension[Settings]], deadline: float = math.inf
    ) -> Search[Settings]:
        return Search(start, dimensions, self.measure, now=lambda: self.time, deadline=deadline)


def coordinate(index: int, values: Sequence[int]) -> Dimension[Settings]:
    return Dimension(
        f"x{index}",
        lambda point: [(*point[:index], value, *point[index + 1 :]) for value in values if value != point[index]],
    )


PLANE = [coordinate(0, range(4)), coordinate(1, range(3))]


def separable(point: Settings) -> float:
    return 10 * (1.0, 1.3, 1.1, 0.7)[point[0]] * (1.0, 0.9, 1.2)[point[1]]


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.05])
def test_it_finds_the_best_of_a_known_surface(noise: float):
    for seed in range(30):
        outcome = Machine(separable, noise=noise, seed=seed).search((0, 0), PLANE).run()
        assert outcome.best == (1, 2)
        assert outcome.is_complete
        assert outcome.is_confirmed


def test_what_is_best_in_one_dimension_may_depend_on_another():
    """With x0 = 0 the second coordinate does not matter; once x0 is 1, it does: only a second round finds it."""

    def speed(point: Settings) -> float:
        return {(0, 0): 1.0, (0, 1): 1.0, (1, 0): 1.5, (1, 1): 2.0}[point]

    order = [coordinate(1, range(2)), coordinate(0, range(2))]
    assert Machine(speed).search((0, 0), order).run().best == (1, 1)


def test_without_noise_a_change_that_is_worse_is_never_kept():
    """Every surface of random speeds: each kept change is a true gain, and the end is a local best."""
    rng = random.Random(7)
    for _ in range(200):
        speeds = {(i, j): math.exp(rng.gauss(0, 0.2)) for i in range(4) for j in range(3)}
        outcome = Machine(speeds.__getitem__).search((0, 0), PLANE).run()
        for trial in outcome.trials:
            if trial.verdict is Verdict.KEPT:
                assert speeds[trial.challenger] > speeds[trial.incumbent]
        best = speeds[outcome.best]
        neighbours = [each for dimension in PLANE for each in dimension.alternatives(outcome.best)]
        # What the rule drops early could gain less than 1 %.
        assert all(speeds[each] < best * 1.011 for each in neighbours)


@pytest.mark.parametrize(("gain", "at_most"), [(0.0, 0.03), (-0.005, 0.02), (-0.02, 0.001)])
def test_with_noise_what_brings_nothing_is_kept_as_rarely_as_promised(gain: float, at_most: float):
    kept = 0
    n_searches = 2_000
    for seed in range(n_searches):
        machine = Machine(lambda point: math.exp(gain * point[0]), noise=0.04, seed=seed)
        kept += machine.search((0,), [coordinate(0, range(2))]).run().best == (1,)
    # Twice the standard deviation of a count with that expectation.
    assert kept <= at_most * n_searches + 2 * math.sqrt(at_most * n_searches)


def test_a_gain_of_five_percent_is_found_in_noise_of_three():
    found = sum(
        Machine(lambda point: 1 + 0.05 * point[0], noise=0.03, seed=seed)
        .search((0,), [coordinate(0, range(2))])
        .run()
        .best
        == (1,)
        for seed in range(200)
    )
    assert found >= 190


def test_what_is_hopeless_costs_one_pass_and_what_is_equal_two():
    machine = Machine(lambda point: (1.0, 0.8, 1.0)[point[0]])
    machine.search((0,), [coordinate(0, range(3))]).run()
    assert machine.asked == [((0,), (1,), 0), ((0,), (2,), 0), ((0,), (2,), 1)]


def test_no_comparison_is_made_twice_and_nobody_that_lost_the_lead_comes_back():
    for seed in range(50):
        machine = Machine(separable, noise=0.3, seed=seed)
        outcome = machine.search((0, 0), PLANE).run()
        pairings = [(trial.incumbent, trial.challenger) for trial in outcome.trials]
        assert len(pairings) == len(set(pairings))
        leaders = [(0, 0), *(trial.challenger for trial in outcome.trials if trial.verdict is Verdict.KEPT)]
        assert len(leaders) == len(set(leaders))


@pytest.mark.parametrize("budget", [0.5, 3.0, 7.3, 20.0])
@pytest.mark.parametrize("pass_s", [0.9, 2.0])
def test_the_budget_is_kept(budget: float, pass_s: float):
    machine = Machine(separable, noise=0.05, pass_s=pass_s)
    outcome = machine.search((0, 0), PLANE, deadline=budget).run()
    # Only the first pass cannot be foreseen.
    assert machine.time <= max(budget, pass_s)
    if not outcome.is_complete:
        assert outcome.trials[-1].verdict is Verdict.OUT_OF_TIME
        assert machine.time + pass_s > budget
    else:
        assert outcome.best == (1, 2)


def test_a_pass_that_is_cut_does_not_count():
    def measure(incumbent: Settings, challenger: Settings, number: int) -> Pass:
        if number == 1:
            raise OutOfTimeError
        return [1.0] * N_CASES

    search = Search((0,), [coordinate(0, range(3))], measure, now=lambda: 0.0, deadline=1.0)
    outcome = search.run()
    assert [trial.verdict for trial in outcome.trials] == [Verdict.OUT_OF_TIME]
    assert outcome.best == (0,)
    assert not outcome.is_confirmed


def test_who_cannot_run_is_passed_over_with_the_reason():
    machine = Machine(separable)

    def measure(incumbent: Settings, challenger: Settings, number: int) -> Pass:
        if challenger[0] == 2:
            raise UnusableError("it does not fit")
        if challenger[0] == 3:
            return [None] * N_CASES
        return machine.measure(incumbent, challenger, number)

    outcome = Search((0, 0), PLANE, measure, now=lambda: 0.0, deadline=1.0).run()
    assert outcome.best == (1, 2)
    notes = {trial.challenger[0]: trial.note for trial in outcome.trials if trial.verdict is Verdict.UNUSABLE}
    assert notes[2] == "it does not fit"
    assert "long enough" in notes[3]
    assert not Outcome((0,), outcome.trials[1:2]).is_confirmed


@pytest.mark.parametrize("after", range(11))
def test_an_interruption_leaves_what_was_decided(after: int):
    machine = Machine(separable)

    def measure(incumbent: Settings, challenger: Settings, number: int) -> Pass:
        if len(machine.asked) == after:
            raise KeyboardInterrupt
        return machine.measure(incumbent, challenger, number)

    search = Search((0, 0), PLANE, measure, now=lambda: 0.0, deadline=1.0)
    with pytest.raises(KeyboardInterrupt):
        search.run()
    undisturbed = Machine(separable).search((0, 0), PLANE).run().trials
    assert search.outcome.trials == undisturbed[: len(search.outcome.trials)]
    kept = [trial.challenger for trial in search.outcome.trials if trial.verdict is Verdict.KEPT]
    assert search.outcome.best == (kept[-1] if kept else (0, 0))
    assert search.outcome.is_confirmed == bool(search.outcome.trials)


def test_one_seed_one_result():
    def run(seed: int) -> Outcome[Settings]:
        return Machine(separable, noise=0.3, seed=seed).search((0, 0), PLANE).run()

    assert run(1) == run(1)
    assert run(1).trials != run(2).trials


def test_the_listener_hears_every_pass_and_then_the_verdict():
    heard = []
    machine = Machine(separable)
    search = Search(
        (0, 0), [coordinate(0, range(2))], machine.measure, now=lambda: 0.0, deadline=1.0, listener=heard.append
    )
    search.run()
    assert [(trial.verdict, trial.speedup and trial.speedup.n_pairs) for trial in heard] == [
        (Verdict.OPEN, None),
        (Verdict.OPEN, N_CASES),
        (Verdict.KEPT, 2 * N_CASES),
    ]
