"""Models and files on the Hub, as its answers describe them, which are untrusted: all that is kept was checked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field, ValidationError

from localspec.errors import HubError
from localspec.hub.quantizations import FileSet, file_sets
from localspec.models.references import is_repository
from localspec.printable import one_line

__all__ = ["RemoteFile", "RemoteModel", "RepoSummary", "Repository", "is_commit", "repositories", "repository"]

_MAX_NAME_BYTES: Final = 1024
_MAX_PART_BYTES: Final = 255  # of a name between slashes, on every usual file system
_MAX_FILE_BYTES: Final = 1 << 50
_MAX_FILES: Final = 5_000

_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_GIT_ID: Final = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file. `sha256` of its content, or, for small files outside of LFS, the id that git gives to it.

    Raises:
        HubError: its name leads out of the folder that it belongs in, or a value is impossible.
    """

    name: str
    n_bytes: int
    sha256: str | None
    git_id: str | None = None

    def __post_init__(self) -> None:
        if problem := _problem_of_name(self.name):
            raise HubError(
                f"The Hub names a file {one_line(self.name[:200])!r}, which {problem}: it is refused.",
                hint="Do not trust this repository.",
            )
        if not 0 <= self.n_bytes <= _MAX_FILE_BYTES:
            raise HubError(f"The Hub says that {self.name} has {self.n_bytes} bytes, which cannot be.")
        if self.sha256 is not None and not _SHA256.fullmatch(self.sha256):
            raise HubError(f"The Hub gives a checksum for {self.name} that is no SHA-256.")
        if self.sha256 is None and not _GIT_ID.fullmatch(self.git_id or ""):
            raise HubError(f"The Hub gives no checksum for {self.name}, so it cannot be verified.")

    @property
    def blob(self) -> str:
        """The name of its content in the cache: the SHA-256, else git's id."""
        return self.sha256 or self.git_id or ""


@dataclass(frozen=True, slots=True)
class RemoteModel:
    """One model of a repository at one commit: a file, or the parts of a set in order. `quantization` "": unknown.

    `is_first` of its quantization: the one that `owner/repo:QUANT` means, where a repository has several models.
    """

    repo: str
    revision: str
    quantization: str
    files: tuple[RemoteFile, ...]
    is_first: bool = True

    @property
    def n_bytes(self) -> int:
        """Size of all files."""
        return sum(file.n_bytes for file in self.files)

    @property
    def reference(self) -> str:
        """What names it again: `owner/repo:QUANT`, or `owner/repo/file.gguf` where that would not be enough."""
        is_enough = self.quantization and self.is_first
        return f"{self.repo}:{self.quantization}" if is_enough else f"{self.repo}/{self.files[0].name}"


@dataclass(frozen=True, slots=True)
class RepoSummary:
    """What a search finds. `n_parameters`, `architecture` and `n_ctx_train` where the Hub knows them."""

    repo: str
    n_downloads: int
    n_likes: int
    is_gated: bool
    last_modified: str  # a day, such as 2026-03-01, or ""
    architecture: str
    n_parameters: int | None
    n_ctx_train: int | None


@dataclass(frozen=True, slots=True)
class Repository:
    """The GGUF files of a repository at the commit `revision`."""

    repo: str
    revision: str
    files: dict[str, RemoteFile]

    def models(self) -> list[RemoteModel]:
        """One for each file or set of parts, in the order of the Hub."""
        sets = self.sets()
        first = {each.quantization: each for each in reversed(sets)}
        return [self._model(each, is_first=first[each.quantization] == each) for each in sets]

    def sets(self) -> list[FileSet]:
        """The same by name only."""
        return file_sets(self.files)

    def model(self, files: FileSet) -> RemoteModel:
        """The model that consists of these files."""
        first = next((each for each in self.sets() if each.quantization == files.quantization), None)
        return self._model(files, is_first=first == files)

    def _model(self, files: FileSet, *, is_first: bool) -> RemoteModel:
        parts = tuple(self.files[name] for name in files.names)
        return RemoteModel(self.repo, self.revision, files.quantization, parts, is_first)


# --- answers ----------------------------------------------------------------------------------------------------------


# What every program can hold; JSON knows no limit.
_Number = Annotated[int, Field(ge=0, lt=1 << 63)]


class _Lfs(BaseModel):
    sha256: str
    size: _Number


class _Sibling(BaseModel):
    rfilename: str
    size: _Number | None = None
    blob_id: str | None = Field(None, alias="blobId")
    lfs: _Lfs | None = None


class _ModelInfo(BaseModel):
    sha: str
    siblings: list[_Sibling] = []


class _Gguf(BaseModel):
    total: _Number | None = None
    architecture: str | None = None
    context_length: _Number | None = None


class _Found(BaseModel):
    id: str
    downloads: _Number = 0
    likes: _Number = 0
    gated: bool | Literal["auto", "manual"] = False
    last_modified: str | None = Field(None, alias="lastModified")
    gguf: _Gguf | None = None


def repository(repo: str, answer: Any) -> Repository:
    """What `/api/models/owner/repo?blobs=true` says.

    Raises:
        HubError: the answer has another form, or names a file that would leave its folder.
    """
    info = _model_info(repo, answer)
    if not is_commit(info.sha):
        raise HubError(f"The Hub names a commit of {repo} that is none: {one_line(info.sha[:80])!r}.")
    siblings = [each for each in info.siblings if each.rfilename.lower().endswith(".gguf")]
    if len(siblings) > _MAX_FILES:
        raise HubError(f"{repo} has {len(siblings):,} GGUF files; at most {_MAX_FILES:,} are looked at.")
    return Repository(repo, info.sha, {each.rfilename: _file(each) for each in siblings})


def repositories(answer: Any) -> list[RepoSummary]:
    """What `/api/models?search=...` says; entries of another form are left out.

    Raises:
        HubError: the answer is no list.
    """
    if not isinstance(answer, list):
        raise HubError("The Hub answers a search with something that is no list.", hint="Check HF_ENDPOINT.")
    summaries = []
    for entry in answer:
        try:
            found = _Found.model_validate(entry)
        except ValidationError:
            continue
        if is_repository(found.id):
            summaries.append(_summary(found))
    return summaries


def is_commit(text: str) -> bool:
    """Whether it is the full id of a commit."""
    return _COMMIT.fullmatch(text) is not None


def _summary(found: _Found) -> RepoSummary:
    gguf = found.gguf or _Gguf()
    return RepoSummary(
        repo=found.id,
        n_downloads=found.downloads,
        n_likes=found.likes,
        is_gated=bool(found.gated),
        last_modified=one_line((found.last_modified or "")[:10]),
        architecture=one_line((gguf.architecture or "")[:40]),
        n_parameters=gguf.total,
        n_ctx_train=gguf.context_length,
    )


def _model_info(repo: str, answer: Any) -> _ModelInfo:
    try:
        return _ModelInfo.model_validate(answer)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, problem["loc"])) or "it"
        raise HubError(
            f"What the Hub says about {repo} cannot be used: {one_line(place[:80])}: {problem['msg']}.",
            hint="Check HF_ENDPOINT: not every mirror tells sizes and checksums.",
        ) from error


def _file(sibling: _Sibling) -> RemoteFile:
    size = sibling.lfs.size if sibling.lfs else sibling.size
    if size is None:
        raise HubError(
            f"The Hub does not say how large {one_line(sibling.rfilename[:200])} is.",
            hint="Check HF_ENDPOINT: not every mirror tells sizes and checksums.",
        )
    return RemoteFile(sibling.rfilename, size, sibling.lfs.sha256 if sibling.lfs else None, sibling.blob_id)


def _problem_of_name(name: str) -> str:
    """Why a file of that name could end up elsewhere than in its folder, on any system; "" where it could not."""
    parts: Sequence[str] = name.split("/")
    if not name.isprintable() or len(name.encode("utf-8", "replace")) > _MAX_NAME_BYTES:
        return "is too long or holds control characters"
    if "\\" in name or ":" in name:
        return "holds a backslash or a colon"
    if any(part in {"", ".", ".."} for part in parts):
        return "leads out of its folder"
    if any(len(part.encode()) > _MAX_PART_BYTES for part in parts):
        return "is too long"
    return ""
