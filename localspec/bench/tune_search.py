"""The search of `localspec tune`, free of engines and clocks: which way of running is fastest, on clear evidence only.

Coordinate by coordinate: each dimension offers alternatives to the best known point, and each is measured against it
in passes, a pair of runs for every case. What is kept must be faster beyond the noise:

- after the second, third and fourth pass a challenger is kept if the lower 99 % bound of its speedup is above 1. With
  three looks at 1 % each, one that brings nothing is kept in at most 3 % of all cases (Bonferroni), and one that is
  slower more rarely still;
- it is dropped early if it loses more than 15 % in the first pass or more than 3 % in two and more, or if the upper
  bound leaves less than 1 % to gain; and after the fourth pass in any case. Dropping needs no proof: what it can cost
  is a gain that was missed.

The dimensions are gone through again for as long as something changes, since the best value of one may depend on the
others. Where the search starts is therefore also what wins whenever the evidence is thin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Generic, TypeVar

from localspec.bench.paired import Pass, Speedup, speedup

__all__ = ["Dimension", "Measure", "OutOfTimeError", "Outcome", "Search", "Trial", "UnusableError", "Verdict"]

Point = TypeVar("Point")

_MAX_PASSES: Final = 4
_HOPELESS_AT_FIRST: Final = 0.85
_HOPELESS: Final = 0.97
_NO_GAIN: Final = 1.01


class OutOfTimeError(Exception):
    """The budget ended in the middle of a pass."""


class UnusableError(Exception):
    """The challenger cannot run here; the message says why."""


class Verdict(StrEnum):
    """What came of a comparison; `OPEN` until that is known."""

    OPEN = "measuring"
    KEPT = "kept"
    NOT_FASTER = "not faster"
    NOT_CLEAR = "not clearly faster"
    UNUSABLE = "cannot be used"
    OUT_OF_TIME = "out of time"

    @property
    def is_decision(self) -> bool:
        """Whether the two were compared to the end."""
        return self in {Verdict.KEPT, Verdict.NOT_FASTER, Verdict.NOT_CLEAR}


@dataclass(frozen=True, slots=True)
class Trial(Generic[Point]):
    """One comparison: `speedup` is that of the challenger over the incumbent."""

    dimension: str
    incumbent: Point
    challenger: Point
    verdict: Verdict
    speedup: Speedup | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Point]):
    """What is known so far. `is_complete`: nothing is left to try."""

    best: Point
    trials: tuple[Trial[Point], ...] = ()
    is_complete: bool = False

    @property
    def is_confirmed(self) -> bool:
        """Whether anything was decided: before that, `best` is no more than where the search started."""
        return any(trial.verdict.is_decision for trial in self.trials)


@dataclass(frozen=True, slots=True)
class Dimension(Generic[Point]):
    """One thing to vary. `alternatives` are those to a point, the most promising first."""

    name: str
    alternatives: Callable[[Point], Iterable[Point]]


Measure = Callable[[Point, Point, int], Pass]
"""Runs incumbent and challenger once on every case, in the given pass (from 0): log(seconds of one / of the other).

It raises `OutOfTimeError`, or `UnusableError` if the challenger cannot run.
"""


class Search(Generic[Point]):
    """Searches from `start` until nothing changes, or until the next pass would not end before `deadline` by `now`.

    `outcome` is valid at any time, also after `run` was left by an exception. The listener hears of each comparison
    when it begins, after every pass, and when it is decided.
    """

    def __init__(
        self,
        start: Point,
        dimensions: Sequence[Dimension[Point]],
        measure: Measure[Point],
        *,
        now: Callable[[], float],
        deadline: float,
        listener: Callable[[Trial[Point]], None] = lambda _: None,
    ) -> None:
        self.outcome = Outcome(start)
        self._dimensions = dimensions
        self._measure = measure
        self._now = now
        self._deadline = deadline
        self._listener = listener
        self._longest_pass_s = 0.0
        self._incumbents = {start}
        self._compared: set[tuple[Point, Point]] = set()

    def run(self) -> Outcome[Point]:
        """Search to the end."""
        n_before = -1
        while n_before != len(self._incumbents):
            n_before = len(self._incumbents)
            for dimension in self._dimensions:
                for challenger in dimension.alternatives(self.outcome.best):
                    if self._is_new(challenger) and not self._try(dimension.name, challenger):
                        return self.outcome
        self.outcome = replace(self.outcome, is_complete=True)
        return self.outcome

    def _is_new(self, challenger: Point) -> bool:
        """Not yet compared with the incumbent, nor itself beaten by it or by one that led to it."""
        pairing = (self.outcome.best, challenger)
        if challenger in self._incumbents or pairing in self._compared:
            return False
        self._compared.add(pairing)
        return True

    def _try(self, dimension: str, challenger: Point) -> bool:
        """Compare and record; False when there is no time for more."""
        trial = self._compare(Trial(dimension, self.outcome.best, challenger, Verdict.OPEN, None))
        is_kept = trial.verdict is Verdict.KEPT
        if is_kept:
            self._incumbents.add(challenger)
        best = challenger if is_kept else self.outcome.best
        self.outcome = Outcome(best, (*self.outcome.trials, trial))
        self._listener(trial)
        return trial.verdict is not Verdict.OUT_OF_TIME

    def _compare(self, trial: Trial[Point]) -> Trial[Point]:
        passes: list[Pass] = []
        while trial.verdict is Verdict.OPEN:
            self._listener(trial)
            began = self._now()
            if began + self._longest_pass_s > self._deadline:
                return replace(trial, verdict=Verdict.OUT_OF_TIME)
            try:
                passes.append(self._measure(trial.incumbent, trial.challenger, len(passes)))
            except OutOfTimeError:
                return replace(trial, verdict=Verdict.OUT_OF_TIME)
            except UnusableError as error:
                return replace(trial, verdict=Verdict.UNUSABLE, note=str(error))
            self._longest_pass_s = max(self._longest_pass_s, self._now() - began)
            measured = speedup(passes)
            if measured is None:
                return replace(trial, verdict=Verdict.UNUSABLE, note="no reply was long enough to be timed")
            trial = replace(trial, speedup=measured, verdict=_judge(measured, len(passes)))
        return trial


def _judge(measured: Speedup, n_passes: int) -> Verdict:
    """The rule of the module's docstring."""
    if n_passes == 1:
        return Verdict.NOT_FASTER if measured.ratio < _HOPELESS_AT_FIRST else Verdict.OPEN
    if measured.low > 1:
        return Verdict.KEPT
    if measured.ratio < _HOPELESS or measured.high < _NO_GAIN:
        return Verdict.NOT_FASTER
    return Verdict.NOT_CLEAR if n_passes == _MAX_PASSES else Verdict.OPEN
