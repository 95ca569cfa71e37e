"""Downloads that go on in the background: several at once, the others in a queue; each can be stopped and resumed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from localspec.errors import DownloadCancelledError, HubError, LocalspecError
from localspec.printable import one_line

if TYPE_CHECKING:
    from localspec.hub.client import DownloadProgress
    from localspec.hub.remote_model import RemoteModel

__all__ = ["Download", "DownloadState", "Downloads", "Fetch"]

_log = logging.getLogger(__name__)

_MOST_AT_ONCE: Final = 3  # each fetches up to four files at once
_PATIENCE_AT_THE_END_S: Final = 3.0

Fetch: TypeAlias = "Callable[[RemoteModel, Callable[[DownloadProgress], None], threading.Event], Path]"
"""`Hub.download`: a model, a listener and what cancels it, to the path of its first file."""


class DownloadState(StrEnum):
    """How a download stands."""

    WAITING = "waiting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Download:
    """A model that is fetched, identified by its `reference`. `path` is there when it is done, `error` when it failed.

    `seconds_left` None: nothing arrives.
    """

    reference: str
    n_total_bytes: int
    state: DownloadState = DownloadState.WAITING
    n_done_bytes: int = 0
    bytes_per_second: float = 0.0
    seconds_left: float | None = None
    path: Path | None = None
    error: LocalspecError | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether it goes on by itself."""
        return self.state in {DownloadState.WAITING, DownloadState.RUNNING}

    @property
    def can_resume(self) -> bool:
        """Whether it was stopped, or has failed; what has arrived is kept."""
        return self.state in {DownloadState.STOPPED, DownloadState.FAILED}


class Downloads:
    """The queue. Its methods return at once, on any thread; `on_change` is called on any thread, with no lock held."""

    def __init__(self, fetch: Fetch, on_change: Callable[[], None] = lambda: None) -> None:
        self.on_change = on_change
        self._fetch = fetch
        self._lock = threading.Lock()
        self._rows: dict[str, Download] = {}
        self._models: dict[str, RemoteModel] = {}
        self._running: dict[str, tuple[threading.Event, threading.Thread]] = {}
        self._again: set[str] = set()  # of those that stop
        self._is_closed = False

    @property
    def rows(self) -> tuple[Download, ...]:
        """All that were asked for, the oldest first."""
        with self._lock:
            return tuple(self._rows.values())

    def start(self, model: RemoteModel) -> None:
        """Fetch a model. One that is under way already goes on, one that was stopped or has failed is resumed."""
        reference = model.reference
        with self._lock:
            row = self._rows.get(reference)
            self._models[reference] = model
            if row is not None and row.state is DownloadState.STOPPING:
                self._again.add(reference)
            elif row is None or row.can_resume or row.state is DownloadState.DONE:
                n_done = row.n_done_bytes if row else 0
                self._rows[reference] = Download(reference, model.n_bytes, n_done_bytes=n_done)
            self._begin_waiting()
        self.on_change()

    def stop(self, reference: str) -> None:
        """Stop one that is under way; what has arrived is kept."""
        with self._lock:
            row = self._rows.get(reference)
            if row is None or not row.is_under_way:
                return
            if reference in self._running:
                self._running[reference][0].set()
                self._rows[reference] = replace(row, state=DownloadState.STOPPING, seconds_left=None)
            else:
                self._rows[reference] = replace(row, state=DownloadState.STOPPED)
        self.on_change()

    def resume(self, reference: str) -> None:
        """Go on with one that was stopped, or has failed."""
        with self._lock:
            row = self._rows.get(reference)
            if row is None or not row.can_resume:
                return
            self._rows[reference] = replace(row, state=DownloadState.WAITING, error=None)
            self._begin_waiting()
        self.on_change()

    def forget(self, reference: str) -> None:
        """Take one that has ended out of the list; its files stay."""
        with self._lock:
            row = self._rows.get(reference)
            if row is None or not (row.can_resume or row.state is DownloadState.DONE):
                return
            del self._rows[reference], self._models[reference]
        self.on_change()

    def close(self) -> None:
        """Stop all of them, and wait for them for a moment. What has arrived is kept."""
        with self._lock:
            self._is_closed = True
            running = list(self._running.values())
        for cancel, _ in running:
            cancel.set()
        end_s = time.monotonic() + _PATIENCE_AT_THE_END_S
        for _, thread in running:
            thread.join(max(0.0, end_s - time.monotonic()))

    # --- with the lock held -------------------------------------------------------------------------------------------

    def _begin_waiting(self) -> None:
        for reference, row in list(self._rows.items()):
            if self._is_closed or len(self._running) >= _MOST_AT_ONCE:
                return
            if row.state is DownloadState.WAITING and reference not in self._running:
                cancel = threading.Event()
                # A daemon: a silent server must not keep the program from ending.
                thread = threading.Thread(
                    target=self._run, args=(self._models[reference], cancel), name="model-download", daemon=True
                )
                self._running[reference] = cancel, thread
                self._rows[reference] = replace(row, state=DownloadState.RUNNING)
                thread.start()

    # --- on a thread of each download ---------------------------------------------------------------------------------

    def _run(self, model: RemoteModel, cancel: threading.Event) -> None:
        reference = model.reference

        def on_progress(progress: DownloadProgress) -> None:
            with self._lock:
                self._rows[reference] = replace(
                    self._rows[reference],
                    n_done_bytes=progress.n_done_bytes,
                    n_total_bytes=progress.n_total_bytes,
                    bytes_per_second=progress.bytes_per_second,
                    seconds_left=None if cancel.is_set() else progress.seconds_left,
                )
            self.on_change()

        path, error = None, None
        try:
            path = self._fetch(model, on_progress, cancel)
        except LocalspecError as raised:
            error = raised
        except Exception as raised:
            _log.exception("Downloading %s failed", one_line(reference))
            error = HubError(f"Downloading {reference} failed: {type(raised).__name__}: {raised}.")
        with self._lock:
            row = replace(self._rows[reference], bytes_per_second=0.0, seconds_left=None)
            if path is not None:
                row = replace(row, state=DownloadState.DONE, path=path, n_done_bytes=row.n_total_bytes)
            elif isinstance(error, DownloadCancelledError):
                row = replace(row, state=DownloadState.WAITING if reference in self._again else DownloadState.STOPPED)
            else:
                row = replace(row, state=DownloadState.FAILED, error=error)
            self._rows[reference] = row
            del self._running[reference]
            self._again.discard(reference)
            self._begin_waiting()
        self.on_change()
