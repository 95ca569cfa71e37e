"""`localspec bench` as a process: what it prints and writes, what it refuses, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.cli.conftest import Localspec, run_localspec, stored
from tests.native_fixtures import TinyModels

pytestmark = pytest.mark.native

SHORT = ["--repetitions", 1, "--max-tokens", 12, "--temperature", 0]


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    lines = [
        {"kind": "chat", "name": "lake", "prompt": "What is a lake?"},
        {"kind": "code", "name": "loop", "prompt": "for i in range(3): for i in range"},
    ]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return path


@pytest.fixture
def bench(tiny: list[object], prompts: Path) -> list[object]:
    return ["bench", *tiny, "--workload", prompts]


def test_a_bench_with_everything(localspec: Localspec, bench: list[object], tmp_path: Path):
    files = ["--json", "out.json", "--markdown", "out.md", "--plots", "plots", "--profile"]
    done = localspec(*bench, "--repetitions", 2, "--max-tokens", 12, *files, check=0)
    shown = done.stdout.decode()
    for title in ("Speedup by prompt, temperature 0.8", "Speed, all temperatures", "A step in milliseconds"):
        assert title in shown
    assert {"plain", "auto", "draft", "lookup"} <= set(shown.split())
    assert "\x1b" not in shown
    assert [line for line in done.stderr.splitlines() if not line.startswith(b"Other programs use")] == []

    document = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert document["complete"]
    assert document["threads"] == 1
    assert document["settings"]["temperatures"] == [0.0, 0.8]
    assert len(document["runs"]) == 4 * 2 * 2 * 2
    assert {run["seed"] for run in document["runs"]} == {1, 2}
    assert all(run["metrics"]["n_tokens"] <= 12 for run in document["runs"])
    report = (tmp_path / "out.md").read_text(encoding="utf-8")
    assert report.count("\n| chat/lake 0.8 ") == report.count("\n| code/loop 0 ") == 4
    assert sorted(path.name for path in (tmp_path / "plots").iterdir()) == ["acceptance.svg", "speed.svg"]


def test_a_sweep_of_lengths_and_contexts(localspec: Localspec, bench: list[object], tmp_path: Path):
    what = ["--mode", "auto,draft:0..2", "--context", "128", "--context", "200", "--only", "lake"]
    done = localspec(*bench, *SHORT, *what, "--json", "out.json", "--plots", "plots", check=0)
    shown = done.stdout.decode()
    assert "Cost against the length of drafts (draft), temperature 0" in shown
    assert "Cost against context length, temperature 0" in shown
    runs = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["runs"]
    assert {run["contender"] for run in runs} == {"plain", "auto", "draft:0", "draft:1", "draft:2"}
    for run in runs:
        assert run["n_context"] - 8 <= run["metrics"]["n_prompt_tokens"] + 12 <= run["n_context"]
        assert run["metrics"]["n_drafted"] <= (run["fixed_length"] if run["fixed_length"] is not None else 32) * 12
    assert {path.stem for path in (tmp_path / "plots").iterdir()} == {"speed", "acceptance", "length", "context"}


def test_without_a_draft_model_there_are_plain_and_auto(
    localspec: Localspec, tiny_models: TinyModels, prompts: Path, tmp_path: Path
):
    alone = ["bench", "--target", tiny_models.target, "--ctx", 256, "--threads", 1, "--workload", prompts]
    localspec(*alone, *SHORT, "--json", "out.json", check=0)
    runs = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["runs"]
    assert {(run["contender"], run["mode"]) for run in runs} == {("plain", "plain"), ("auto", "lookup")}
    refused = localspec(*alone, *SHORT, "--mode", "draft:4", check=2)
    assert b"needs a draft model" in refused.stderr


def test_a_draft_model_that_nobody_uses_is_not_loaded(localspec: Localspec, bench: list[object], tmp_path: Path):
    localspec(*bench, *SHORT, "--mode", "lookup", "--json", "out.json", check=0)
    assert json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["pair"]["draft"] is None


def test_prompts_are_chosen_by_kind_and_name(localspec: Localspec, bench: list[object], tmp_path: Path):
    localspec(*bench, *SHORT, "--mode", "plain", "--kind", "code", "--json", "out.json", check=0)
    runs = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["runs"]
    assert {run["workload"] for run in runs} == {"loop"}
    assert b"chat, code" in localspec(*bench, "--kind", "poem", check=2).stderr
    assert b"lake, loop" in localspec(*bench, "--only", "sea", check=2).stderr


def test_a_text_file_is_one_prompt(localspec: Localspec, tiny: list[object], tmp_path: Path):
    (tmp_path / "mine.txt").write_text("Tell me\nof the sea.\n", encoding="utf-8")
    done = localspec("bench", *tiny, *SHORT, "--workload", "mine.txt", "--mode", "plain", check=0)
    assert b"own/mine" in done.stdout


def test_sampling_is_what_the_configuration_says(localspec: Localspec, bench: list[object], tmp_path: Path):
    (tmp_path / "c.toml").write_text("num_speculative_tokens = 3\n[sampling]\ntop_k = 7\ntemperature = 0.3\nseed = 9\n")
    localspec("--config", "c.toml", *bench, *SHORT, "--json", "out.json", check=0)
    document = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert document["settings"]["sampling"]["top_k"] == 7
    assert document["settings"]["num_speculative_tokens"] == 3
    assert {(run["temperature"], run["seed"]) for run in document["runs"]} == {(0.0, 1)}


def test_a_tuned_profile_is_not_measured_unseen(
    localspec: Localspec,
    bench: list[object],
    tmp_path: Path,
    tiny_models: TinyModels,
    monkeypatch: pytest.MonkeyPatch,
    home: Path,
):
    stored(tiny_models.target, tiny_models.draft, monkeypatch, home, lookup_min_ngram=7, lookup_max_ngram=8)
    done = localspec(*bench, *SHORT, "--mode", "auto", "--json", "out.json", check=0)
    document = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert document["settings"]["num_speculative_tokens"] is None
    assert document["pair"]["lookup_ngram"] == [2, 4]
    assert b"drafts of at most 16 tokens, copies of at most 32, in modes that choose" in done.stdout
    assert b"tuned" not in done.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--mode", "fast"], "'fast'"),
        (["--mode", "auto:3"], "auto"),
        (["--mode", "draft:0..99"], "99"),
        (["--temperature", "warm"], "'warm'"),
        (["--temperature", "0,-1"], "-1"),
        (["--temperature", "nan"], "nan"),
        (["--context", "1k"], "'1k'"),
        (["--context", "512"], "--ctx 512"),
        (["--context", "20"], "chat/lake does not fit a context of 20"),
        (["--workload", "nowhere.jsonl"], "nowhere.jsonl"),
        (["--json", "no/such/folder.json"], "no/such/folder.json"),
        (["--markdown", "."], "--markdown"),
        (["--plots", "prompts.jsonl"], "not a folder"),
        (["--repetitions", "0"], "--repetitions"),
    ],
)
def test_what_cannot_be_measured_is_said_first(localspec: Localspec, bench: list[object], args: list[str], words: str):
    done = localspec(*bench, *SHORT, *args, check=2)
    assert words in done.stderr.decode()
    assert not done.stdout


def test_a_failed_run_names_its_cell_and_loses_nothing(
    localspec: Localspec, bench: list[object], prompts: Path, tmp_path: Path
):
    with prompts.open("a", encoding="utf-8") as file:
        file.write("\n" + json.dumps({"kind": "rag", "name": "long", "prompt": "x" * 300}))
    files = ["--json", "out.json", "--markdown", "out.md"]
    done = localspec(*bench, *SHORT, "--mode", "draft", *files, check=4)
    assert b"on rag/long, temperature 0, repetition 1: The prompt has" in done.stderr
    assert b"Speed, temperature 0" in done.stdout
    assert b"Ended by an error after 4 of 6 replies" in done.stdout
    assert len(json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["runs"]) == 4
    assert "Ended by an error" in (tmp_path / "out.md").read_text(encoding="utf-8")


@contextmanager
def running(args: list[object], environment: dict[str, str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A bench that would take minutes, once it has measured a few replies."""
    process = subprocess.Popen(
        [sys.executable, "-m", "localspec", "-v", *map(str, args), "--repetitions", "1000"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env=environment,
        cwd=folder,
    )
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if "run 9 of" in line:
            break
    assert process.poll() is None, "".join(seen)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_ctrl_c_reports_what_was_measured(bench: list[object], environment: dict[str, str], tmp_path: Path):
    files = ["--json", "out.json", "--markdown", "out.md", "--plots", "plots"]
    with running([*bench, *SHORT[2:], *files], environment, tmp_path) as process:
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr
    assert "Stopped after" in stdout
    assert "Speed, temperature 0" in stdout
    document = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert not document["complete"]
    assert 9 <= len(document["runs"]) < document["n_runs_planned"] == 4 * 2 * 1000
    assert "Stopped after" in (tmp_path / "out.md").read_text(encoding="utf-8")
    assert (tmp_path / "plots" / "speed.svg").exists()


def test_ctrl_c_before_anything_is_complete(bench: list[object], environment: dict[str, str], tmp_path: Path):
    """With many modes the first round has not ended: there are runs, and no figures."""
    sweep = ["--mode", "draft:0..12", "--json", "out.json", "--markdown", "out.md", "--plots", "plots"]
    with running([*bench, "--temperature", 0, "--max-tokens", 100, *sweep], environment, tmp_path) as process:
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr
    document = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert len(document["runs"]) >= 9
    if len(document["runs"]) < 14:
        assert document["figures"] == []
        assert "0 of 2000, in 0 of 2 cells" in stdout


@pytest.mark.skipif(os.name != "posix", reason="stops a process by signal")
def test_a_second_ctrl_c_does_not_wait_for_the_engine(bench: list[object], environment: dict[str, str], tmp_path: Path):
    with running([*bench, *SHORT[2:], "--json", "out.json"], environment, tmp_path) as process:
        (engine,) = psutil.Process(process.pid).children()
        engine.suspend()  # as one in a very long forward pass
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)  # it waits for the step to end
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=30)
        assert time.monotonic() - started < 15
        assert process.returncode == 130, stderr
        assert "Traceback" not in stderr
        engine.wait(10)  # raises while there is one


def test_a_pipe_that_closes_costs_no_file(bench: list[object], environment: dict[str, str], tmp_path: Path):
    process = subprocess.Popen(
        [sys.executable, "-m", "localspec", *map(str, [*bench, *SHORT]), "--json", "out.json"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        cwd=tmp_path,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    stderr = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) == 1
    assert b"Traceback" not in stderr
    assert json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["complete"]


def test_a_full_disk_costs_no_table(localspec: Localspec, bench: list[object]):
    done = localspec(*bench, *SHORT, "--mode", "plain", "--json", "/dev/full", check=4)
    assert b"No space left" in done.stderr
    assert b"Speed, temperature 0" in done.stdout


def test_a_full_disk_costs_no_other_file(localspec: Localspec, bench: list[object], tmp_path: Path):
    localspec(*bench, *SHORT, "--mode", "plain", "--json", "/dev/full", "--markdown", tmp_path / "report.md", check=4)
    assert "Speed, temperature 0" in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_the_shells_own_files_can_be_written(localspec: Localspec, bench: list[object]):
    done = localspec(*bench, *SHORT, "--mode", "plain", "--json", "/dev/stdout", check=0)
    assert b'"complete": true' in done.stdout


def test_a_link_to_a_file_that_is_not_there_yet_is_written_through(
    localspec: Localspec, bench: list[object], tmp_path: Path
):
    link, file = tmp_path / "link", tmp_path / "real.json"
    link.symlink_to(file)
    localspec(*bench, *SHORT, "--mode", "plain", "--json", link, check=0)
    assert link.is_symlink()
    assert json.loads(file.read_text(encoding="utf-8"))["complete"]


def test_what_is_read_is_not_overwritten(localspec: Localspec, bench: list[object], tmp_path: Path):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "Hello"}\n')
    target = Path(str(bench[bench.index("--target") + 1]))
    before = target.stat()
    for file in (prompts, target, tmp_path / "links to it"):
        if not file.exists():
            file.symlink_to(target)
        done = localspec(*bench, "--workload", prompts, "--json", file, check=2)
        assert b"--json" in done.stderr
    assert prompts.read_text() == '{"prompt": "Hello"}\n'
    assert (target.stat().st_size, target.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    same = tmp_path / "out"
    assert b"is the file of --json" in localspec(*bench, "--json", same, "--markdown", same, check=2).stderr
    assert not same.exists()


def test_help_names_every_option(home: Path, tmp_path: Path):
    shown = run_localspec(["bench", "--help"], home, tmp_path).stdout.decode()
    for option in ("--mode", "--workload", "--kind", "--only", "--context", "--profile", "--json", "--plots"):
        assert option in shown
    assert "--no-profile" not in shown  # what `tune` stored is another thing, and no part of this
