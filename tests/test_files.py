"""Small files that may be anything: what is no regular file ends in an error at once, and nothing grows."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from localspec.config import load_settings
from localspec.errors import ConfigError, HubError
from localspec.files import read_regular
from localspec.hub.cache import HubCache
from localspec.models.folder_scan import scan
from localspec.models.header_cache import FileStamp, HeaderCache
from localspec.models.model_folders import ModelFolder, Place
from localspec.models.registry import load_registry

posix = pytest.mark.skipif(os.name == "nt", reason="pipes and devices of POSIX")


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_link_to_a_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to(path.with_name("pipe"))


def a_link_to_zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


strange = pytest.mark.parametrize("make", [a_pipe, a_link_to_a_pipe, a_link_to_zeros])
Make = Callable[[Path], None]


def test_a_regular_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"four\r\n")
    assert read_regular(path, 6) == b"four\r\n"
    with pytest.raises(OSError, match="larger than 5 bytes") as refused:
        read_regular(path, 5)
    assert refused.value.filename == str(path)
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "none", 5)


@posix
@strange
def test_nothing_else_is_read(tmp_path: Path, make: Make) -> None:
    make(tmp_path / "a")
    with pytest.raises(OSError, match="not a regular file"):
        read_regular(tmp_path / "a", 5)
    with pytest.raises(IsADirectoryError):
        read_regular(tmp_path, 5)


@posix
@strange
def test_models_toml(tmp_path: Path, make: Make) -> None:
    make(tmp_path / "models.toml")
    with pytest.raises(ConfigError, match=r"models\.toml: .*not a regular file"):
        load_registry(tmp_path / "models.toml")


@posix
@strange
def test_config_toml(tmp_path: Path, make: Make) -> None:
    make(tmp_path / "config.toml")
    with pytest.raises(ConfigError, match=r"config\.toml: .*not a regular file"):
        load_settings(tmp_path / "config.toml", {}, {})


@posix
@strange
def test_headers_json(tmp_path: Path, make: Make) -> None:
    make(tmp_path / "headers.json")
    assert not HeaderCache(tmp_path / "headers.json").knows(tmp_path / "a.gguf", [FileStamp(1, 1)])


@posix
@strange
def test_refs_main(tmp_path: Path, make: Make) -> None:
    """Listing and finding do without it; before a deletion, huggingface_hub would read it."""
    for repo in ("models--o--r", "models--o--other"):
        snapshot = tmp_path / repo / "snapshots" / ("a" * 40)
        snapshot.mkdir(parents=True)
        (snapshot / "m-Q8_0.gguf").write_bytes(b"x")
    (tmp_path / "models--o--r" / "refs").mkdir()
    make(tmp_path / "models--o--r" / "refs" / "main")
    assert len(list(scan(ModelFolder(Place.HUGGING_FACE, tmp_path)))) == 2
    cache = HubCache(tmp_path)
    assert cache.find("o/r", "Q8_0", None) == tmp_path / "models--o--r" / "snapshots" / ("a" * 40) / "m-Q8_0.gguf"
    for repo in ("o/r", "o/other"):
        with pytest.raises(HubError, match=r"refs.(main|pipe) is damaged"):
            cache.remove(repo, None)
    assert cache.find("o/other", "Q8_0", None) is not None
