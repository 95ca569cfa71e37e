"""What to begin with on this machine: targets of models.toml that should fit, with the drafts reported for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from localspec.models.library import LocalModel
from localspec.models.registry import RegisteredModel, Registry
from localspec.pairing.fit import ConditionsFor, Fit, fit_here, guessed_fit
from localspec.pairing.sizes import guessed_bytes, guessed_parameters

__all__ = ["Suggestion", "suggestions"]

_MAX_SUGGESTIONS: Final = 12


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A target by its name in models.toml. `n_bytes` is a guess from its name; `is_here`: its file was found."""

    name: str
    title: str
    family: str
    n_bytes: int
    drafts: tuple[str, ...]
    is_reported: bool
    is_here: bool

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


def suggestions(registry: Registry, local: Sequence[LocalModel], conditions_for: ConditionsFor) -> list[Suggestion]:
    """Those that fit whole, the largest first, of each family the two largest; what is here or reported comes first."""
    here = {_key(model.repo, _quantization(model)): model for model in local if model.repo}
    found = []
    for name, model in registry.models.items():
        n_bytes = _guessed_bytes(model)
        candidates = registry.drafts_for(name)
        if n_bytes is None or not candidates:
            continue
        file = here.get(_key(model.repo, model.quantization))
        described = file.summary.description if file is not None else None
        conditions = conditions_for(described.n_ctx_train if described is not None else 0)
        fit = guessed_fit(n_bytes, conditions) if file is None else fit_here(file, conditions)
        if fit is not Fit.FITS:
            continue
        found.append(
            Suggestion(
                name=name,
                title=model.title,
                family=model.family,
                n_bytes=n_bytes,
                drafts=tuple(each.name for each in candidates),
                is_reported=any(each.pair for each in candidates),
                is_here=file is not None,
            )
        )
    found.sort(key=lambda each: (not each.is_here, not each.is_reported, -each.n_bytes))
    n_of_family: dict[str, int] = {}
    kept = []
    for each in found:
        n_of_family[each.family] = n_of_family.get(each.family, 0) + 1
        if each.is_here or n_of_family[each.family] <= 2:
            kept.append(each)
    return kept[:_MAX_SUGGESTIONS]


def _key(repo: str, quantization: str | None) -> tuple[str, str]:
    return repo.lower(), quantization or ""


def _quantization(model: LocalModel) -> str:
    return model.summary.description.quantization if model.summary.description else ""


def _guessed_bytes(model: RegisteredModel) -> int | None:
    """From the billions in its title and the bits of its quantization; None where the title has none."""
    n_parameters = guessed_parameters(model.title)
    return None if n_parameters is None else guessed_bytes(n_parameters, model.quantization or "")
