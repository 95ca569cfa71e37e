"""Finding model files in folders of any layout, without reading a header.

Nothing is taken for granted: folders may be endless, linked in circles, unreadable, or hold names that lie.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from localspec.files import read_regular
from localspec.models.model_folders import ModelFolder, Place, repo_of_cache_folder
from localspec.models.quantization import quantization_in_name
from localspec.models.split import set_of_part, without_part

__all__ = ["FoundModel", "scan"]

MAX_FOLDERS: Final = 20_000  # of one place
MAX_MODELS: Final = 20_000

_MAX_MANIFEST_BYTES: Final = 1 << 20
_MAX_REFERENCE_BYTES: Final = 64
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_REVISION: Final = re.compile(r"[0-9a-f]{40}")
_OLLAMA_MODEL: Final = "application/vnd.ollama.image.model"
_OLLAMA_HOST: Final = "registry.ollama.ai"


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model by its files, the first part first; they need not be readable, or be there (a link to nowhere).

    `name` is short and not always unique, `long_name` says more. `repo`, and `file` in it, are those on the Hub.
    `problem`: what kept a folder from being searched; then `files` is empty.
    """

    place: Place
    name: str
    long_name: str
    files: tuple[Path, ...]
    repo: str | None = None
    file: str | None = None
    problem: str = ""


def scan(folder: ModelFolder) -> Iterator[FoundModel]:
    """The models in a folder, in the order of their names; none where it does not exist."""
    if not folder.is_there:
        return
    for n_before, found in enumerate(_scan(folder)):
        if n_before == MAX_MODELS:
            yield _stopped(folder, f"it holds more than {MAX_MODELS:,} models; the rest was left out")
            return
        yield found


def _scan(folder: ModelFolder) -> Iterator[FoundModel]:
    if folder.place is Place.OLLAMA:
        yield from _ollama(folder)
        return
    if folder.place in {Place.HUGGING_FACE, Place.LLAMA_CPP}:
        yield from _hub_cache(folder)
    if folder.place is not Place.HUGGING_FACE:
        yield from _any_layout(folder)


def _stopped(folder: ModelFolder, problem: str, at: Path | None = None) -> FoundModel:
    return FoundModel(folder.place, str(at or folder.path), str(at or folder.path), (), problem=problem)


# --- walking ----------------------------------------------------------------------------------------------------------


def _walk(folder: ModelFolder, root: Path, suffix: str = ".gguf") -> Iterator[tuple[Path, list[str]] | FoundModel]:
    """Each folder below `root`, with the names of files that end in `suffix`; or what keeps one from being searched.

    Links are followed, each folder is seen once however many lead to it.
    """
    seen: set[tuple[int, int]] = set()
    waiting = [root]
    while waiting:
        path = waiting.pop()
        try:
            status = path.stat()
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            if len(seen) > MAX_FOLDERS:
                yield _stopped(folder, f"it holds more than {MAX_FOLDERS:,} folders; the rest was not searched")
                return
            with os.scandir(path) as entries:
                names, folders = [], []
                for entry in entries:
                    if _entry_is_folder(entry):
                        folders.append(entry.name)
                    elif entry.name.lower().endswith(suffix):
                        names.append(entry.name)
        except OSError as error:
            yield _stopped(folder, f"the folder cannot be searched: {error.strerror or error}", path)
            continue
        waiting += [path / name for name in sorted(folders, reverse=True)]
        yield path, sorted(names)


def _entry_is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _models_in(names: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """The .gguf files among the names in one folder, the parts of a model together."""
    sets: dict[tuple[str, ...], list[str]] = {}
    for name in sorted(set(names)):
        sets.setdefault(set_of_part(name), []).append(name)
    yield from map(tuple, sets.values())


# --- layouts ----------------------------------------------------------------------------------------------------------


def _any_layout(folder: ModelFolder) -> Iterator[FoundModel]:
    for found in _walk(folder, folder.path):
        if isinstance(found, FoundModel):
            yield found
            continue
        path, names = found
        parents = path.relative_to(folder.path).parts
        if folder.place is Place.LLAMA_CPP and parents and repo_of_cache_folder(parents[0]) is not None:
            continue  # read as a Hub cache
        repo = "/".join(parents) if folder.place is Place.LM_STUDIO and len(parents) == 2 else None
        for parts in _models_in(names):
            name = without_part(parts[0])[: -len(".gguf")]
            long_name = "/".join([*parents, name])
            files = tuple(path / part for part in parts)
            yield FoundModel(folder.place, name, long_name, files, repo, parts[0] if repo else None)


def _hub_cache(folder: ModelFolder) -> Iterator[FoundModel]:
    try:
        names = sorted(os.listdir(folder.path))  # noqa: PTH208
    except OSError as error:
        yield _stopped(folder, f"the folder cannot be searched: {error.strerror or error}")
        return
    for name in names:
        repo = repo_of_cache_folder(name)
        if repo is not None:
            yield from _cached_repo(folder, folder.path / name, repo)


def _cached_repo(folder: ModelFolder, root: Path, repo: str) -> Iterator[FoundModel]:
    """The files of a repository in the revision that its branch names, then what only other revisions have."""
    snapshots = root / "snapshots"
    if not ModelFolder(folder.place, snapshots).is_there:
        return
    current = _current_revision(root)
    found: dict[str, list[tuple[str, tuple[Path, ...]]]] = {}
    for each in _walk(folder, snapshots):
        if isinstance(each, FoundModel):
            yield each
            continue
        path, names = each
        revision, *parents = path.relative_to(snapshots).parts or ("",)
        for parts in _models_in(names):
            file = str(PurePosixPath(*parents, parts[0]))
            found.setdefault(file, []).append((revision, tuple(path / part for part in parts)))
    files_of_repo = sorted(found.items())
    quantizations = [quantization_in_name(file) for file, _ in files_of_repo]
    for (file, revisions), quantization in zip(files_of_repo, quantizations, strict=True):
        is_plain = quantization is not None and quantizations.count(quantization) == 1
        name = f"{repo}:{quantization}" if is_plain else f"{repo}/{file}"
        blobs: set[Path] = set()
        for revision, files in sorted(revisions, key=lambda each: (each[0] != current, each[0])):
            blob = _real(files[0])
            if blob in blobs:
                continue
            suffix = f"@{revision[:8]}" if blobs else ""
            blobs.add(blob)
            yield FoundModel(folder.place, name + suffix, f"{repo}/{file}{suffix}", files, repo, file)


def _current_revision(root: Path) -> str:
    """The commit that refs/main holds; "" without one."""
    try:
        text = read_regular(root / "refs" / "main", _MAX_REFERENCE_BYTES).decode("ascii", "replace").strip()
    except OSError:
        return ""
    return text if _REVISION.fullmatch(text) else ""


def _real(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a link to itself
        return path


def _ollama(folder: ModelFolder) -> Iterator[FoundModel]:
    """Each manifest, HOST/NAMESPACE/NAME/TAG, is JSON whose layer of one type is the digest of a GGUF file."""
    manifests = folder.path / "manifests"
    if not ModelFolder(folder.place, manifests).is_there:
        return
    for found in _walk(folder, manifests, suffix=""):
        if isinstance(found, FoundModel):
            yield found
            continue
        path, names = found
        parents = path.relative_to(manifests).parts
        if len(parents) != 3:
            continue
        host, namespace, model = parents
        owner = [part for part, usual in ((host, _OLLAMA_HOST), (namespace, "library")) if part != usual]
        for tag in names:
            name = f"{'/'.join([*owner, model])}:{tag}"
            try:
                digest = _ollama_digest(path / tag)
            except (OSError, ValueError, RecursionError) as error:
                reason = f"its manifest cannot be read: {getattr(error, 'strerror', None) or error}"
                yield FoundModel(folder.place, name, name, (path / tag,), problem=reason)
                continue
            if digest is not None:
                blob = folder.path / "blobs" / digest.replace(":", "-")
                yield FoundModel(folder.place, name, name, (blob,))


def _ollama_digest(manifest: Path) -> str | None:
    """The digest of the model in a manifest; None where it holds none, such as one that only points elsewhere."""
    content = json.loads(read_regular(manifest, _MAX_MANIFEST_BYTES))
    layers = content.get("layers") if isinstance(content, dict) else None
    for layer in layers if isinstance(layers, list) else []:
        if isinstance(layer, dict) and layer.get("mediaType") == _OLLAMA_MODEL:
            digest = layer.get("digest")
            if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
                raise ValueError("the digest of its model is none")
            return digest
    return None
