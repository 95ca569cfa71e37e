"""`localspec pull` against a Hub on this machine: what it fetches, says and refuses."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import clean_environment
from tests.hub.remote_gguf import small_model
from tests.hub.server import FakeHub, Fault

# The command under the real entry point, however it is registered there.
_COMMAND = """
import typer
from localspec.cli import main
from localspec.cli.pull import pull
main.app = typer.Typer(pretty_exceptions_enable=False)
main.app.callback()(lambda: None)
main.app.command()(pull)
main.run()
"""
TOKENS: list[str | bytes] = [f"t{number}" for number in range(40)]


@pytest.fixture
def server() -> Iterator[FakeHub]:
    with FakeHub().running() as hub:
        hub.add_files(
            "big/Target-GGUF",
            {
                "Target-Q4_K_M.gguf": small_model(TOKENS, n_rows=40_000),
                "Target-Q8_0-00001-of-00002.gguf": b"1" * 3000,
                "Target-Q8_0-00002-of-00002.gguf": b"2" * 1000,
            },
        )
        hub.add_files("small/Draft-GGUF", {"Draft-Q8_0.gguf": small_model(TOKENS)})
        hub.add_files("small/Other-GGUF", {"Other-Q8_0.gguf": small_model([*TOKENS[:-1], "different"])})
        yield hub


@pytest.fixture
def environment(server: FakeHub, tmp_path: Path) -> dict[str, str]:
    kept = {
        name: value
        for name, value in clean_environment(tmp_path / "home").items()
        if not name.startswith(("HF_", "HUGGING")) and not name.upper().endswith("_PROXY")
    }
    return kept | {"HF_ENDPOINT": server.endpoint, "HF_HOME": str(tmp_path / "hf"), "HF_TOKEN": "hf_test"}


Ran = subprocess.CompletedProcess[str]


def run(environment: dict[str, str], *args: object, code: int = 0, **variables: str) -> Ran:
    done = subprocess.run(
        [sys.executable, "-c", _COMMAND, "pull", *map(str, args)],
        capture_output=True,
        text=True,
        env=environment | variables,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == code, done.stderr
    return done


def test_a_model_is_fetched_and_its_path_printed(server: FakeHub, environment: dict[str, str]) -> None:
    done = run(environment, "big/Target-GGUF:Q8_0")
    path = Path(done.stdout.removesuffix("\n"))
    assert path.read_bytes() == b"1" * 3000
    assert path.with_name("Target-Q8_0-00002-of-00002.gguf").read_bytes() == b"2" * 1000
    assert "4 kB to download." in done.stderr
    assert "checksums right" in done.stderr
    again = run(environment, "big/Target-GGUF:Q8_0")
    assert again.stdout == done.stdout
    assert "Everything is there already." in again.stderr
    assert run(environment, "big/Target-GGUF:q8_0", HF_HUB_OFFLINE="1").stdout == done.stdout


def test_a_pair_is_judged_and_fetched(server: FakeHub, environment: dict[str, str]) -> None:
    done = run(environment, "big/Target-GGUF", "--draft", "small/Draft-GGUF", "--json")
    answer = json.loads(done.stdout)
    assert [Path(each["path"]).name for each in answer["models"]] == ["Target-Q4_K_M.gguf", "Draft-Q8_0.gguf"]
    assert [each["quantization"] for each in answer["models"]] == ["Q4_K_M", "Q8_0"]
    (pair,) = answer["pairs"]
    assert (pair["verdict"], pair["reasons"]) == ("identical", [])
    assert 0 < pair["header_bytes"] < 2_000_000
    assert "can draft for big/Target-GGUF: vocabularies identical" in done.stderr


def test_a_pair_that_does_not_fit_is_refused_before_any_weight(server: FakeHub, environment: dict[str, str]) -> None:
    done = run(environment, "big/Target-GGUF", "--draft", "small/Other-GGUF", code=3)
    assert "cannot draft for" in done.stderr
    assert "'t39'" in done.stderr
    assert "'different'" in done.stderr
    assert done.stdout == ""
    assert server.n_sent["Target-Q4_K_M.gguf"] <= 1 << 20
    assert not list(Path(environment["HF_HOME"]).rglob("*.gguf"))


def test_models_that_are_named_side_by_side_are_no_pair(environment: dict[str, str]) -> None:
    done = run(environment, "big/Target-GGUF", "small/Other-GGUF", "--json")
    answer = json.loads(done.stdout)
    assert (len(answer["models"]), answer["pairs"]) == (2, [])


def test_quantizations_are_listed_with_sizes(server: FakeHub, environment: dict[str, str]) -> None:
    done = run(environment, "--list", "big/Target-GGUF")
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["Q8_0", "4", "kB", "Target-Q8_0-00001-of-00002.gguf", "and", "1", "more"] in rows
    assert ["Q4_K_M", "2.6", "MB", "Target-Q4_K_M.gguf"] in rows
    (found,) = json.loads(run(environment, "--list", "--json", "big/Target-GGUF").stdout)
    smallest = found["models"][0]
    assert (smallest["reference"], smallest["download_bytes"]) == ("big/Target-GGUF:Q8_0", 4000)
    assert not Path(environment["HF_HOME"]).exists()


def test_a_file_that_is_here_can_be_a_part_of_a_pair(environment: dict[str, str], tmp_path: Path) -> None:
    mine = tmp_path / "mine.gguf"
    mine.write_bytes(small_model(TOKENS))
    done = run(environment, "big/Target-GGUF", "--draft", mine)
    assert done.stdout.splitlines()[1] == str(mine)


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["big/Target-GGUF:Q5_K_M"], 3, "It has Q4_K_M, Q8_0."),
        (["big/Absent-GGUF"], 3, "is not on 127.0.0.1"),
        (["absent.gguf"], 2, "no file"),
        (["../../x"], 2, "no file"),
        (["no such thing"], 2, "names no model"),
        (["--list", "big/Target-GGUF", "--draft", "small/Draft-GGUF"], 2, "contradict"),
        ([], 2, "Missing argument"),
    ],
)
def test_what_cannot_be_fetched_is_explained(
    environment: dict[str, str], args: list[str], code: int, words: str
) -> None:
    done = run(environment, *args, code=code)
    assert words in done.stderr
    assert done.stdout == ""


def test_offline_says_so(server: FakeHub, environment: dict[str, str]) -> None:
    done = run(environment, "big/Target-GGUF", code=1, HF_HUB_OFFLINE="1")
    assert "offline" in done.stderr
    assert server.seen == []


def test_wrong_content_is_an_error(server: FakeHub, environment: dict[str, str]) -> None:
    server.faults["storage"] = [Fault(flips=True)]
    done = run(environment, "small/Draft-GGUF", code=1)
    assert "another content" in done.stderr
    assert "Try again" in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_what_arrived_outlives_the_process(
    server: FakeHub, environment: dict[str, str], ending: signal.Signals
) -> None:
    body = random.Random(3).randbytes(3 << 20)
    server.add_files("big/Slow-GGUF", {"Slow-Q8_0.gguf": body})
    server.faults["storage"] = [Fault(stall_after=1 << 20)]
    process = subprocess.Popen(
        [sys.executable, "-c", _COMMAND, "pull", "big/Slow-GGUF"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    with process:
        end = time.monotonic() + 30
        while not any(path.stat().st_size >= 1 << 20 for path in Path(environment["HF_HOME"]).rglob("*.incomplete")):
            assert time.monotonic() < end
            time.sleep(0.01)
        process.send_signal(ending)
        out, err = process.communicate(timeout=20)
    assert (out, "Traceback" in err) == ("", False)
    if ending is signal.SIGINT:
        assert process.returncode == 130
        assert "Go on with: localspec pull big/Slow-GGUF" in err
    server.go_on.set()
    done = run(environment, "big/Slow-GGUF")
    assert Path(done.stdout.strip()).read_bytes() == body
    assert "1.0 MB of it are here" in done.stderr
    assert server.asked("storage")[-1].headers["range"] == f"bytes={1 << 20}-{len(body) - 1}"


def test_a_search_lists_repositories_and_nothing_is_fetched(environment: dict[str, str], server: FakeHub):
    facts = {"total": 1_500_000_000, "architecture": "qwen2", "context_length": 32768}
    server.found = [{"id": "small/Draft-GGUF", "downloads": 1234, "gated": "auto", "gguf": facts}, {"id": "o/r"}]
    shown = run(environment, "--search", "small", "draft").stdout
    assert all(word in shown for word in ("small/Draft-GGUF", "1.50 B", "32,768", "1,234", "licence to accept", "o/r"))
    found = json.loads(run(environment, "--search", "gguf", "--json").stdout)
    assert [each["repo"] for each in found] == ["small/Draft-GGUF", "o/r"]
    server.found = []
    assert "no GGUF repository" in run(environment, "--search", "no", "such", "thing").stdout
    assert "neither --list nor --draft" in run(environment, "--search", "x", "--list", code=2).stderr
