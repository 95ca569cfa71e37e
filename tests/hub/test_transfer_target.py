"""What a download is written into: a file of the cache, and nothing that only leads somewhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from localspec.errors import HubError
from localspec.hub.client import Hub
from tests.hub.server import FakeHub

posix = pytest.mark.skipif(os.name == "nt", reason="links and pipes of POSIX")


@posix
@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe"])
def test_a_download_is_written_into_no_link(server: FakeHub, hub: Hub, tmp_path: Path, kind: str) -> None:
    server.add_files("o/r", {"m-Q8_0.gguf": b"G" * 900})
    (model,) = hub.models("o/r")
    precious = tmp_path / "precious"
    partial = hub.cache_dir / "models--o--r" / "blobs" / f"{model.files[0].blob}.incomplete"
    partial.parent.mkdir(parents=True)
    if kind == "pipe":
        os.mkfifo(partial)
    else:
        partial.symlink_to(precious)
    if kind == "link":
        precious.write_bytes(b"precious")
    with pytest.raises(HubError, match="a link, a pipe or a device") as refused:
        hub.download(model)
    assert str(partial) in refused.value.message
    assert precious.read_bytes() == b"precious" if kind == "link" else not precious.exists()
    partial.unlink()
    assert hub.download(model).read_bytes() == b"G" * 900


@posix
def test_a_lock_is_no_link_either(server: FakeHub, hub: Hub, tmp_path: Path) -> None:
    server.add_files("o/r", {"m-Q8_0.gguf": b"G" * 900})
    (model,) = hub.models("o/r")
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    lock = hub.cache_dir / ".locks" / "models--o--r" / f"{model.files[0].blob}.lock"
    lock.parent.mkdir(parents=True)
    lock.symlink_to(precious)
    with pytest.raises(HubError):
        hub.download(model)
    assert precious.read_bytes() == b"precious"
