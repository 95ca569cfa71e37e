"""Measuring an option: load the pair as planned, run the short bench, keep the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from localspec.bench.pair_speed import PairSpeed, measure_pair, short_schedule, store_pair_speed
from localspec.bench.runner import Run
from localspec.bench.tune_measure import TunableEngine
from localspec.engine.client import LoadListener
from localspec.engine.requests import KvType, ModelSpec, PairSpec
from localspec.pairing.drafts import Conditions, DraftOption
from localspec.pairing.resolve import ResolvedModel

__all__ = ["can_be_measured", "measure_option", "n_runs_of_one"]

_LEAST_CTX: Final = 2048  # for the prompts of the bench


def can_be_measured(target: ResolvedModel, option: DraftOption) -> bool:
    """Whether both files are here and the plan says that they fit."""
    return target.path is not None and option.model.path is not None and option.fits


def n_runs_of_one() -> int:
    """Replies that measuring one option takes."""
    return short_schedule().n_runs


def measure_option(
    engine: TunableEngine,
    target: ResolvedModel,
    option: DraftOption,
    conditions: Conditions,
    on_load: LoadListener = lambda _: None,
    on_run: Callable[[Run], None] = lambda _: None,
) -> PairSpeed | None:
    """Load, measure and store; None when nothing was measured.

    Raises:
        LocalspecError: the pair cannot be loaded, or a reply failed.
        DiskFullError: the result cannot be stored.
    """
    assert target.path is not None
    assert option.model.path is not None
    choice = option.plan.choice if option.plan else None
    kv_type = KvType(choice.target.kv_type if choice else "f16")
    draft_kv_type = KvType(choice.draft.kv_type if choice and choice.draft else "f16")
    spec = PairSpec(
        target.name,
        ModelSpec(target.path, conditions.gpu_layers, kv_type),
        ModelSpec(option.model.path, kv_type=draft_kv_type),
        n_ctx=max(conditions.n_ctx, _LEAST_CTX),
    )
    engine.load_and_wait(spec, on_load)
    speed = measure_pair(engine, spec, on_run=on_run)
    if speed is not None:
        store_pair_speed(speed, target.path, option.model.path)
    return speed
