"""`Hub`: search, list, look into and download models; what the rest of localspec knows of this package."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from localspec.errors import HubError, NotOnHubError, OfflineError
from localspec.hub import (
    checked_address,  # noqa: F401 - first of all
    settings,
)
from localspec.hub.cache import HubCache, checked_repo
from localspec.hub.download import DownloadProgress, ProgressListener, download
from localspec.hub.download_notes import DownloadNotes
from localspec.hub.header_store import HeaderStore
from localspec.hub.partial import PartialDownload, partial_downloads, remove_partial
from localspec.hub.quantizations import pick, set_of
from localspec.hub.remote_header import RemoteHeader, read_remote_header, stored_header
from localspec.hub.remote_model import RemoteFile, RemoteModel, Repository, RepoSummary, repositories, repository
from localspec.hub.session import Session
from localspec.models.header import GgufHeader
from localspec.models.references import HubReference
from localspec.models.split import read_model
from localspec.printable import one_line

__all__ = ["DownloadProgress", "Hub", "PartialDownload", "RemoteFile", "RemoteHeader", "RemoteModel", "RepoSummary"]

_MAX_FOUND = 100
# What a search tells of each repository, beside its name.
_FACTS = ("downloads", "likes", "gated", "lastModified", "gguf")


class Hub:
    """The Hugging Face Hub, or what speaks its protocol. Threads may share it.

    What is not given comes from the environment: `HF_ENDPOINT`, `HF_TOKEN` or the token of `hf auth login`,
    `HF_HUB_OFFLINE`, `HF_HUB_CACHE` or `HF_HOME`, and the proxies.

    Every method that asks the Hub raises, beside what it says itself:
        OfflineError: offline mode forbids to ask.
        HubUnreachableError: no answer, after some attempts.
        HubAccessError: a licence is to be accepted, or a token is missing or wrong.
        NotOnHubError: there is no such thing.
        HubError: an answer that cannot be used.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        token: str | None = None,
        offline: bool | None = None,
        cache_dir: Path | None = None,
    ) -> None:
        self.endpoint = settings.endpoint(endpoint)
        self.is_offline = settings.is_offline() if offline is None else offline
        self.cache_dir = settings.cache_dir() if cache_dir is None else cache_dir.absolute()
        self._session = Session(self.endpoint, token, offline=self.is_offline)
        self._cache = HubCache(self.cache_dir)
        self._headers = HeaderStore()

    def search(self, text: str, limit: int = 20) -> list[RepoSummary]:
        """Repositories with GGUF files whose names match, the most downloaded first; 100 at most."""
        limit = max(1, min(limit, _MAX_FOUND))
        params = {"search": text, "filter": "gguf", "sort": "downloads", "limit": str(limit), "expand": _FACTS}
        return repositories(self._session.json("/api/models", params))[:limit]

    def models(self, repo: str) -> list[RemoteModel]:
        """The models of a repository, each quantization of each, in the Hub's order; without what accompanies them."""
        return self._repository(repo).models()

    def find(self, reference: HubReference) -> RemoteModel:
        """The model that a reference names; without a quantization Q4_K_M, else Q8_0, else the first, as in llama.cpp.

        Raises:
            NotOnHubError: there is no such file or quantization; the hint names those that there are.
        """
        found = self._repository(reference.repo)
        if reference.file is not None:
            files = set_of(reference.file, found.files)
            missing = f"{found.repo} has no file {reference.file}, or not all of its parts."
        else:
            files = pick(found.sets(), reference.quantization)
            missing = f"{found.repo} has no {reference.quantization}."
            if not reference.quantization:
                missing = f"{found.repo} holds no model in GGUF format."
        if files is None:
            raise NotOnHubError(one_line(missing), hint=_present(found))
        return found.model(files)

    def header(self, model: RemoteModel) -> RemoteHeader:
        """What a model says of itself: a few MB from the Hub, unless it or its header is here.

        Raises:
            ModelFileError: it is no model that can be read.
            UnsupportedModelError: of a version or type that is not known.
        """
        if self._is_complete(model):
            return RemoteHeader(read_model(self._cache.snapshot(model, model.files[0])), 0)
        return read_remote_header(self._session, self._headers, model)

    def known_header(self, model: RemoteModel) -> GgufHeader | None:
        """The same without asking anybody; None where neither the model nor its header is here.

        Raises:
            ModelFileError: it is no model that can be read.
            UnsupportedModelError: of a version or type that is not known.
        """
        if self._is_complete(model):
            return read_model(self._cache.snapshot(model, model.files[0]))
        return stored_header(self._headers, model)

    def cached(self, reference: HubReference) -> Path | None:
        """Where the model that a reference names is in the cache: its first file. Asks nobody."""
        return self._cache.find(reference.repo, reference.quantization, reference.file)

    def download(
        self,
        model: RemoteModel,
        on_progress: ProgressListener | None = None,
        cancel: threading.Event | None = None,
    ) -> Path:
        """Bring a model into the cache and return its first file. See `download_all`."""
        return self.download_all([model], on_progress, cancel)[0]

    def download_all(
        self,
        models: Sequence[RemoteModel],
        on_progress: ProgressListener | None = None,
        cancel: threading.Event | None = None,
    ) -> list[Path]:
        """Bring models into the cache, several files at once, and return the first file of each.

        The listener is called on this thread. Whatever ends it early, another call goes on from there.

        Raises:
            DownloadCancelledError: `cancel` was set.
            DiskFullError: the disk has no room for it, which is found out first.
        """
        missing = [model for model in models if not self._is_complete(model)]
        if missing and self.is_offline:
            raise OfflineError(
                f"{missing[0].reference} is not in the cache, and offline mode forbids to download it.",
                hint="Take HF_HUB_OFFLINE out of the environment.",
            )
        return download(self._session, self._cache, models, on_progress, cancel)

    def remove(self, repo: str, files: Sequence[str] | None = None) -> int:
        """Delete files of a repository from the cache, all of it by default; returns the bytes that are free now.

        Raises:
            HubError: something in the cache leads out of it, or cannot be deleted; the network is not asked.
        """
        with self._deleting(repo):
            return self._cache.remove(repo, files)

    def freed_bytes(self, repo: str, files: Sequence[str] | None = None) -> int:
        """What `remove` would free: nothing of what other files share, or of what lies outside of the cache.

        Raises:
            HubError: the cache cannot be read, or is damaged; the network is not asked.
        """
        with self._deleting(repo):
            return self._cache.freed_bytes(repo, files)

    def partial_downloads(self) -> list[PartialDownload]:
        """What localspec has begun to fetch and not finished, the latest first. Asks nobody."""
        return partial_downloads(self._cache, DownloadNotes(self.cache_dir).models())

    def remove_partial(self, partial: PartialDownload) -> int:
        """Delete what has arrived of a download; returns the bytes that are free now. Asks nobody.

        Raises:
            HubError: it is under way, or cannot be deleted.
        """
        n_bytes = remove_partial(self._cache, partial)
        DownloadNotes(self.cache_dir).forget(partial.model)
        return n_bytes

    @contextlib.contextmanager
    def _deleting(self, repo: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            raise HubError(f"{repo} cannot be deleted: {reason}.", hint=f"Check {self.cache_dir}.") from error

    def _is_complete(self, model: RemoteModel) -> bool:
        return all(self._cache.is_complete(model, file) for file in model.files)

    def _repository(self, repo: str) -> Repository:
        answer = self._session.json(f"/api/models/{checked_repo(repo)}", {"blobs": "true"}, repo)
        return repository(repo, answer)


def _present(found: Repository) -> str:
    """What there is instead, for a hint."""
    quantizations = sorted({each.quantization for each in found.sets() if each.quantization})
    if quantizations:
        return f"It has {', '.join(quantizations)}."
    if found.files:
        return f"It has {one_line(', '.join(sorted(found.files)[:10]))}."
    return "GGUF files are mostly in repositories whose names end in -GGUF."
