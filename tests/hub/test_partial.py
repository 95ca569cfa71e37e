"""Downloads that were begun and not finished: told by name, removed on request, and nobody else's touched."""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub.utils import WeakFileLock

from localspec.errors import DownloadCancelledError, HubError
from localspec.hub import download_notes
from localspec.hub.client import Hub, RemoteModel
from localspec.hub.download_notes import DownloadNotes
from tests.hub.server import FakeHub, Fault

BODY = random.Random(1).randbytes(1 << 20)
PARTS = {f"m-Q8_0-0000{number}-of-00002.gguf": BODY[: number * 300_000] for number in (1, 2)}


def begun(server: FakeHub, hub: Hub, repo: str = "o/r", after: int = 400_000) -> RemoteModel:
    """Fetch until so many bytes are there."""
    if repo not in server.repos:
        server.add(repo, **{"m-Q8_0_gguf": BODY})
    (model,) = hub.models(repo)
    cancel = threading.Event()
    server.faults["storage"] = [Fault(stall_after=after)]
    with pytest.raises(DownloadCancelledError):
        hub.download(model, lambda now: cancel.set() if now.n_done_bytes >= after else None, cancel)
    server.go_on.set()
    server.go_on.clear()
    return model


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "localspec" / "data" / "downloads"


def test_a_download_that_was_cut_off_is_told_until_it_is_finished(
    server: FakeHub, hub_at: Callable[..., Hub], notes: Path
) -> None:
    model = begun(server, hub_at())
    later = hub_at(offline=True)
    (partial,) = later.partial_downloads()
    assert (partial.name, partial.model, partial.n_done_bytes) == ("o/r:Q8_0", model, 400_000)
    hub_at().download(model)
    assert later.partial_downloads() == []
    assert list(notes.iterdir()) == []


def test_finished_parts_count(server: FakeHub, hub: Hub) -> None:
    server.add_files("o/r", dict(PARTS))
    (model,) = hub.models("o/r")
    hub.download(RemoteModel(model.repo, model.revision, model.quantization, model.files[:1]))
    partial_file = hub.cache_dir / "models--o--r" / "blobs" / f"{model.files[1].blob}.incomplete"
    partial_file.write_bytes(PARTS[model.files[1].name][:1000])
    DownloadNotes(hub.cache_dir).add(model)
    (partial,) = hub.partial_downloads()
    assert (partial.n_done_bytes, partial.model.n_bytes) == (300_000 + 1000, 900_000)
    assert hub.remove_partial(partial) == 1000
    assert hub.partial_downloads() == []
    assert not partial_file.exists()
    assert len(list(partial_file.parent.iterdir())) == 1, "the finished part stays"


def test_removing_one_leaves_the_others(server: FakeHub, hub: Hub) -> None:
    first, second = begun(server, hub, "o/r"), begun(server, hub, "o/s", after=200_000)
    assert [each.model for each in hub.partial_downloads()] == [second, first], "the latest first"
    foreign = hub.cache_dir / "models--o--r" / "blobs" / f"{'f' * 64}.incomplete"
    foreign.write_bytes(b"another program's")
    n_asked = len(server.seen)
    assert hub.remove_partial(hub.partial_downloads()[1]) == 400_000
    assert [each.model for each in hub.partial_downloads()] == [second]
    assert foreign.exists()
    assert len(server.seen) == n_asked
    assert hub.download(first).read_bytes() == BODY


def test_what_another_program_has_begun_is_not_ours(server: FakeHub, hub: Hub, notes: Path) -> None:
    begun(server, hub)
    for path in notes.iterdir():
        path.unlink()
    assert hub.partial_downloads() == []


def test_another_cache_has_its_own(server: FakeHub, hub_at: Callable[..., Hub], tmp_path: Path) -> None:
    begun(server, hub_at())
    assert hub_at(cache_dir=tmp_path / "other").partial_downloads() == []


def test_one_that_is_under_way_is_not_removed(server: FakeHub, hub: Hub) -> None:
    model = begun(server, hub)
    (partial,) = hub.partial_downloads()
    with WeakFileLock(hub.cache_dir / ".locks" / "models--o--r" / f"{model.files[0].blob}.lock"):
        with pytest.raises(HubError, match="is being downloaded now"):
            hub.remove_partial(partial)
        assert hub.partial_downloads() == [partial]


@pytest.mark.skipif(os.name != "posix", reason="links of POSIX")
def test_a_link_leads_nowhere(server: FakeHub, hub: Hub, tmp_path: Path) -> None:
    model = begun(server, hub)
    (partial,) = hub.partial_downloads()
    blobs = hub.cache_dir / "models--o--r" / "blobs"
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / f"{model.files[0].blob}.incomplete").write_bytes(b"precious")
    blobs.rename(tmp_path / "away")
    blobs.symlink_to(precious)
    with pytest.raises(HubError, match="lies outside of the cache"):
        hub.remove_partial(partial)
    blobs.unlink()
    (tmp_path / "away").rename(blobs)
    unfinished = blobs / f"{model.files[0].blob}.incomplete"
    unfinished.unlink()
    unfinished.symlink_to(precious / unfinished.name)
    assert hub.partial_downloads() == []
    assert hub.remove_partial(partial) == 0
    assert (precious / unfinished.name).read_bytes() == b"precious"


def test_notes_are_untrusted(server: FakeHub, hub: Hub, notes: Path) -> None:
    begun(server, hub)
    (note,) = notes.iterdir()
    good = json.loads(note.read_text())
    file = good["files"][0]
    for change in (
        {"repo": "../../x"},
        {"revision": "../../x"},
        {"files": [file | {"name": "../../../x"}]},
        {"files": [file | {"sha256": "../../x"}]},
        {"files": [file | {"n_bytes": -1}]},
        {"files": []},
        {"files": [file] * 2_000},
        {"cache": "/elsewhere"},
        {"more": 1},
    ):
        note.write_text(json.dumps(good | change))
        assert hub.partial_downloads() == [], change
    for content in (b"", b"{", b"[" * 100_000, b"\xff", b"x" * (2 << 20)):
        note.write_bytes(content)
        assert hub.partial_downloads() == []
    note.unlink()
    os.mkfifo(note)
    assert hub.partial_downloads() == []


def test_notes_are_bounded_and_a_download_does_not_depend_on_them(
    server: FakeHub, hub: Hub, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download_notes, "MAX_NOTES", 3)
    server.add("o/r", **{"m-Q8_0_gguf": BODY})
    (model,) = hub.models("o/r")
    for number in range(6):
        DownloadNotes(hub.cache_dir).add(RemoteModel(f"o/r{number}", model.revision, "Q8_0", model.files))
    assert len(list(notes.iterdir())) == 3
    for path in notes.iterdir():
        path.unlink()
    notes.rmdir()
    notes.write_bytes(b"a file where the folder belongs")
    assert hub.download(model).read_bytes() == BODY
    assert hub.partial_downloads() == []
