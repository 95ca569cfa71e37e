"""The models on this machine: found in every folder, described from cached headers, and matched with each other."""

from __future__ import annotations

import bisect
import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.errors import UsageError
from localspec.models.folder_scan import FoundModel, scan
from localspec.models.header_cache import FileStamp, HeaderCache, HeaderSummary
from localspec.models.model_folders import ModelFolder, Place
from localspec.models.quantization import quantization_in_name
from localspec.models.references import HubReference
from localspec.models.vocabulary_fingerprint import VocabularyFingerprint, compatible_groups

__all__ = ["LocalModel", "find_models", "is_of", "model_named", "models_named", "possible_drafts", "several_named"]

OnRead = Callable[[int, int], None]
"""Called before each header that has to be read: how many were done, and how many there are."""


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model, or what looks like one: `problem` says why it cannot be used, `refusal` why it is no model that writes.

    `name` is unique in its list. `files` are its parts that are there, the first one first, with `n_bytes` in all;
    both are empty for a folder that could not be searched. `repo` and `repo_file` are where it is on the Hub.
    """

    name: str
    place: Place
    files: tuple[Path, ...]
    n_bytes: int
    summary: HeaderSummary
    repo: str | None = None
    repo_file: str | None = None

    @property
    def path(self) -> Path | None:
        """What to load; None for a folder that could not be searched."""
        return self.files[0] if self.files else None

    @property
    def is_model(self) -> bool:
        """Whether it is a model that can write text."""
        return self.summary.description is not None and not self.summary.refusal

    @property
    def problem(self) -> str:
        """Why it cannot be read; "" where it can."""
        return self.summary.problem

    @property
    def refusal(self) -> str:
        """Why it is no model that writes text, in words that follow its name; "" where it is one."""
        return self.summary.refusal


@dataclass(frozen=True, slots=True)
class _Stamped:
    found: FoundModel
    stamps: tuple[FileStamp, ...]
    identity: tuple[tuple[int, int], ...]
    problem: str


def find_models(
    folders: Iterable[ModelFolder], cache: HeaderCache | None = None, on_read: OnRead | None = None
) -> list[LocalModel]:
    """Everything that looks like a model in the folders, each file once: the first folder that leads to it counts.

    Damaged and unreadable ones are among them, with their reason. Only headers are read, and only those that `cache`
    (None: the one in the cache folder) does not know; it is saved, also when reading them is interrupted.
    """
    cache = HeaderCache() if cache is None else cache
    groups = _by_files(folders)

    def is_unread(each: _Stamped) -> bool:
        return not (each.problem or cache.knows(each.found.files[0], each.stamps))

    n_unread = sum(is_unread(names[0]) for names in groups)
    found, n_read = [], 0
    try:
        for names in groups:
            if on_read is not None and is_unread(names[0]):
                on_read(n_read, n_unread)
                n_read += 1
            found.append(_first_readable(names, cache))
    finally:
        cache.save()
    return _with_unique_names([_model(*each) for each in found], [each.found for each, _ in found])


def _first_readable(names: Sequence[_Stamped], cache: HeaderCache) -> tuple[_Stamped, HeaderSummary]:
    """Of several names for the same files one that can be read: parts of a model need names of a certain form."""
    summaries = (
        (each, HeaderSummary(problem=each.problem) if each.problem else cache.summary(each.found.files[0], each.stamps))
        for each in names
    )
    first = next(summaries)
    if not first[1].problem:
        return first
    return next((each for each in summaries if not each[1].problem), first)


def _by_files(folders: Iterable[ModelFolder]) -> list[list[_Stamped]]:
    """What is found, all names for the same files together."""
    groups: dict[tuple[tuple[int, int], ...], list[_Stamped]] = {}
    for number, each in enumerate(_stamped(folders)):
        # What cannot be looked at is a thing of its own.
        groups.setdefault(((-1, number),) if each.problem else each.identity, []).append(each)
    return list(groups.values())


def _stamped(folders: Iterable[ModelFolder]) -> Iterator[_Stamped]:
    for folder in folders:
        for found in scan(folder):
            stamps, identity, problem = [], [], found.problem
            for path in found.files if not problem else ():
                try:
                    status = path.stat()
                except (OSError, ValueError) as error:
                    problem = _why_missing(path, error)
                    break
                identity.append((status.st_dev, status.st_ino))
                stamps.append(FileStamp(status.st_size, status.st_mtime_ns))
            yield _Stamped(found, tuple(stamps), tuple(identity), problem)


def _why_missing(path: Path, error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        try:
            return f"{path} is a link to {path.readlink()}, which does not exist."
        except OSError:
            return f"{path} does not exist."
    return f"{path} cannot be read: {getattr(error, 'strerror', None) or error}."


def _model(stamped: _Stamped, summary: HeaderSummary) -> LocalModel:
    found = stamped.found
    n_bytes = sum(stamp.n_bytes for stamp in stamped.stamps)
    return LocalModel(found.name, found.place, found.files, n_bytes, summary, found.repo, found.file)


def _with_unique_names(models: list[LocalModel], found: list[FoundModel]) -> list[LocalModel]:
    """Of models with the same name, each gets its longer one; where that does not help, its path."""
    for longer in ([each.long_name for each in found], [str(each.path or each.name) for each in models]):
        n_named = Counter(model.name for model in models)
        models = [
            replace(model, name=name) if n_named[model.name] > 1 else model
            for model, name in zip(models, longer, strict=True)
        ]
    return models


def possible_drafts(models: Sequence[LocalModel]) -> dict[str, tuple[LocalModel, ...]]:
    """By the name of each model, the others that can draft for it, the smallest first.

    They have fewer weights, and a vocabulary that fits by the rules of `compat.py`.
    """
    usable = sorted((model for model in models if model.is_model), key=_n_parameters)
    by_vocabulary: dict[VocabularyFingerprint, list[LocalModel]] = {}
    for model in usable:
        if model.summary.vocabulary is not None:
            by_vocabulary.setdefault(model.summary.vocabulary, []).append(model)
    drafts: dict[str, tuple[LocalModel, ...]] = {}
    for vocabulary, related in compatible_groups(by_vocabulary).items():
        # One list per target is a slice of one list for all.
        candidates = sorted((each for other in related for each in by_vocabulary[other]), key=_n_parameters)
        sizes = [_n_parameters(each) for each in candidates]
        for model in by_vocabulary[vocabulary]:
            drafts[model.name] = tuple(candidates[: bisect.bisect_left(sizes, _n_parameters(model))])
    return drafts


def _n_parameters(model: LocalModel) -> int:
    description = model.summary.description
    return 0 if description is None else description.n_parameters


def is_of(model: LocalModel, reference: HubReference) -> bool:
    """Whether a model here is one that a reference to the Hub means, whichever program has fetched it."""
    if model.repo is None or model.repo.lower() != reference.repo.lower() or not model.is_model:
        return False
    name = model.repo_file or (model.path.name if model.path else "")
    if reference.file is not None:
        return name == reference.file
    return reference.quantization in {None, quantization_in_name(name)}


def models_named(models: Sequence[LocalModel], text: str) -> list[LocalModel]:
    """Those that a user may mean: by the name in the list, else by the name of a file, or its path."""
    exact = [model for model in models if model.name == text]
    if exact:
        return exact
    wanted = text.removesuffix(".gguf").lower()
    path = Path(text).absolute()
    return [
        model
        for model in models
        if model.name.lower() == text.lower()
        or any(file == path or file.name == text or file.stem.lower() == wanted for file in model.files)
    ]


def model_named(models: Sequence[LocalModel], text: str) -> LocalModel:
    """The one that a user means.

    Raises:
        UsageError: none, or several; with their names.
    """
    matching = models_named(models, text)
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise several_named(text, matching)
    nearest = difflib.get_close_matches(text, [model.name for model in models], n=3, cutoff=0.4)
    hint = f"Did you mean {' or '.join(nearest)}?" if nearest else "localspec models --all lists what there is."
    raise UsageError(f"There is no model named {text!r} on this machine.", hint=hint)


def several_named(text: str, matching: Sequence[LocalModel]) -> UsageError:
    """What to say where a name is that of several."""
    names = ", ".join(model.name for model in matching[:5])
    return UsageError(f"{text!r} names {len(matching)} models.", hint=f"Give one of their names: {names}.")
