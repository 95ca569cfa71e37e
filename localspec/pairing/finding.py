"""Who could draft for a target: files that are here, what models.toml names, and what a search on the Hub brings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from localspec.errors import HubUnreachableError, LocalspecError, ModelError, OfflineError
from localspec.models.description import describe
from localspec.models.library import LocalModel
from localspec.models.model_folders import repo_of_cache_folder
from localspec.models.references import HubReference
from localspec.models.registry import Candidate, RegisteredPair, Registry
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

    `on_look` hears of each header before it is read, `on_found` of each option when it was judged. `search`: also look
    for relatives on the Hub by name; done anyway where nothing else is found. What fails on the way is a note, never an
    error.
    """
    finder = _Finder(target, conditions, registry, hub, on_look, on_found)
    finder.look_here(local)
    finder.look_in_registry()
    if search or all(option.is_refused for option in finder.found.options):
        finder.look_on_hub()
    finder.found.options = ranked(finder.found.options)
    return finder.found


def registered_name(target: ResolvedModel, registry: Registry) -> str | None:
    """The name in models.toml of a target that was named in any way: by its repository, or by its own name."""
    repo = target.remote.repo if target.remote is not None else repo_in_cache(target.path)
    if repo is not None and (name := registry.name_of(repo)):
        return name
    known = {_plain(model.title): name for name, model in registry.models.items() if model.is_target}
    for text in (describe(target.header).name, Path(target.name).stem):
        # Of several titles within a name the longest says most: "Qwen3-Coder-30B" is no "Qwen3-Coder-3".
        within = [title for title in known if title and title in _plain(text)]
        if within:
            return known[max(within, key=len)]
    return None


def repo_in_cache(path: Path | None) -> str | None:
    """The repository of a file in the Hub's cache, from the name of its folder."""
    for part in reversed(path.parts if path is not None else ()):
        if repo := repo_of_cache_folder(part):
            return repo
    return None


class _Finder:
    """One search. Each model is judged once, under the first name that leads to it."""

    def __init__(
        self,
        target: ResolvedModel,
        conditions: Conditions,
        registry: Registry | None,
        hub: Hub | None,
        on_look: Callable[[str], None],
        on_found: Callable[[DraftOption], None],
    ) -> None:
        self.found = Found()
        self._target = target
        self._conditions = conditions
        self._hub = hub
        self._on_look = on_look
        self._on_found = on_found
        self._seen: set[str] = set()
        self._candidates: tuple[Candidate, ...] = ()
        if registry is not None:
            name = registered_name(target, registry)
            if name is None:
                self.found.notes.append("models.toml does not know the target.")
            else:
                self._candidates = registry.drafts_for(name)

    def look_here(self, models: Sequence[LocalModel]) -> None:
        """Files on this machine; one that models.toml names too has its report."""
        reports = {candidate.model.repo.lower(): candidate.pair for candidate in self._candidates}
        for model in self._smaller_relatives(models):
            assert model.path is not None
            try:
                resolved = ResolvedModel(str(model.path), read_model(model.path), model.path)
            except ModelError as error:
                self.found.notes.append(error.message)
                continue
            self._judge(resolved, Place.HERE, reports.get((model.repo or "").lower()))

    def look_in_registry(self) -> None:
        """What models.toml names for the target."""
        for candidate in self._candidates:
            self._resolve_and_judge(candidate.name, candidate.model.reference, Place.REGISTRY, candidate.pair)

    def look_on_hub(self) -> None:
        """Repositories whose names have the target's family in them, and which are much smaller."""
        described = describe(self._target.header)
        if self._hub is None:
            return
        if not described.family:
            self.found.notes.append("The target's header names no family to search for.")
            return
        words = described.family.replace("-", " ")
        self._on_look(f"the Hub for {words}")
        try:
            repositories = self._hub.search(words, limit=50)
        except LocalspecError as error:
            self.found.notes.append(f"The Hub was not searched: {error.message}")
            return
        small = [
            each
            for each in repositories
            if each.n_parameters is not None
            and each.n_parameters < _LARGEST_SHARE * described.n_parameters
            and not each.is_gated
        ]
        for each in sorted(small, key=lambda each: -each.n_downloads)[:_MAX_SEARCHED]:
            self._resolve_and_judge(each.repo, HubReference(each.repo), Place.HUB, None)

    def _resolve_and_judge(
        self, text: str, reference: HubReference, place: Place, reported: RegisteredPair | None
    ) -> None:
        if self._hub is None:
            return
        self._on_look(text)
        try:
            self._judge(resolve_reference(reference, text, self._hub), place, reported)
        except (HubUnreachableError, OfflineError) as error:  # nor will it answer the next question
            self.found.notes.append(f"The Hub was not asked further: {error.message}")
            self._hub = None
        except LocalspecError as error:
            self.found.notes.append(f"{text}: {error.message}")

    def _judge(self, model: ResolvedModel, place: Place, reported: RegisteredPair | None) -> None:
        identity = str(model.path.resolve()) if model.path is not None else str(model.header.path)
        if identity in self._seen:
            return
        self._seen.add(identity)
        self.found.n_header_bytes += model.n_header_bytes
        try:
            option = judge(self._target, model, self._conditions, place=place, reported=reported)
        except LocalspecError as error:
            self.found.notes.append(f"{model.name}: {error.message}")
            return
        self.found.options.append(option)
        self._on_found(option)

    def _smaller_relatives(self, models: Sequence[LocalModel]) -> Iterator[LocalModel]:
        """Smaller models with the same vocabulary, the smallest first; the others are counted in a note."""
        vocabulary = read_vocabulary(self._target.header)
        if vocabulary is None:
            return
        ours, own = fingerprint_of(vocabulary), self._target.path
        n_target = describe(self._target.header).n_parameters
        known = {model.summary.vocabulary for model in models if model.is_model and model.summary.vocabulary}
        relatives = {ours, *compatible_groups([ours, *known]).get(ours, ())}
        fitting: list[tuple[int, LocalModel]] = []
        n_strangers = 0
        for model in models:
            described = model.summary.description
            if not model.is_model or described is None or model.path is None:
                continue
            if n_target and described.n_parameters > _LARGEST_SHARE * n_target:
                continue
            if model.summary.vocabulary not in relatives:
                n_strangers += 1
            elif own is None or model.path.resolve() != own.resolve():
                fitting.append((described.n_parameters, model))
        if n_strangers:
            self.found.notes.append(
                f"{n_strangers} smaller model{'s' if n_strangers > 1 else ''} here cannot draft for it: "
                "another vocabulary."
            )
        yield from (model for _, model in sorted(fitting, key=lambda each: each[0])[:_MAX_LOCAL])


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "", text.lower())
