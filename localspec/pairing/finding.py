"""Who could draft for a target: files that are here, what models.toml names, and what a search on the Hub brings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from localspec.errors import LocalspecError, ModelError
from localspec.models.description import describe
from localspec.models.library import LocalModel
from localspec.models.references import HubReference
from localspec.models.registry import Candidate, Registry
from localspec.models.split import read_model
from localspec.models.vocabulary import read_vocabulary
from localspec.models.vocabulary_fingerprint import compatible_groups, fingerprint_of
from localspec.pairing.drafts import Conditions, DraftOption, Place, judge, ranked
from localspec.pairing.resolve import ResolvedModel, resolve_reference

if TYPE_CHECKING:
    from localspec.hub.client import Hub

__all__ = ["Found", "find_drafts", "registered_name", "repo_in_cache"]

# A draft with more weights than this share of the target's is none: it would cost more than it brings.
_LARGEST_SHARE: Final = 0.6
_MAX_LOCAL: Final = 20
_MAX_SEARCHED: Final = 4  # headers of some MB each


@dataclass
class Found:
    """Options, the best first, and what is to be said about the search: what was skipped, and what failed."""

    options: list[DraftOption] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    n_header_bytes: int = 0


def find_drafts(
    target: ResolvedModel,
    conditions: Conditions,
    *,
    local: Sequence[LocalModel] = (),
    registry: Registry | None = None,
    hub: Hub | None = None,
    search: bool = False,
    on_look: Callable[[str], None] = lambda _: None,
    on_found: Callable[[DraftOption], None] = lambda _: None,
) -> Found:
    """Look everywhere that is given, and judge what is found.

    `on_look` hears of each header before it is read, `on_found` of each option when it was judged.

    `search`: also look for relatives on the Hub by name; done anyway where nothing else is found. What fails on the way
    is a note, never an error.
    """
    found = Found()
    seen: set[str] = set()

    def add(place: Place, models: Iterator[tuple[ResolvedModel, Candidate | None]]) -> None:
        for model, candidate in models:
            identity = model.name.lower()
            if identity in seen:
                continue
            seen.add(identity)
            found.n_header_bytes += model.n_header_bytes
            try:
                reported = candidate.pair if candidate else None
                option = judge(target, model, conditions, place=place, reported=reported)
            except LocalspecError as error:
                found.notes.append(f"{model.name}: {error.message}")
                continue
            found.options.append(option)
            on_found(option)

    add(Place.HERE, _local(target, local, found.notes))
    if registry is not None and hub is not None:
        add(Place.REGISTRY, _registered(target, registry, hub, found.notes, on_look))
    if hub is not None and (search or not any(not option.is_refused for option in found.options)):
        add(Place.HUB, _searched(target, hub, found.notes, on_look))
    found.options = ranked(found.options)
    return found


def registered_name(target: ResolvedModel, registry: Registry) -> str | None:
    """The name in models.toml of a target that was named in any way: by its repository, or by its own name."""
    repo = target.remote.repo if target.remote is not None else repo_in_cache(target.path)
    if repo is not None and (name := registry.name_of(repo)):
        return name
    known = {_plain(model.title): name for name, model in registry.models.items() if model.is_target}
    for text in (describe(target.header).name, Path(target.name).stem):
        plain = _plain(text)
        exact = known.get(plain) or next((name for title, name in known.items() if title and title in plain), None)
        if exact is not None:
            return exact
    return None


def _local(
    target: ResolvedModel, models: Sequence[LocalModel], notes: list[str]
) -> Iterator[tuple[ResolvedModel, Candidate | None]]:
    """Smaller models here with the same vocabulary, the smallest first; the others are counted in a note."""
    vocabulary = read_vocabulary(target.header)
    if vocabulary is None:
        return
    ours = fingerprint_of(vocabulary)
    n_target = describe(target.header).n_parameters
    n_other_vocabulary = 0
    fitting: list[tuple[int, LocalModel]] = []
    known = {model.summary.vocabulary for model in models if model.is_model and model.summary.vocabulary is not None}
    relatives = compatible_groups([ours, *known]).get(ours, ())
    for model in models:
        described, theirs = model.summary.description, model.summary.vocabulary
        if not model.is_model or described is None or theirs is None or model.path is None:
            continue
        if n_target and described.n_parameters > _LARGEST_SHARE * n_target:
            continue
        if theirs != ours and theirs not in relatives:
            n_other_vocabulary += 1
        elif target.path is None or model.path.resolve() != target.path.resolve():
            fitting.append((described.n_parameters, model))
    if n_other_vocabulary:
        notes.append(f"{n_other_vocabulary} smaller models here have another vocabulary and cannot draft for it.")
    for _, model in sorted(fitting, key=lambda each: each[0])[:_MAX_LOCAL]:
        assert model.path is not None
        try:
            yield ResolvedModel(str(model.path), read_model(model.path), model.path), None
        except ModelError as error:
            notes.append(error.message)


def _registered(
    target: ResolvedModel, registry: Registry, hub: Hub, notes: list[str], on_look: Callable[[str], None]
) -> Iterator[tuple[ResolvedModel, Candidate | None]]:
    name = registered_name(target, registry)
    if name is None:
        notes.append("models.toml does not know the target.")
        return
    for candidate in registry.drafts_for(name):
        on_look(candidate.name)
        try:
            yield resolve_reference(candidate.model.reference, candidate.name, hub), candidate
        except LocalspecError as error:
            notes.append(f"{candidate.name}: {error.message}")


def _searched(
    target: ResolvedModel, hub: Hub, notes: list[str], on_look: Callable[[str], None]
) -> Iterator[tuple[ResolvedModel, Candidate | None]]:
    """Repositories on the Hub whose names have the target's family in them, and which are much smaller."""
    described = describe(target.header)
    if not described.family:
        notes.append("The target's header names no family to search for.")
        return
    words = described.family.replace("-", " ")
    on_look(f"the Hub for {words}")
    try:
        repositories = hub.search(words, limit=50)
    except LocalspecError as error:
        notes.append(f"The Hub was not searched: {error.message}")
        return
    small = [
        each
        for each in repositories
        if each.n_parameters is not None
        and each.n_parameters < _LARGEST_SHARE * described.n_parameters
        and not each.is_gated
    ]
    for each in sorted(small, key=lambda each: -each.n_downloads)[:_MAX_SEARCHED]:
        on_look(each.repo)
        try:
            yield resolve_reference(HubReference(each.repo), each.repo, hub), None
        except LocalspecError as error:
            notes.append(f"{each.repo}: {error.message}")


def repo_in_cache(path: Path | None) -> str | None:
    """The repository of a file in the Hub's cache, from the name of its folder: models--owner--name."""
    for part in reversed(path.parts if path is not None else ()):
        if part.startswith("models--") and part.count("--") == 2:
            return part.removeprefix("models--").replace("--", "/")
    return None


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "", text.lower())
