"""Targets to choose from: models on this machine, those of models.toml, and what a search on the Hub finds.

Of models here, the plan of their memory says whether they fit. Headers of others are not read for a list, so that is
a guess from sizes; once a target is chosen, its plan says it exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from localspec.engine.requests import PairSpec
from localspec.models.library import LocalModel
from localspec.models.references import FileReference, HubReference, Reference
from localspec.models.registry import RegisteredModel, Registry
from localspec.pairing.drafts import Conditions, Place
from localspec.pairing.fit import ConditionsFor, Fit, fit_here, guessed_fit
from localspec.pairing.sizes import DEFAULT_QUANTIZATION, active_share, guessed_bytes, guessed_parameters
from localspec.pairing.suggestions import suggestions

if TYPE_CHECKING:
    from localspec.hub.remote_model import RepoSummary

__all__ = ["TargetEntry", "found_entries", "local_entries", "registered_entries"]

# Below, a chat is no pleasure: such targets are not suggested first.
_LEAST_TOKENS_PER_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class TargetEntry:
    """A line of the list. Texts may hold anything: print them with `printable.one_line`.

    `text` is what names it again in a command. `is_guess`: `n_bytes` is from its name, or of the usual quantization.
    `n_ctx_train` 0: unknown. `tokens_per_s`: what memory allows without drafts; None: not known. `note` says where it
    is, or what somebody says of it. `loaded_as`: "target" or "draft" of the pair that is loaded, or "".
    """

    name: str
    place: Place
    reference: Reference
    text: str
    quantization: str = ""
    n_bytes: int | None = None
    is_guess: bool = False
    n_parameters: int | None = None
    n_ctx_train: int = 0
    licence: str = ""
    fit: Fit = Fit.UNKNOWN
    tokens_per_s: float | None = None
    note: str = ""
    loaded_as: str = ""
    is_gated: bool = False

    @property
    def has_quantizations(self) -> bool:
        """Whether its repository may have it in other quantizations."""
        return isinstance(self.reference, HubReference) and self.reference.file is None


def local_entries(
    models: Iterable[LocalModel], conditions_for: ConditionsFor, loaded: PairSpec | None
) -> list[TargetEntry]:
    """Models on this machine that can write text: the target that is `loaded` first, then the largest that fit."""
    roles = {} if loaded is None else {_resolved(loaded.target.path): "target"}
    if loaded is not None and loaded.draft is not None:
        roles.setdefault(_resolved(loaded.draft.path), "draft")
    entries = []
    for model in models:
        described = model.summary.description
        if not model.is_model or described is None or model.path is None:
            continue
        conditions = conditions_for(described.n_ctx_train)
        role = roles.get(_resolved(model.path), "")
        if loaded is not None and role == "target":
            conditions = conditions.as_loaded(loaded)
        fit = fit_here(model, conditions)
        active = described.n_active_parameters / max(1, described.n_parameters)
        entry = TargetEntry(
            name=model.name,
            place=Place.HERE,
            reference=FileReference(model.path),
            text=str(model.path),
            quantization=described.quantization,
            n_bytes=model.n_bytes,
            n_parameters=described.n_parameters,
            n_ctx_train=described.n_ctx_train,
            licence=described.licence,
            fit=fit,
            tokens_per_s=_tokens_per_s(model.n_bytes * active, fit, conditions),
            note=f"in the folder of {model.place}: {model.path}",
            loaded_as=role,
        )
        entries.append(entry)

    def rank(entry: TargetEntry) -> tuple[object, ...]:
        return entry.loaded_as != "target", entry.fit is Fit.TOO_LARGE, -(entry.n_parameters or 0)

    return sorted(entries, key=rank)


def registered_entries(
    registry: Registry, local: Sequence[LocalModel], conditions_for: ConditionsFor
) -> list[TargetEntry]:
    """Targets of models.toml that are not here yet: what suits this machine first, and of it what is fast."""
    here = {(model.repo.lower(), _quantization(model)) for model in local if model.repo}
    entries = {
        name: _registered(name, model, registry, conditions_for(0))
        for name, model in registry.models.items()
        if model.is_target and (model.repo.lower(), model.quantization) not in here
    }
    order = {each.name: number for number, each in enumerate(suggestions(registry, local, conditions_for))}

    def rank(entry: TargetEntry) -> tuple[object, ...]:
        is_slow = (entry.tokens_per_s or 0.0) < _LEAST_TOKENS_PER_S
        return entry.fit is Fit.TOO_LARGE, entry.text not in order, is_slow, order.get(entry.text, 0)

    return sorted(entries.values(), key=rank)


def found_entries(found: Iterable[RepoSummary], conditions_for: ConditionsFor) -> list[TargetEntry]:
    """Repositories on the Hub, in its order. Sizes are those of the usual quantization."""
    entries = []
    for each in found:
        n_bytes = guessed_bytes(each.n_parameters) if each.n_parameters else None
        conditions = conditions_for(each.n_ctx_train or 0)
        fit = guessed_fit(n_bytes, conditions)
        entry = TargetEntry(
            name=each.repo,
            place=Place.HUB,
            reference=HubReference(each.repo),
            text=each.repo,
            n_bytes=n_bytes,
            is_guess=True,
            n_parameters=each.n_parameters,
            n_ctx_train=each.n_ctx_train or 0,
            fit=fit,
            tokens_per_s=_tokens_per_s((n_bytes or 0) * active_share(each.repo), fit, conditions),
            note=f"{each.n_downloads:,} downloads, changed {each.last_modified or 'at an unknown time'}; the size is "
            f"that of {DEFAULT_QUANTIZATION}",
            is_gated=each.is_gated,
        )
        entries.append(entry)
    return entries


def _registered(name: str, model: RegisteredModel, registry: Registry, conditions: Conditions) -> TargetEntry:
    n_parameters = guessed_parameters(model.title)
    n_bytes = guessed_bytes(n_parameters, model.quantization or "") if n_parameters else None
    fit = guessed_fit(n_bytes, conditions)
    drafts = ", ".join(each.name for each in registry.drafts_for(name)) or "none"
    return TargetEntry(
        name=model.title,
        place=Place.REGISTRY,
        reference=model.reference,
        text=name,
        quantization=model.quantization or "",
        n_bytes=n_bytes,
        is_guess=True,
        n_parameters=n_parameters,
        licence=model.licence or "",
        fit=fit,
        tokens_per_s=_tokens_per_s((n_bytes or 0) * active_share(model.title), fit, conditions),
        note=f"{model.repo}; drafts: {drafts}" + (f". {model.note}" if model.note else ""),
    )


def _tokens_per_s(n_read_bytes: float, fit: Fit, conditions: Conditions) -> float | None:
    """An upper bound, from reading all weights that a token uses once; not known where two memories share the work."""
    bandwidths = conditions.bandwidths
    if bandwidths is None or not n_read_bytes or fit is not Fit.FITS:
        return None
    return (min(bandwidths.gpus) if bandwidths.gpus else bandwidths.host) / n_read_bytes


def _quantization(model: LocalModel) -> str:
    return model.summary.description.quantization if model.summary.description else ""


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a loop of links
        return path
