"""Downloads in the background: their order, what stops and resumes them, and that they end with the program."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from localspec.errors import DownloadCancelledError, HubUnreachableError, LocalspecError
from localspec.hub.download import DownloadProgress
from localspec.hub.remote_model import RemoteFile, RemoteModel
from localspec.pairing.downloads import Download, Downloads, DownloadState


def model(name: str) -> RemoteModel:
    return RemoteModel(f"acme/{name}", "b" * 40, "Q8_0", (RemoteFile(f"{name}-Q8_0.gguf", 100, "a" * 64),))


class Fetcher:
    """Fetches what the test lets go on, and notices what runs at once."""

    def __init__(self) -> None:
        self.go_on: dict[str, threading.Event] = {}
        self.begun: list[str] = []
        self.raises: dict[str, Exception] = {}
        self.n_now = self.n_most = 0
        self._lock = threading.Lock()

    def __call__(
        self, wanted: RemoteModel, on_progress: Callable[[DownloadProgress], None], cancel: threading.Event
    ) -> Path:
        with self._lock:
            self.begun.append(wanted.reference)
            self.n_now += 1
            self.n_most = max(self.n_most, self.n_now)
            go_on = self.go_on.setdefault(wanted.reference, threading.Event())
        try:
            on_progress(DownloadProgress(40, 100, 20.0, 3.0, "x"))
            while not go_on.wait(0.005):
                if cancel.is_set():
                    raise DownloadCancelledError("stopped")
            if error := self.raises.pop(wanted.reference, None):
                raise error
            on_progress(DownloadProgress(100, 100, 20.0, 0.0, ""))
            return Path("/cache") / wanted.files[0].name
        finally:
            with self._lock:
                self.n_now -= 1

    def finish(self, name: str) -> None:
        self.go_on.setdefault(f"acme/{name}:Q8_0", threading.Event()).set()


@pytest.fixture
def fetcher() -> Fetcher:
    return Fetcher()


@pytest.fixture
def downloads(fetcher: Fetcher) -> Iterator[Downloads]:
    queue = Downloads(fetcher)
    yield queue
    queue.close()


def until(downloads: Downloads, name: str, state: DownloadState) -> Download:
    deadline = time.monotonic() + 20
    while True:
        row = next((row for row in downloads.rows if row.reference == f"acme/{name}:Q8_0"), None)
        if row is not None and row.state is state:
            return row
        assert time.monotonic() < deadline, downloads.rows
        time.sleep(0.005)


def test_progress_is_told_and_the_path_is_there_at_the_end(fetcher: Fetcher, downloads: Downloads) -> None:
    n_changes = [0]
    downloads.on_change = lambda: n_changes.__setitem__(0, n_changes[0] + 1)
    downloads.start(model("a"))
    running = until(downloads, "a", DownloadState.RUNNING)
    deadline = time.monotonic() + 20
    while running.n_done_bytes != 40 and time.monotonic() < deadline:
        running = until(downloads, "a", DownloadState.RUNNING)
    assert (running.n_total_bytes, running.bytes_per_second, running.seconds_left) == (100, 20.0, 3.0)
    fetcher.finish("a")
    done = until(downloads, "a", DownloadState.DONE)
    assert (done.n_done_bytes, done.bytes_per_second, done.path) == (100, 0.0, Path("/cache/a-Q8_0.gguf"))
    assert n_changes[0] >= 3


def test_three_run_at_once_and_the_others_in_their_order(fetcher: Fetcher, downloads: Downloads) -> None:
    for name in "abcde":
        downloads.start(model(name))
    until(downloads, "c", DownloadState.RUNNING)
    assert [row.state.value for row in downloads.rows] == ["running"] * 3 + ["waiting"] * 2
    fetcher.finish("b")
    until(downloads, "d", DownloadState.RUNNING)
    until(downloads, "e", DownloadState.WAITING)
    for name in "acde":
        fetcher.finish(name)
    for name in "abcde":
        until(downloads, name, DownloadState.DONE)
    assert fetcher.n_most == 3
    assert sorted(fetcher.begun[:3]) == [f"acme/{name}:Q8_0" for name in "abc"]
    assert fetcher.begun[3:] == ["acme/d:Q8_0", "acme/e:Q8_0"]


def test_one_is_stopped_resumed_and_forgotten(fetcher: Fetcher, downloads: Downloads) -> None:
    downloads.start(model("a"))
    until(downloads, "a", DownloadState.RUNNING)
    downloads.forget("acme/a:Q8_0")  # not while it runs
    downloads.stop("acme/a:Q8_0")
    stopped = until(downloads, "a", DownloadState.STOPPED)
    assert (stopped.n_done_bytes, stopped.error) == (40, None)
    downloads.resume("acme/a:Q8_0")
    until(downloads, "a", DownloadState.RUNNING)
    fetcher.finish("a")
    until(downloads, "a", DownloadState.DONE)
    downloads.forget("acme/a:Q8_0")
    assert downloads.rows == ()
    for act in (downloads.stop, downloads.resume, downloads.forget):
        act("acme/a:Q8_0")  # nobody knows it any more


def test_one_that_waits_is_stopped_before_it_begins(fetcher: Fetcher, downloads: Downloads) -> None:
    for name in "abcd":
        downloads.start(model(name))
    downloads.stop("acme/d:Q8_0")
    assert until(downloads, "d", DownloadState.STOPPED).n_done_bytes == 0
    for name in "abc":
        fetcher.finish(name)
        until(downloads, name, DownloadState.DONE)
    assert "acme/d:Q8_0" not in fetcher.begun


@pytest.mark.parametrize("error", [HubUnreachableError("no answer", hint="wait"), ValueError("odd")])
def test_a_failure_keeps_its_error_and_the_next_one_begins(
    fetcher: Fetcher, downloads: Downloads, error: Exception
) -> None:
    for name in "abcd":
        downloads.start(model(name))
    fetcher.raises["acme/a:Q8_0"] = error
    fetcher.finish("a")
    failed = until(downloads, "a", DownloadState.FAILED)
    assert isinstance(failed.error, LocalspecError)
    assert str(error) in failed.error.message
    until(downloads, "d", DownloadState.RUNNING)
    downloads.start(model("a"))  # asking for it again is another attempt
    fetcher.finish("d")
    assert until(downloads, "a", DownloadState.DONE).error is None


def test_asking_twice_is_one_download(fetcher: Fetcher, downloads: Downloads) -> None:
    downloads.start(model("a"))
    downloads.start(model("a"))
    fetcher.finish("a")
    until(downloads, "a", DownloadState.DONE)
    assert fetcher.begun == ["acme/a:Q8_0"]


def test_asking_again_for_one_that_stops_is_heard(fetcher: Fetcher, downloads: Downloads) -> None:
    downloads.start(model("a"))
    until(downloads, "a", DownloadState.RUNNING)
    downloads.stop("acme/a:Q8_0")
    downloads.start(model("a"))
    fetcher.finish("a")
    until(downloads, "a", DownloadState.DONE)
    downloads.forget("acme/a:Q8_0")


def test_the_end_stops_all_and_begins_no_other(fetcher: Fetcher) -> None:
    downloads = Downloads(fetcher)
    for name in "abcde":
        downloads.start(model(name))
    until(downloads, "c", DownloadState.RUNNING)
    downloads.close()
    assert fetcher.n_now == 0
    assert len(fetcher.begun) == 3
    downloads.start(model("f"))
    assert len(fetcher.begun) == 3
