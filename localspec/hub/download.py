"""Models from the Hub into the cache: several files at once, with progress, until done or cancelled."""

from __future__ import annotations

import collections
import queue
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from localspec.errors import DiskFullError
from localspec.hub.cache import HubCache
from localspec.hub.download_notes import DownloadNotes
from localspec.hub.patience import cancelled
from localspec.hub.remote_model import RemoteModel
from localspec.hub.session import Session
from localspec.hub.transfer import Transfer, disk_error
from localspec.quantities import file_size

__all__ = ["DownloadProgress", "ProgressListener", "download"]

N_AT_ONCE: Final = 4
_TICK_S: Final = 0.1
_RATE_OVER_S: Final = 5.0
_PATIENCE_WITH_THREADS_S: Final = 0.5  # a thread that waits for the network ends by itself, and writes nothing more


@dataclass(frozen=True, slots=True)
class DownloadProgress:
    """How far a download is, all its files together, what was there before included.

    `bytes_per_second` is that of the last seconds. `seconds_left` None: nothing arrives. `file` is one of those that
    are arriving, "" at the end.
    """

    n_done_bytes: int
    n_total_bytes: int
    bytes_per_second: float
    seconds_left: float | None
    file: str


ProgressListener: TypeAlias = Callable[[DownloadProgress], None]


def download(
    session: Session,
    cache: HubCache,
    models: Sequence[RemoteModel],
    on_progress: ProgressListener | None = None,
    cancel: threading.Event | None = None,
) -> list[Path]:
    """Bring models into the cache and return where each is: its first file.

    The listener is called on this thread, about ten times a second. When this raises, for whatever reason, what has
    arrived stays, and another call goes on from there.

    Raises:
        DownloadCancelledError: `cancel` was set; at the latest a second later.
        DiskFullError: before anything is fetched, if the disk cannot hold all of it; or while it is written.
        HubError: a file cannot be had, or its content is not what the Hub promises.
    """
    transfers = {
        (model.repo, model.revision, file.name): Transfer(session, cache, model, file)
        for model in models
        for file in model.files
    }
    try:
        _require_space(cache.root, list(transfers.values()))
        for model in models:
            cache.prepare(model)
    except OSError as error:
        raise disk_error(error, cache.root) from error
    notes = DownloadNotes(cache.root)
    for model in models:
        if not all(cache.is_complete(model, file) for file in model.files):
            notes.add(model)
    _Download(list(transfers.values()), on_progress, cancel or threading.Event()).run()
    for model in models:
        notes.forget(model)
    return [cache.snapshot(model, model.files[0]) for model in models]


def _require_space(folder: Path, transfers: Sequence[Transfer]) -> None:
    needed = sum(each.file.n_bytes - each.n_present_bytes for each in transfers)
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if needed > free:
        raise DiskFullError(
            f"{file_size(needed)} are to be downloaded; {folder} has {file_size(free)} free.",
            hint="Make room, choose a smaller quantization, or name a folder on another disk with HF_HUB_CACHE.",
        )


class _Download:
    """Threads that fetch, and the thread that waits for them and tells."""

    def __init__(
        self, transfers: Sequence[Transfer], on_progress: ProgressListener | None, cancel: threading.Event
    ) -> None:
        self._transfers = transfers
        self._on_progress = on_progress
        self._cancel = cancel
        self._stop = threading.Event()
        self._waiting: queue.SimpleQueue[Transfer] = queue.SimpleQueue()
        self._failures: queue.SimpleQueue[Exception] = queue.SimpleQueue()
        self._under_way: list[Transfer] = []
        self._n_total_bytes = sum(each.file.n_bytes for each in transfers)
        self._samples: collections.deque[tuple[float, int]] = collections.deque()

    def run(self) -> None:
        for transfer in self._transfers:
            self._waiting.put(transfer)
        self._tell()
        n_threads = min(N_AT_ONCE, len(self._transfers))
        # Daemons: one that waits for a silent server must not keep the program from ending.
        threads = [threading.Thread(target=self._work, name="download", daemon=True) for _ in range(n_threads)]
        try:
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads) and self._failures.empty():
                if self._cancel.is_set():
                    raise cancelled()
                self._tell()
                self._cancel.wait(_TICK_S)
        finally:
            self._stop.set()
            end_s = time.monotonic() + _PATIENCE_WITH_THREADS_S
            for thread in threads:
                thread.join(max(0.0, end_s - time.monotonic()))
        if not self._failures.empty():
            raise self._failures.get()
        self._tell()

    def _work(self) -> None:
        try:
            while not self._stop.is_set():
                transfer = self._waiting.get_nowait()
                self._under_way.append(transfer)
                transfer.run(self._stop)
                self._under_way.remove(transfer)
        except queue.Empty:
            pass
        except Exception as error:  # whatever it is, the waiting thread raises it
            self._failures.put(error)

    def _tell(self) -> None:
        if self._on_progress is None:
            return
        now_s, n_done = time.monotonic(), sum(each.n_present_bytes for each in self._transfers)
        self._samples.append((now_s, n_done))
        while len(self._samples) > 2 and now_s - self._samples[1][0] > _RATE_OVER_S:
            self._samples.popleft()
        then_s, n_then = self._samples[0]
        rate = max(0.0, (n_done - n_then) / (now_s - then_s)) if now_s > then_s else 0.0
        left = self._n_total_bytes - n_done
        files = [each.file.name for each in self._under_way[:1]]
        self._on_progress(
            DownloadProgress(
                n_done_bytes=n_done,
                n_total_bytes=self._n_total_bytes,
                bytes_per_second=rate,
                seconds_left=0.0 if left == 0 else left / rate if rate > 0 else None,
                file=files[0] if files else "",
            )
        )
