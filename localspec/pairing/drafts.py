"""One draft for one target: whether it can draft and fits, what speaks against it, and how fast the pair is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from localspec.bench.pair_speed import PairSpeed, find_pair_speed
from localspec.engine.requests import PairSpec
from localspec.memory.choice import Margin
from localspec.memory.devices import Machine
from localspec.memory.plan import Plan, plan
from localspec.models.advice import PairWarning, warnings_for
from localspec.models.compat import PairVerdict, Reason, Verdict, judge_pair
from localspec.models.generative import not_generative
from localspec.models.header import GgufHeader
from localspec.models.registry import RegisteredPair
from localspec.pairing.prediction import Prediction, predict
from localspec.pairing.resolve import ResolvedModel
from localspec.pairing.traffic import Bandwidths, traffic_of

__all__ = ["Conditions", "DraftOption", "Place", "judge", "ranked"]

_GRADES: Final = {"A": 0, "B": 1, "C": 2, None: 2}


class Place(StrEnum):
    """Where a draft was found."""

    NAMED = "named"  # by the user
    HERE = "here"  # a file on this machine
    REGISTRY = "models.toml"
    HUB = "Hub"


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a pair is judged for. Cache types and layers that are None are chosen; -1 layers are all.

    `bandwidths` None: no speed is predicted. `is_here` False: a machine that somebody asks about, of which nothing was
    measured.
    """

    machine: Machine
    n_ctx: int
    kv_type: str | None = None
    draft_kv_type: str | None = None
    n_gpu_layers: int | None = None
    bandwidths: Bandwidths | None = None
    margin: Margin = field(default_factory=Margin)
    is_here: bool = True

    @property
    def gpu_layers(self) -> int:
        """As an engine is told: -1 where all that fit are wanted."""
        return -1 if self.n_gpu_layers is None else self.n_gpu_layers

    def as_loaded(self, pair: PairSpec) -> Conditions:
        """The same for a target that is loaded, and stays as it is."""
        return replace(
            self,
            n_ctx=pair.n_ctx or self.n_ctx,
            kv_type=pair.target.kv_type.value,
            n_gpu_layers=pair.target.n_gpu_layers,
        )


@dataclass(frozen=True, slots=True)
class DraftOption:
    """A draft model and everything that is known about it beside its target.

    `plan` None: refused, or a header with a vocabulary and no weights. `measured` is this machine's, `reported` what
    models.toml cites.
    """

    model: ResolvedModel
    place: Place
    verdict: PairVerdict
    warnings: tuple[PairWarning, ...]
    plan: Plan | None = None
    prediction: Prediction | None = None
    measured: PairSpeed | None = None
    measured_note: str = ""
    reported: RegisteredPair | None = None

    @property
    def is_refused(self) -> bool:
        """Whether it cannot draft for the target at all."""
        return self.verdict.verdict is Verdict.REFUSED

    @property
    def fits(self) -> bool:
        """Whether target and draft fit together, this draft included."""
        return self.plan is not None and self.plan.fits and self.plan.choice.draft is not None

    @property
    def speedup(self) -> float | None:
        """Against the target alone: measured, else predicted."""
        if self.measured is not None:
            return self.measured.speedup
        return self.prediction.speedup if self.prediction else None


def judge(
    target: ResolvedModel,
    draft: ResolvedModel,
    conditions: Conditions,
    *,
    place: Place = Place.NAMED,
    reported: RegisteredPair | None = None,
) -> DraftOption:
    """Everything about one pair, from the headers of both and from what was measured here.

    Raises:
        ModelFileError: a header holds values of the wrong type.
        UsageError: a cache type that was asked for is impossible for a model.
    """
    verdict = _verdict(target.header, draft.header)
    if verdict.verdict is Verdict.REFUSED:
        return DraftOption(draft, place, verdict, (), reported=reported)
    option = DraftOption(
        draft,
        place,
        verdict,
        warnings_for(target.header, draft.header, conditions.n_ctx),
        reported=reported,
    )
    if not target.header.tensors or not draft.header.tensors:
        return option  # vocabularies only: nothing to load
    made = plan(
        target.header,
        draft.header,
        conditions.machine,
        n_ctx=conditions.n_ctx,
        kv_type=conditions.kv_type,
        draft_kv_type=conditions.draft_kv_type,
        n_gpu_layers=conditions.n_gpu_layers,
        margin=conditions.margin,
    )
    option = replace(option, plan=made, prediction=_prediction(target.header, draft.header, made, conditions))
    if target.path is None or draft.path is None or not conditions.is_here:
        return option
    found = find_pair_speed(target.path, draft.path, gpu_layers=conditions.gpu_layers, draft_gpu_layers=-1)
    return replace(option, measured=found.speed, measured_note=found.complaint)


def ranked(options: Iterable[DraftOption]) -> list[DraftOption]:
    """The best first: what fits before what does not, what was measured or reported before what nobody tried."""

    def key(option: DraftOption) -> tuple[object, ...]:
        grade = _GRADES[option.reported.grade] if option.reported else len(_GRADES)
        known = -1 if option.measured else grade
        # To a tenth: a forecast is no more exact than that, and what is here costs no download.
        speed = round(option.speedup or 0.0, 1)
        return option.is_refused, not option.fits, known, -speed, option.model.n_download_bytes

    return sorted(options, key=key)


def _verdict(target: GgufHeader, draft: GgufHeader) -> PairVerdict:
    """That of the vocabularies, unless one of the files is no model that could take part. Weights need not be there."""
    for header, role in ((target, "target"), (draft, "draft")):
        problem = not_generative(header)
        if problem is not None and not problem.is_incomplete:
            values = (problem.what, "") if role == "target" else ("", problem.what)
            text = f"the {role} {header.path.name} {problem.what}"
            reason = Reason("kind of model", *values, text, problem.hint)
            return PairVerdict(Verdict.REFUSED, (reason,))
    return judge_pair(target, draft)


def _prediction(target: GgufHeader, draft: GgufHeader, made: Plan, conditions: Conditions) -> Prediction | None:
    choice, bandwidths = made.choice, conditions.bandwidths
    if bandwidths is None or choice.draft is None:
        return None
    ours = traffic_of(target, choice.target, choice.n_ctx, bandwidths)
    theirs = traffic_of(draft, choice.draft, choice.n_ctx, bandwidths)
    return predict(ours, theirs)
