"""Downloads: that they arrive whole, go on where they stopped, and leave nothing wrong behind."""

from __future__ import annotations

import errno
import os
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import scan_cache_dir, try_to_load_from_cache

from localspec.errors import (
    DiskFullError,
    DownloadCancelledError,
    HubAccessError,
    HubError,
    HubUnreachableError,
    NotOnHubError,
    OfflineError,
)
from localspec.hub import patience, session, transfer
from localspec.hub.client import DownloadProgress, Hub, RemoteModel
from localspec.models.references import HubReference
from tests.hub.server import COMMIT, FakeHub, Fault, Repo

MIB = 1 << 20
NAME = "m-Q8_0.gguf"
BODY = random.Random(7).randbytes(3 * MIB + 17)

MakeHub = Callable[..., Hub]


@pytest.fixture
def repo(server: FakeHub) -> Repo:
    return server.add_files("o/r", {NAME: BODY})


@pytest.fixture
def model(hub: Hub, repo: Repo) -> RemoteModel:
    return hub.models("o/r")[0]


def partial_of(hub: Hub, model: RemoteModel) -> Path:
    return hub.cache_dir / "models--o--r" / "blobs" / f"{model.files[0].blob}.incomplete"


def files_in(folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"
    }


def started(action: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    """Run on another thread; its error, if any, lands in the list."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            action()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, errors


def wait_until(is_true: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.005)


# --- where it goes ----------------------------------------------------------------------------------------------------


def test_a_model_lies_where_other_programs_look(server: FakeHub, hub: Hub, model: RemoteModel) -> None:
    path = hub.download(model)
    assert path.read_bytes() == BODY
    assert files_in(hub.cache_dir) == {
        f"models--o--r/blobs/{model.files[0].sha256}",
        f"models--o--r/snapshots/{COMMIT}/{NAME}",
        "models--o--r/refs/main",
    }
    assert path.is_symlink()
    assert not path.readlink().is_absolute()
    assert try_to_load_from_cache("o/r", NAME, cache_dir=hub.cache_dir) == str(path)
    info = scan_cache_dir(hub.cache_dir)
    assert (info.warnings, info.size_on_disk) == ([], len(BODY))
    assert hub.cached(HubReference("o/r", "Q8_0")) == path
    assert server.n_sent[NAME] == len(BODY)


def test_what_is_there_is_not_fetched_again(server: FakeHub, hub_at: MakeHub, model: RemoteModel) -> None:
    path = hub_at().download(model)
    n_requests = len(server.seen)
    assert hub_at().download(model) == path
    assert hub_at(offline=True).download(model) == path
    assert len(server.seen) == n_requests


def test_the_content_that_another_commit_had_is_linked(server: FakeHub, hub: Hub, model: RemoteModel) -> None:
    old = hub.download(model)
    n_sent = server.n_sent[NAME]
    new = hub.download(RemoteModel(model.repo, "d" * 40, model.quantization, model.files))
    assert new != old
    assert new.resolve() == old.resolve()
    assert server.n_sent[NAME] == n_sent


def test_where_there_are_no_links_the_file_itself_is_moved(
    hub: Hub, model: RemoteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    path = hub.download(model)
    assert path.read_bytes() == BODY
    assert not path.is_symlink()
    assert files_in(hub.cache_dir) == {f"models--o--r/snapshots/{COMMIT}/{NAME}", "models--o--r/refs/main"}
    assert hub.download(model) == path


def test_files_outside_of_lfs_are_verified_by_their_git_id(server: FakeHub, hub: Hub) -> None:
    server.add_files("o/r", {NAME: b"small"}).plain_git = True
    (model,) = hub.models("o/r")
    assert hub.download(model).read_bytes() == b"small"
    assert model.files[0].sha256 is None
    hub.remove("o/r")
    server.faults["storage"] = [Fault(flips=True)]
    with pytest.raises(HubError, match="another content"):
        hub.download(model)


def test_parts_in_folders_keep_them(server: FakeHub, hub: Hub) -> None:
    names = [f"Q8_0/m-Q8_0-{number:05}-of-00003.gguf" for number in (1, 2, 3)]
    server.add_files("o/r", {name: name.encode() for name in names})
    path = hub.download(hub.models("o/r")[0])
    assert path == hub.cache_dir / "models--o--r" / "snapshots" / COMMIT / names[0]
    assert [path.with_name(Path(name).name).read_bytes() for name in names] == [name.encode() for name in names]


# --- several at once, and progress ------------------------------------------------------------------------------------


def test_several_files_come_at_once(server: FakeHub, hub: Hub) -> None:
    names = [f"m-Q8_0-{number:05}-of-00006.gguf" for number in range(1, 7)]
    server.add_files("o/r", {name: BODY[number:200_000] for number, name in enumerate(names)} | {"d-Q4_0.gguf": b"d"})
    server.faults["storage"] = [Fault(pause_s=0.05) for _ in range(7)]
    model, draft = hub.models("o/r")
    paths = hub.download_all([model, draft])
    assert [path.name for path in paths] == [names[0], "d-Q4_0.gguf"]
    assert 2 <= server.n_at_once <= 4


def test_progress_adds_up(server: FakeHub, hub: Hub, model: RemoteModel) -> None:
    server.faults["storage"] = [Fault(pause_s=0.02)]
    told: list[DownloadProgress] = []
    hub.download(model, told.append)
    done = [each.n_done_bytes for each in told]
    assert done == sorted(done)
    assert done[-1] == len(BODY)
    assert {each.n_total_bytes for each in told} == {len(BODY)}
    assert (told[-1].seconds_left, told[-1].file) == (0.0, "")
    middle = [each for each in told if 0 < each.n_done_bytes < len(BODY)]
    assert any(each.file == NAME and each.bytes_per_second > 0 and each.seconds_left for each in middle)


def test_a_listener_that_fails_ends_the_download(server: FakeHub, hub: Hub, model: RemoteModel) -> None:
    server.faults["storage"] = [Fault(stall_after=MIB)]

    def fail(progress: DownloadProgress) -> None:
        if progress.n_done_bytes >= MIB:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        hub.download(model, fail)
    assert partial_of(hub, model).stat().st_size == MIB


# --- interruptions ----------------------------------------------------------------------------------------------------


def test_a_cut_costs_nothing_that_had_arrived(server: FakeHub, hub: Hub, model: RemoteModel) -> None:
    server.faults["storage"] = [Fault(cut_after=MIB), Fault(cut_after=300_000), Fault(503), Fault(cut_after=0)]
    assert hub.download(model).read_bytes() == BODY
    assert server.n_sent[NAME] == len(BODY)
    assert [each.headers["range"] for each in server.asked("storage")][:3] == [
        f"bytes=0-{len(BODY) - 1}",
        f"bytes={MIB}-{len(BODY) - 1}",
        f"bytes={MIB + 300_000}-{len(BODY) - 1}",
    ]


def test_an_answer_that_ends_early_and_politely_is_a_cut_too(server: FakeHub, hub: Hub, model: RemoteModel) -> None:
    short = {"Content-Length": str(MIB)}
    server.faults["storage"] = [Fault(claims=short)]
    assert hub.download(model).read_bytes() == BODY


def test_another_call_goes_on_from_there(server: FakeHub, hub_at: MakeHub, model: RemoteModel) -> None:
    server.faults["storage"] = [Fault(cut_after=MIB)] + [Fault(cut_after=0) for _ in range(5)]
    with pytest.raises(HubUnreachableError, match=rf"{NAME} broke off at 33%") as failed:
        hub_at().download(model)
    assert "goes on from where it was" in failed.value.hint
    assert partial_of(hub_at(), model).stat().st_size == MIB
    told: list[DownloadProgress] = []
    assert hub_at().download(model, told.append).read_bytes() == BODY
    assert told[0].n_done_bytes >= MIB
    assert server.n_sent[NAME] == len(BODY)


def test_cuts_that_let_something_through_are_endured(server: FakeHub, hub: Hub, model: RemoteModel) -> None:
    server.faults["storage"] = [Fault(cut_after=200_000) for _ in range(12)]
    assert hub.download(model).read_bytes() == BODY
    assert server.n_sent[NAME] == len(BODY)


def test_a_server_without_ranges_begins_anew(server: FakeHub, hub: Hub, model: RemoteModel) -> None:
    server.faults["storage"] = [Fault(cut_after=MIB), Fault(ignores_range=True)]
    told: list[DownloadProgress] = []
    assert hub.download(model, told.append).read_bytes() == BODY
    assert server.n_sent[NAME] == MIB + len(BODY)
    assert told[-1].n_done_bytes == len(BODY)


def test_larger_files_come_in_several_answers(
    server: FakeHub, hub: Hub, model: RemoteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "_MAX_ANSWER_BYTES", MIB)
    assert hub.download(model).read_bytes() == BODY
    assert server.n_sent[NAME] == len(BODY)
    assert len(server.asked("storage")) == 4


@pytest.mark.parametrize("size", [len(BODY) + 5, len(BODY)])
def test_a_partial_file_that_is_wrong_does_no_harm(server: FakeHub, hub: Hub, model: RemoteModel, size: int) -> None:
    partial = partial_of(hub, model)
    partial.parent.mkdir(parents=True)
    partial.write_bytes(bytes(size))
    if size == len(BODY):
        with pytest.raises(HubError, match="another content"):
            hub.download(model)
    assert hub.download(model).read_bytes() == BODY


def test_silence_is_a_cut(server: FakeHub, hub: Hub, model: RemoteModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "SILENCE_TIMEOUT_S", 0.2)
    server.faults["storage"] = [Fault(stall_after=MIB)]
    assert hub.download(model).read_bytes() == BODY
    assert server.n_sent[NAME] == len(BODY)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_the_hub_is_left_alone_as_long_as_it_asks(server: FakeHub, hub: Hub, model: RemoteModel, status: int) -> None:
    server.faults["hub"] = [Fault(status, {"Retry-After": "1"})]
    begun = time.monotonic()
    assert hub.download(model).read_bytes() == BODY
    assert time.monotonic() - begun >= 1


def test_a_ban_of_an_hour_is_told_at_once(server: FakeHub, hub: Hub, model: RemoteModel) -> None:
    server.faults["hub"] = [Fault(429, {"Retry-After": "3600"})]
    with pytest.raises(HubUnreachableError, match="3600 s"):
        hub.download(model)


# --- cancelling -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Fault(pause_s=0.02), Fault(stall_after=MIB)], ids=["flowing", "silent"])
def test_cancelling_takes_effect_within_a_second_and_keeps_what_arrived(
    server: FakeHub, hub_at: MakeHub, model: RemoteModel, fault: Fault
) -> None:
    server.faults["storage"] = [fault]
    hub, cancel = hub_at(), threading.Event()
    thread, errors = started(lambda: hub.download(model, cancel=cancel))
    wait_until(lambda: partial_of(hub, model).exists() and partial_of(hub, model).stat().st_size >= MIB)
    begun = time.monotonic()
    cancel.set()
    thread.join(20)
    assert time.monotonic() - begun < 3  # where nothing else runs, less than one; a silent server is waited for 20
    (error,) = errors
    assert isinstance(error, DownloadCancelledError)
    assert "goes on" in error.hint
    kept = partial_of(hub, model).stat().st_size
    assert MIB <= kept < len(BODY)
    server.go_on.set()
    sent_before = server.n_sent[NAME]
    assert hub_at().download(model).read_bytes() == BODY
    assert server.asked("storage")[-1].headers["range"] == f"bytes={kept}-{len(BODY) - 1}"
    assert server.n_sent[NAME] >= sent_before


def test_cancelling_ends_a_wait(server: FakeHub, hub: Hub, model: RemoteModel, monkeypatch: pytest.MonkeyPatch) -> None:
    server.faults["hub"] = [Fault(429, {"Retry-After": "200"})]
    cancel = threading.Event()
    thread, errors = started(lambda: hub.download(model, cancel=cancel))
    wait_until(lambda: len(server.asked("hub", "/resolve/")) == 1)
    cancel.set()
    thread.join(5)
    assert isinstance(errors[0], DownloadCancelledError)


def test_two_downloads_of_one_file_fetch_it_once(server: FakeHub, hub_at: MakeHub, model: RemoteModel) -> None:
    server.faults["storage"] = [Fault(pause_s=0.01)]
    running = [started(lambda: hub_at().download(model)) for _ in range(3)]
    for thread, errors in running:
        thread.join(60)
        assert errors == []
    assert server.n_sent[NAME] == len(BODY)


# --- what is refused --------------------------------------------------------------------------------------------------


def test_wrong_content_is_deleted_and_told(server: FakeHub, hub: Hub, model: RemoteModel) -> None:
    server.faults["storage"] = [Fault(flips=True)]
    with pytest.raises(HubError, match=rf"{NAME} of o/r arrived with another content") as failed:
        hub.download(model)
    assert failed.value.exit_code == 1
    assert "Try again" in failed.value.hint
    assert files_in(hub.cache_dir) == {"models--o--r/refs/main"}
    assert hub.cached(HubReference("o/r", "Q8_0")) is None
    assert hub.download(model).read_bytes() == BODY


def test_more_than_was_promised_is_not_taken(server: FakeHub, hub: Hub, model: RemoteModel) -> None:
    server.faults["storage"] = [Fault(n_extra=100_000), Fault(n_extra=5)]
    assert hub.download(model).read_bytes() == BODY


def test_a_full_disk_is_noticed_before_anything_is_fetched(
    server: FakeHub, hub: Hub, model: RemoteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(hub.cache_dir.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=len(BODY) - 1))
    with pytest.raises(DiskFullError, match=r"3.1 MB are to be downloaded") as refused:
        hub.download(model)
    assert (refused.value.exit_code, server.n_sent) == (4, {})
    assert "HF_HUB_CACHE" in refused.value.hint
    partial = partial_of(hub, model)
    partial.parent.mkdir(parents=True)
    partial.write_bytes(BODY[:MIB])  # what is there needs no room
    assert hub.download(model).read_bytes() == BODY


def test_a_disk_that_fills_up_keeps_what_arrived(hub: Hub, model: RemoteModel, monkeypatch: pytest.MonkeyPatch) -> None:
    append = transfer._Partial.append

    def fills_up(self: Any, piece: bytes) -> None:
        if self.n_bytes >= MIB:
            raise OSError(errno.ENOSPC, "No space left on device")
        append(self, piece)

    monkeypatch.setattr(transfer._Partial, "append", fills_up)
    with pytest.raises(DiskFullError) as failed:
        hub.download(model)
    assert failed.value.exit_code == 4
    assert MIB <= partial_of(hub, model).stat().st_size < len(BODY)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_cache_that_cannot_be_written_is_told(hub: Hub, model: RemoteModel) -> None:
    hub.cache_dir.mkdir(mode=0o500)
    with pytest.raises(HubError, match="cannot be written"):
        hub.download(model)


def test_a_cache_that_is_a_file_is_told(hub: Hub, model: RemoteModel) -> None:
    hub.cache_dir.write_bytes(b"")
    with pytest.raises(HubError, match="cannot be written"):
        hub.download(model)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault(401, {"X-Error-Code": "GatedRepo"}), HubAccessError),
        (Fault(403, {"X-Error-Code": "GatedRepo"}), HubAccessError),
        (Fault(404, {"X-Error-Code": "EntryNotFound"}), NotOnHubError),
        (Fault(416), HubError),
    ],
)
def test_refusals_are_told_as_what_they_are(
    server: FakeHub, hub: Hub, model: RemoteModel, fault: Fault, kind: type[HubError]
) -> None:
    server.faults["hub"] = [fault]
    with pytest.raises(kind) as refused:
        hub.download(model)
    assert not isinstance(refused.value, HubUnreachableError)
    assert "o/r" in refused.value.message or kind is HubError


def test_one_failure_stops_the_others(server: FakeHub, hub: Hub) -> None:
    names = [f"m-Q8_0-{number:05}-of-00003.gguf" for number in (1, 2, 3)]
    repo = server.add_files("o/r", {name: BODY[number:] for number, name in enumerate(names)})
    (model,) = hub.models("o/r")
    del repo.files[names[1]]
    server.faults["storage"] = [Fault(pause_s=0.05), Fault(pause_s=0.05)]
    with pytest.raises(NotOnHubError, match=names[1]):
        hub.download(model)
    assert sum(server.n_sent.values()) < 2 * len(BODY)


def test_offline_downloads_nothing(server: FakeHub, hub_at: MakeHub, model: RemoteModel) -> None:
    n_requests = len(server.seen)
    with pytest.raises(OfflineError, match="o/r:Q8_0 is not in the cache"):
        hub_at(offline=True).download(model)
    assert len(server.seen) == n_requests


def test_the_token_stays_with_the_hub(server: FakeHub, hub_at: MakeHub, model: RemoteModel) -> None:
    hub_at("hf_secret").download(model)
    (at_hub,), (at_storage,) = server.asked("hub", "/resolve/"), server.asked("storage")
    assert at_hub.headers["authorization"] == "Bearer hf_secret"
    assert not [value for value in at_storage.headers.values() if "hf_secret" in value]


def test_waits_grow_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    class Cancel(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0.0)
            return False

    monkeypatch.setattr(patience, "FIRST_WAIT_S", 1.0)
    monkeypatch.setattr(patience, "LONGEST_WAIT_S", 3.0)
    patient = patience.Patience(4, 10.0, Cancel())
    failure = HubUnreachableError("x")
    for _ in range(4):
        patient.wait(failure)
    assert waits == [1.0, 2.0, 3.0, 3.0]
    with pytest.raises(HubUnreachableError):
        patient.wait(failure)
    patient.renew()
    patient.wait(HubUnreachableError("x", retry_after_s=9.0))
    assert waits[-1] == 9.0


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    end = time.monotonic() + 30
    while any(thread.name == "download" for thread in threading.enumerate()) and time.monotonic() < end:
        time.sleep(0.01)
