from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec import logs

PACKAGE = logging.getLogger("localspec")
ENGINE = logging.getLogger("localspec.engine.worker")
LIBRARY = logging.getLogger("some.library")


@pytest.fixture(autouse=True)
def leave_logging_as_it_was() -> Iterator[None]:
    before = list(logging.getLogger().handlers)
    yield
    logging.captureWarnings(False)
    PACKAGE.setLevel(logging.NOTSET)
    for handler in [each for each in logging.getLogger().handlers if each not in before]:
        logging.getLogger().removeHandler(handler)
        handler.close()


@pytest.mark.parametrize(
    ("verbosity", "shown"),
    [
        (-1, ["warned"]),
        (0, ["warned"]),
        (1, ["did", "warned"]),
        (2, ["detail", "did", "warned"]),
        (9, ["detail", "did", "warned"]),
    ],
)
def test_stderr_shows_what_the_verbosity_asks_for(
    verbosity: int, shown: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert logs.configure(verbosity) is None
    ENGINE.debug("detail")
    ENGINE.info("did")
    ENGINE.warning("warned")
    out, err = capsys.readouterr()
    assert [line.rpartition(": ")[2] for line in err.splitlines()] == shown
    assert out == ""


def test_a_file_takes_the_log_off_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "new" / "localspec.log"
    logs.configure(2)
    assert logs.configure(0, file=file) == file
    ENGINE.debug("detail")
    ENGINE.info("did %d", 7)
    LIBRARY.warning("beware")
    LIBRARY.info("chatter")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("this is old", DeprecationWarning, stacklevel=1)
    assert capsys.readouterr() == ("", "")
    text = file.read_text(encoding="utf-8")
    assert "INFO" in text
    assert "localspec.engine.worker: did 7" in text
    assert "some.library: beware" in text
    assert "this is old" in text
    assert "detail" not in text
    assert "chatter" not in text


def test_configuring_again_replaces_the_handler(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "localspec.log"
    for _ in range(3):
        logs.configure(1, file=file)
    ENGINE.info("to the file")
    logs.configure(1)
    logs.configure(1)
    ENGINE.info("to stderr")
    assert file.read_text(encoding="utf-8").count("to the file") == 1
    assert capsys.readouterr().err == "INFO localspec.engine.worker: to stderr\n"


def test_only_the_owner_can_read_the_log(tmp_path: Path) -> None:
    file = tmp_path / "localspec.log"
    logs.configure(file=file)
    assert file.stat().st_mode & 0o777 == 0o600


def test_the_log_rotates_and_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_FILE_BYTES", 2_000)
    logs.configure(file=tmp_path / "localspec.log")
    for number in range(400):
        ENGINE.info("line %d of many", number)
    files = sorted(tmp_path.iterdir())
    assert [each.name for each in files] == ["localspec.log", "localspec.log.1", "localspec.log.2", "localspec.log.3"]
    assert all(each.stat().st_size <= 2_000 for each in files)
    assert all(each.stat().st_mode & 0o777 == 0o600 for each in files)
    assert "line 399 of many" in files[0].read_text(encoding="utf-8")


def test_a_directory_that_cannot_be_made_stops_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    in_the_way = tmp_path / "logs"
    in_the_way.write_text("a file, not a directory", encoding="utf-8")
    logs.configure()
    assert logs.configure(2, file=in_the_way / "localspec.log") is None
    warning = capsys.readouterr().err
    assert str(in_the_way) in warning
    assert warning.count("\n") == 1
    ENGINE.warning("after")
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a disk that is always full")
def test_a_full_disk_stops_nothing_and_says_nothing_on_the_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "localspec.log"
    file.symlink_to("/dev/full")
    logs.configure(file=file)
    ENGINE.warning("lost")
    logs.configure()
    assert capsys.readouterr().err == ""


def test_escape_sequences_reach_neither_terminal_nor_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "name\x1b]0;owned\x07\x9b31m\rend\nnext\tline"
    logs.configure()
    ENGINE.warning("model %s", hostile)
    logs.configure(file=tmp_path / "localspec.log")
    ENGINE.warning("model %s", hostile)
    visible = "model name␛]0;owned␇\N{REPLACEMENT CHARACTER}31mend\nnext\tline\n"
    assert capsys.readouterr().err.endswith(visible)
    assert (tmp_path / "localspec.log").read_text(encoding="utf-8").endswith(visible)


def test_a_file_name_that_is_not_unicode_can_be_logged(tmp_path: Path) -> None:
    file = tmp_path / "localspec.log"
    logs.configure(file=file)
    ENGINE.warning("file %s", os.fsdecode(b"mod\xe8le.gguf"))
    assert "mod\N{REPLACEMENT CHARACTER}le.gguf" in file.read_text(encoding="utf-8")
