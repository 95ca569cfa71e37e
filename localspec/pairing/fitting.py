"""A pair as it fits the graphics cards of this machine: as asked for where it fits, else by the plan, and said so."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from localspec.engine.requests import KvType, PairSpec, default_n_ctx
from localspec.memory.choice import Choice
from localspec.memory.devices import Machine
from localspec.memory.plan import Plan, plan
from localspec.models.description import describe
from localspec.models.generative import not_generative
from localspec.models.split import read_model
from localspec.printable import one_line

__all__ = ["fitted"]

_SET_BY_USER: Final = frozenset(["gpu_layers", "draft_gpu_layers"])


def fitted(spec: PairSpec, machine: Machine, given: Collection[str]) -> tuple[PairSpec, str]:
    """The pair to load, and what to tell the user: "" where nothing had to give way.

    `given` names the settings that somebody has set: layers that were set are the user's business, cache types that
    were set stay. The context is never changed; where nothing fits it, the pair stays as it is, with a word.

    Raises:
        ModelError: a header cannot be read, or lacks what is needed.
        UsageError: a cache type that was set is impossible for a model.
    """
    if not machine.gpus or not _SET_BY_USER.isdisjoint(given) or spec.target.unpacked_from is not None:
        return spec, ""
    target = read_model(spec.target.path)
    draft = read_model(spec.draft.path) if spec.draft else None
    if any(header is not None and not_generative(header) is not None for header in (target, draft)):
        return spec, ""  # the loader says what it is instead
    made = plan(
        target,
        draft,
        machine,
        n_ctx=spec.n_ctx or default_n_ctx(describe(target).n_ctx_train),
        kv_type=spec.target.kv_type.value if "kv_type" in given else None,
        draft_kv_type=spec.draft.kv_type.value if spec.draft and "draft_kv_type" in given else None,
    )
    if not made.fits:
        return spec, f"{_shown(made)} See: localspec plan"
    fitting = _as_planned(spec, made.choice)
    return fitting, "" if fitting == spec else _shown(made)


def _as_planned(spec: PairSpec, choice: Choice) -> PairSpec:
    layers = -1 if choice.is_target_whole_on_gpu else choice.target.memory.n_gpu_layers
    target = replace(spec.target, n_gpu_layers=layers, kv_type=KvType(choice.target.kv_type))
    draft = spec.draft if choice.draft is not None else None
    if draft is not None and choice.draft is not None:
        draft = replace(draft, kv_type=KvType(choice.draft.kv_type))
    return replace(spec, target=target, draft=draft)


def _shown(made: Plan) -> str:
    return one_line(" ".join(made.reasons))
