"""The shared cache: what is found in it, and that deleting never reaches beyond it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import scan_cache_dir
from huggingface_hub.utils import logging as hub_logging

from localspec.errors import HubError
from localspec.hub.client import Hub, RemoteModel
from localspec.models.references import HubReference
from tests.hub.server import COMMIT, FakeHub

MakeHub = Callable[..., Hub]
OLD = "0" * 40


@pytest.fixture
def offline(hub_at: MakeHub) -> Hub:
    return hub_at(offline=True)


@pytest.fixture
def models(server: FakeHub, hub: Hub) -> list[RemoteModel]:
    """A repository with two quantizations, both downloaded."""
    server.add_files("o/r", {"m-Q4_K_M.gguf": b"4" * 400, "sub/m-Q8_0.gguf": b"8" * 800})
    found = hub.models("o/r")
    hub.download_all(found)
    return found


def put(hub: Hub, name: str, *, commit: str = COMMIT, repo: str = "o/r") -> Path:
    """A file as some other program has left it there."""
    path = hub.cache_dir / f"models--{repo.replace('/', '--')}" / "snapshots" / commit / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    return path


def refer(hub: Hub, commit: str) -> None:
    path = hub.cache_dir / "models--o--r" / "refs" / "main"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(commit)


# --- finding ----------------------------------------------------------------------------------------------------------


def test_nothing_is_found_where_nothing_is(offline: Hub) -> None:
    assert offline.cached(HubReference("o/r")) is None


def test_models_are_found_by_quantization_and_by_file(offline: Hub, models: list[RemoteModel]) -> None:
    folder = offline.cache_dir / "models--o--r" / "snapshots" / COMMIT
    assert offline.cached(HubReference("o/r")) == folder / "m-Q4_K_M.gguf"
    assert offline.cached(HubReference("o/r", "Q8_0")) == folder / "sub" / "m-Q8_0.gguf"
    assert offline.cached(HubReference("o/r", file="sub/m-Q8_0.gguf")) == folder / "sub" / "m-Q8_0.gguf"
    assert offline.cached(HubReference("o/r", "Q5_K_M")) is None
    assert offline.cached(HubReference("o/r", file="../../../x.gguf")) is None
    assert offline.cached(HubReference("o/other")) is None


def test_a_set_counts_only_whole(offline: Hub) -> None:
    first = put(offline, "m-Q8_0-00001-of-00002.gguf")
    assert offline.cached(HubReference("o/r", "Q8_0")) is None
    put(offline, "m-Q8_0-00002-of-00002.gguf")
    assert offline.cached(HubReference("o/r", "Q8_0")) == first


def test_a_link_to_nowhere_is_no_model(offline: Hub, models: list[RemoteModel]) -> None:
    path = offline.cached(HubReference("o/r", "Q8_0"))
    assert path is not None
    path.resolve().unlink()
    assert offline.cached(HubReference("o/r", "Q8_0")) is None


def test_the_commit_last_seen_comes_first_and_others_still_count(offline: Hub) -> None:
    old, new = put(offline, "m-Q8_0.gguf", commit=OLD), put(offline, "m-Q8_0.gguf")
    only_old = put(offline, "m-Q2_K.gguf", commit=OLD)
    for commit, path in ((COMMIT, new), (OLD, old)):
        refer(offline, commit)
        assert offline.cached(HubReference("o/r", "Q8_0")) == path
    refer(offline, "e" * 40)  # llama-server has seen a commit and fetched nothing of it
    assert offline.cached(HubReference("o/r", "Q2_K")) == only_old


# --- deleting ---------------------------------------------------------------------------------------------------------


def test_one_model_goes_and_the_other_stays(offline: Hub, models: list[RemoteModel]) -> None:
    assert offline.remove("o/r", ["sub/m-Q8_0.gguf", "absent.gguf"]) == 800
    assert offline.cached(HubReference("o/r", "Q8_0")) is None
    assert offline.cached(HubReference("o/r", "Q4_K_M")) is not None
    assert [path.stat().st_size for path in (offline.cache_dir / "models--o--r" / "blobs").iterdir()] == [400]
    assert offline.remove("o/r", ["sub/m-Q8_0.gguf"]) == 0
    assert scan_cache_dir(offline.cache_dir).warnings == []


def test_the_last_model_takes_the_folder_with_it(offline: Hub, models: list[RemoteModel]) -> None:
    assert offline.remove("o/r", ["sub/m-Q8_0.gguf", "m-Q4_K_M.gguf"]) == 1200
    assert not (offline.cache_dir / "models--o--r").exists()


def test_all_of_a_repository_goes_with_what_is_incomplete(offline: Hub, models: list[RemoteModel]) -> None:
    (offline.cache_dir / "models--o--r" / "blobs" / ("f" * 64 + ".incomplete")).write_bytes(b"." * 50)
    put(offline, "other-Q8_0.gguf", repo="o/other")
    assert offline.remove("o/r", ["m-Q4_K_M.gguf", "sub/m-Q8_0.gguf"]) == 1200  # a download may be under way
    assert offline.remove("o/r") == 50
    assert not (offline.cache_dir / "models--o--r").exists()
    assert offline.cached(HubReference("o/other", "Q8_0")) is not None
    assert offline.remove("o/r") == 0


def test_content_that_another_commit_needs_stays(hub: Hub, models: list[RemoteModel]) -> None:
    model = models[0]
    hub.download(RemoteModel(model.repo, OLD, model.quantization, model.files))
    assert hub.remove("o/r", [model.files[0].name]) == 400  # of both commits
    hub.download(model)
    twin = hub.cache_dir / "models--o--r" / "snapshots" / OLD / "twin.gguf"
    twin.symlink_to((twin.parents[1] / COMMIT / model.files[0].name).readlink())
    assert hub.remove("o/r", [model.files[0].name]) == 0
    assert twin.read_bytes() == b"4" * 400


def test_a_commit_without_files_is_no_hindrance(offline: Hub, models: list[RemoteModel]) -> None:
    refer(offline, "e" * 40)
    assert offline.remove("o/r", ["sub/m-Q8_0.gguf"]) == 800


@pytest.mark.parametrize("place", ["file", "snapshot", "repository"])
def test_nothing_outside_of_the_cache_is_deleted(offline: Hub, tmp_path: Path, place: str) -> None:
    outside = tmp_path / "outside" / "snapshots" / COMMIT
    outside.mkdir(parents=True)
    precious = outside / "m-Q8_0.gguf"
    precious.write_bytes(b"precious")
    folder = offline.cache_dir / "models--o--r"
    if place == "file":
        put(offline, "a-Q4_0.gguf").with_name("m-Q8_0.gguf").symlink_to(precious)
    elif place == "snapshot":
        put(offline, "a-Q4_0.gguf", commit=OLD)
        (folder / "snapshots" / COMMIT).symlink_to(outside)
    else:
        offline.cache_dir.mkdir()
        folder.symlink_to(tmp_path / "outside")
    with pytest.raises(HubError, match="outside of the cache"):
        offline.remove("o/r", ["m-Q8_0.gguf"])
    assert precious.read_bytes() == b"precious"


def test_a_damaged_folder_is_told(offline: Hub) -> None:
    put(offline, "m-Q8_0.gguf").with_name("x-Q4_0.gguf").symlink_to("nowhere")
    with pytest.raises(HubError, match="damaged") as refused:
        offline.remove("o/r")
    assert "by hand" in refused.value.hint


@pytest.mark.parametrize("files", [None, ["m-Q4_K_M.gguf", "sub/m-Q8_0.gguf"], ["m-Q4_K_M.gguf"]])
def test_another_repository_with_the_same_commit_stays(
    server: FakeHub, hub: Hub, models: list[RemoteModel], files: list[str] | None
) -> None:
    """As a copy of a repository has it: its commits are the same."""
    server.add_files("a/copy", {"m-Q4_K_M.gguf": b"4" * 400})
    server.add_files("z/copy", {"m-Q4_K_M.gguf": b"4" * 400})
    for repo in ("a/copy", "z/copy"):
        hub.download_all(hub.models(repo))
    assert hub.remove("o/r", files) >= 400
    for repo in ("a/copy", "z/copy"):
        assert hub.cached(HubReference(repo)) is not None
    assert hub.cached(HubReference("o/r", "Q4_K_M")) is None


def test_what_stays_elsewhere_is_not_promised(hub: Hub, models: list[RemoteModel], tmp_path: Path) -> None:
    names = [model.files[0].name for model in models]
    assert [hub.freed_bytes("o/r", [name]) for name in names] == [400, 800]
    assert hub.freed_bytes("o/r", names) == hub.freed_bytes("o/r") == 1200
    assert hub.freed_bytes("o/r", ["absent.gguf"]) == hub.freed_bytes("o/absent") == 0
    blobs = hub.cache_dir / "models--o--r" / "blobs"
    small, large = (blobs / model.files[0].blob for model in models)
    (tmp_path / "elsewhere").hardlink_to(small)
    large.rename(tmp_path / "moved")
    large.symlink_to(tmp_path / "moved")
    assert [hub.freed_bytes("o/r", [name]) for name in names] == [0, 0]
    assert hub.freed_bytes("o/r") == hub.remove("o/r") == 0
    assert (tmp_path / "moved").stat().st_size == 800


def test_a_twin_keeps_its_content_and_is_counted(hub: Hub, models: list[RemoteModel]) -> None:
    path = hub.cached(HubReference("o/r", "Q4_K_M"))
    assert path is not None
    path.with_name("twin.gguf").symlink_to(path.readlink())
    assert hub.freed_bytes("o/r", [path.name]) == hub.remove("o/r", [path.name]) == 0


def test_what_cannot_be_deleted_is_told_once(
    hub: Hub, models: list[RemoteModel], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("shutil.rmtree", refuse)  # of the whole repository, also for a user who may do anything
    before = hub_logging.get_verbosity()
    with pytest.raises(HubError, match="could not be deleted"):
        hub.remove("o/r")
    assert capfd.readouterr() == ("", "")
    assert hub_logging.get_verbosity() == before
