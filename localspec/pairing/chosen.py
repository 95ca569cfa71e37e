"""A pair that was chosen: what is still to be fetched of it, and how the engine is to load it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from localspec.config import Settings
from localspec.engine.requests import KvType, Mode, ModelSpec, PairSpec
from localspec.errors import UsageError
from localspec.memory.choice import Choice
from localspec.memory.plan import Plan
from localspec.pairing.drafts import Conditions, DraftOption
from localspec.pairing.resolve import ResolvedModel
from localspec.pairing.tuned import Tuned, tuned
from localspec.printable import one_line

if TYPE_CHECKING:
    from localspec.hub.remote_model import RemoteModel

__all__ = ["ChosenPair", "ReadyPair", "Target", "entry_of", "pair_spec", "ready_pair", "with_path"]

_WIDEST_KV_TYPE: Final = "f16"  # of those that a plan chooses


@dataclass(frozen=True, slots=True)
class Target:
    """A target whose header was read, and how it would be loaded alone. `plan` None: a header without weights.

    `loaded` is the pair that is loaded now, if this is its target: only the draft model has to be exchanged then, and
    `conditions` are those under which the target is loaded.
    """

    model: ResolvedModel
    conditions: Conditions
    plan: Plan | None
    loaded: PairSpec | None = None

    def beside(self, loaded: PairSpec | None) -> Target:
        """The same where another pair is loaded by now."""
        is_it = loaded is not None and self.model.path is not None and self.model.path == loaded.target.path
        return replace(self, loaded=loaded if is_it else None)

    def fetched(self, paths: Mapping[str, Path]) -> Target:
        """The same where its file is here by now."""
        return replace(self, model=with_path(self.model, paths))


@dataclass(frozen=True, slots=True)
class ChosenPair:
    """A target with a draft for it, or with none (`draft` None): drafts are copied from the text then."""

    target: Target
    draft: DraftOption | None

    @property
    def missing(self) -> tuple[RemoteModel, ...]:
        """What has to be downloaded first."""
        models = [self.target.model, *([self.draft.model] if self.draft else [])]
        return tuple(each.remote for each in models if each.path is None and each.remote is not None)

    @property
    def plan(self) -> Plan | None:
        """Of both models."""
        return self.draft.plan if self.draft is not None else self.target.plan


@dataclass(frozen=True, slots=True)
class ReadyPair:
    """A pair with all its files here: what the engine loads, how replies draft with it, and a word about that, or "".

    `num_speculative_tokens` and `fixed_length` as in the settings.
    """

    spec: PairSpec
    mode: Mode
    num_speculative_tokens: int | None = None
    fixed_length: bool = False
    notice: str = ""


def with_path(model: ResolvedModel, fetched: Mapping[str, Path]) -> ResolvedModel:
    """The same model where its file is here by now. `fetched`: paths by reference."""
    if model.path is not None or model.remote is None or model.remote.reference not in fetched:
        return model
    return replace(model, path=fetched[model.remote.reference])


def pair_spec(chosen: ChosenPair, settings: Settings, fetched: Mapping[str, Path]) -> PairSpec:
    """What the engine loads: as the plan has it, and as the user has set it. `fetched`: paths by reference."""
    target, option = chosen.target, chosen.draft
    choice = chosen.plan.choice if chosen.plan is not None else None
    draft = None
    if option is not None:
        kv_type = choice.draft.kv_type if choice is not None and choice.draft is not None else settings.draft_kv_type
        draft = ModelSpec(_path(option.model, fetched), settings.draft_gpu_layers, KvType(kv_type))
    path = _path(target.model, fetched)
    if target.loaded is not None:
        return replace(target.loaded, name=path.stem, draft=draft)
    return PairSpec(
        path.stem,
        ModelSpec(
            path,
            _gpu_layers(choice, settings),
            KvType(choice.target.kv_type if choice is not None else settings.kv_type),
        ),
        draft,
        n_ctx=target.conditions.n_ctx,
        n_threads=settings.threads,
        lookup_min_ngram=settings.lookup_min_ngram,
        lookup_max_ngram=settings.lookup_max_ngram,
    )


def ready_pair(
    chosen: ChosenPair, settings: Settings, fetched: Mapping[str, Path], *, uses_profile: bool = True
) -> ReadyPair:
    """The pair as `pair_spec` has it and, where it `uses_profile`, as it was tuned. `fetched`: paths by reference.

    A target that is loaded is loaded again where it was tuned to be loaded otherwise. Who chose to have no draft model
    gets none by a profile either.
    """
    spec = pair_spec(chosen, settings, fetched)
    draft = spec.draft.path if spec.draft is not None else None
    found = tuned(settings, spec.target.path, draft) if uses_profile else Tuned(settings, draft)
    if found.draft != draft:
        found = Tuned(settings, draft)
    ours = found.settings
    notice = f"{found.used}." if found.used else found.complaint
    return ReadyPair(
        _as_tuned(spec, chosen.plan, found),
        Mode(ours.mode),
        ours.num_speculative_tokens,
        ours.fixed_length,
        notice,
    )


def _as_tuned(spec: PairSpec, made: Plan | None, found: Tuned) -> PairSpec:
    """With the settings of the profile that are about loading. A cache that was made smaller to fit stays so."""
    applied = found.applied
    target, draft = spec.target, spec.draft
    if "kv_type" in applied and (made is None or made.choice.target.kv_type == _WIDEST_KV_TYPE):
        target = replace(target, kv_type=KvType(applied["kv_type"]))
    draft_choice = made.choice.draft if made is not None else None
    if (
        draft is not None
        and "draft_kv_type" in applied
        and (draft_choice is None or draft_choice.kv_type == _WIDEST_KV_TYPE)
    ):
        draft = replace(draft, kv_type=KvType(applied["draft_kv_type"]))
    return replace(
        spec,
        target=target,
        draft=draft,
        n_threads=applied.get("threads", spec.n_threads),
        lookup_min_ngram=applied.get("lookup_min_ngram", spec.lookup_min_ngram),
        lookup_max_ngram=applied.get("lookup_max_ngram", spec.lookup_max_ngram),
    )


def entry_of(chosen: ChosenPair, settings: Settings) -> dict[str, str | int]:
    """The same for `[pairs.NAME]` in the configuration file.

    Raises:
        UsageError: a model on the Hub can only be named by its file, which a configuration takes for a local one.
    """
    for remote in chosen.missing:
        if remote.reference.endswith(".gguf"):
            raise UsageError(
                f"{one_line(remote.reference)} is not here yet, and only its path could name it.",
                hint="Download it first.",
            )
    entry: dict[str, str | int] = {"target": _reference(chosen.target.model)}
    if chosen.draft is not None:
        entry["draft"] = _reference(chosen.draft.model)
    entry["ctx"] = chosen.target.conditions.n_ctx
    if chosen.plan is not None:
        choice = chosen.plan.choice
        entry["kv_type"] = choice.target.kv_type
        if choice.draft is not None:
            entry["draft_kv_type"] = choice.draft.kv_type
        if (layers := _gpu_layers(choice, settings)) != -1:
            entry["gpu_layers"] = layers
    return entry


def _gpu_layers(choice: Choice | None, settings: Settings) -> int:
    if choice is None or not choice.machine.gpus or choice.is_target_whole_on_gpu:
        return settings.gpu_layers
    return choice.target.memory.n_gpu_layers


def _path(model: ResolvedModel, fetched: Mapping[str, Path]) -> Path:
    path = with_path(model, fetched).path
    assert path is not None
    return path


def _reference(model: ResolvedModel) -> str:
    """What names it in the configuration, which takes the name of a file on the Hub for a path."""
    on_hub = model.remote.reference if model.remote is not None else ""
    if model.path is not None and (not on_hub or on_hub.endswith(".gguf")):
        return str(model.path.absolute())
    return on_hub or model.exact_reference
