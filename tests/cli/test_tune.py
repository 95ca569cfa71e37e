"""`localspec tune` as a process, and what the other commands make of the profile that it stores."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from localspec.bench.profile import Profile
from localspec.bench.records import read_record
from localspec.cli.main import run
from localspec.cli.tune import _budget_s
from localspec.engine.requests import Mode
from localspec.errors import DiskFullError, EngineError, UsageError
from tests.bench.tune_engine import ScriptedEngine
from tests.cli.conftest import Localspec, run_localspec, stored
from tests.native_fixtures import TinyModels
from tests.tiny_models import write_tiny_model

pytestmark = pytest.mark.native

USED = "Settings as tuned on "


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    file = tmp_path / "prompts.jsonl"
    prompts = ["Hello", "aaa bbb aaa bbb aaa", "One, two, three"]
    file.write_text("".join(json.dumps({"prompt": text, "name": str(i)}) + "\n" for i, text in enumerate(prompts)))
    return file


@pytest.fixture
def quick(tiny: list[object], workload: Path) -> list[object]:
    return [*tiny, "--workload", workload, "--budget", "60s"]


@pytest.fixture
def profiles(home: Path) -> Path:
    return home / "data" / "profiles"


# --- tuning ----------------------------------------------------------------------------------------------------------


def test_it_shows_the_evidence_and_stores_what_generate_then_uses(
    localspec: Localspec, quick: list[object], tiny: list[object], profiles: Path
):
    done = localspec("tune", *quick, check=0)
    text = done.stdout.decode()
    for words in ("change", "auto mode", "Best settings:", "threads", "(set by you)", "Why: ", f"Stored in {profiles}"):
        assert words in text
    assert b"auto mode" in done.stderr
    (file,) = profiles.iterdir()
    mode = read_record(file, Profile).settings.mode
    used = localspec("generate", *tiny, "-n", 3, "Hello", check=0).stderr.decode()
    assert USED in used
    assert f"mode {mode}" in used


def test_json_is_one_object_with_the_profile(localspec: Localspec, quick: list[object], profiles: Path):
    done = localspec("tune", *quick, "--json", "--temperature", 0, "--temp", 1.5, check=0)
    answer = json.loads(done.stdout)
    assert done.stdout.count(b"\n") == 1
    (file,) = profiles.iterdir()
    assert (answer["decided"], answer["interrupted"], answer["stored_in"]) == (True, False, [str(file)])
    assert answer["profile"] == json.loads(file.read_text())
    findings = answer["profile"]["findings"]
    assert findings["temperatures"] == [0.0, 1.5]
    assert findings["workloads"] == ["own/0", "own/1", "own/2"]
    assert findings["seconds"] < 60
    first = findings["comparisons"][0]
    assert first["change"] == "auto mode"
    assert first["n_pairs"] >= 3
    assert first["ratio"] > 0


def test_a_dry_run_stores_nothing(localspec: Localspec, quick: list[object], profiles: Path):
    done = localspec("tune", *quick, "--dry-run", check=0)
    assert b"Not stored" in done.stdout
    assert not profiles.exists()


def test_other_drafts_are_tried_and_one_that_does_not_fit_is_told(
    localspec: Localspec, tiny_models: TinyModels, workload: Path, tmp_path: Path
):
    write_tiny_model(tmp_path / "foreign.gguf", extra_tokens=300)
    pair = ["--target", tiny_models.target, "--ctx", 256, "--threads", 1, "--workload", workload, "--budget", "60s"]
    drafts = ["--try-draft", tiny_models.draft, "--try-draft", "foreign.gguf"]
    done = localspec("tune", *pair, *drafts, "--try-kv-type", "q8_0", "--json", "--dry-run", check=0)
    by_change = {each["change"]: each for each in json.loads(done.stdout)["profile"]["findings"]["comparisons"]}
    tried = next(each for change, each in by_change.items() if "draft.gguf" in change)
    assert tried["n_pairs"] >= 3
    refused = next(each for change, each in by_change.items() if "foreign.gguf" in change)
    assert refused["verdict"] == "cannot be used"
    assert "559" in refused["note"]
    assert "q8_0 for the target's KV cache" in by_change


def test_ctrl_c_keeps_what_was_decided(
    environment: dict[str, str], quick: list[object], profiles: Path, tiny_models: TinyModels
):
    command = [sys.executable, "-m", "localspec", "tune", *map(str, quick), "--budget", "1h", "--json"]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    assert process.stderr is not None
    while b"auto mode" not in (line := process.stderr.readline()):  # the first comparison is decided then
        assert b"Other programs" in line, line  # on a busy machine
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr.decode()
    assert b"Traceback" not in stderr
    answer = json.loads(stdout)
    assert (answer["decided"], answer["interrupted"]) == (True, True)
    assert [Path(each) for each in answer["stored_in"]] == list(profiles.iterdir())


def test_a_setting_for_everything_leaves_nothing_to_try(
    localspec: Localspec, tiny_models: TinyModels, workload: Path, tmp_path: Path
):
    (tmp_path / "c.toml").write_text('mode = "draft"\n')
    pair = ["--target", tiny_models.target, "--draft", tiny_models.draft, "--ctx", 256, "--threads", 1]
    done = localspec("--config", "c.toml", "tune", *pair, "--workload", workload, "--budget", "60s", check=2)
    assert b"all that could be faster is set by you" in done.stderr


class FailingEngine(ScriptedEngine):
    """Fails for good after some replies; nothing of it needs a model."""

    def __enter__(self) -> FailingEngine:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("is_full", [False, True])
def test_an_error_after_minutes_costs_nothing_that_was_found(
    tiny_models: TinyModels,
    workload: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_full: bool,
):
    engine = FailingEngine(lambda pair, request: 0.0001 if request.mode is Mode.PLAIN else 0.00005)
    engine.unrunnable = lambda request: len(engine.requests) > 40 and not is_full
    monkeypatch.setattr("localspec.engine.client.EngineClient", lambda: engine)
    monkeypatch.setenv("LOCALSPEC_HOME", str(home))
    if is_full:
        home.mkdir()
        (home / "data").write_text("a file where the folder belongs")
    args = ["tune", "--target", tiny_models.target, "--draft", tiny_models.draft, "--workload", workload, "--json"]
    monkeypatch.setattr(sys, "argv", ["localspec", *map(str, args)])
    with pytest.raises(SystemExit) as ended:
        run()
    shown = capsys.readouterr()
    answer = json.loads(shown.out)
    assert answer["decided"]
    assert answer["profile"]["findings"]["comparisons"][0]["verdict"] == "kept"
    assert answer["profile"]["settings"]["mode"] == "auto"
    if is_full:
        assert ended.value.code == DiskFullError.exit_code
        assert answer["stored_in"] == []
        assert "cannot be written" in answer["error"]
    else:
        assert ended.value.code == EngineError.exit_code
        assert [Path(each) for each in answer["stored_in"]] == list((home / "data" / "profiles").iterdir())
        assert answer["error"] == "It fails."
    assert answer["error"] in shown.err


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["--budget", "soon"], 2, "--budget is 'soon'"),
        (["--budget", "0"], 2, "--budget"),
        (["--budget", "25h"], 2, "24 hours"),
        (["--budget", "-1"], 2, "--budget"),
        (["--budget", "0.001s"], 2, "budget"),
        (["--temperature", "hot"], 2, "temperature"),
        (["--temperature", "nan"], 2, "temperature"),
        (["--try-threads", 0], 2, "try-threads"),
        (["--try-kv-type", "q3"], 2, "try-kv-type"),
        (["--try-draft", "none.gguf"], 3, "none.gguf does not exist"),
        (["--workload", "none.jsonl"], 2, "none.jsonl"),
        (["--draft", "none.gguf"], 3, "none.gguf does not exist"),
        (["--ctx", 16], 4, "context holds 16"),
    ],
)
def test_bad_input(
    localspec: Localspec, quick: list[object], profiles: Path, args: list[object], code: int, words: str
):
    done = localspec("tune", *quick, *args, check=code)
    assert words in done.stderr.decode()
    assert done.stdout == b""
    assert not profiles.exists()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5", 300), ("0.5", 30), ("2m", 120), ("1.5min", 90), ("90s", 90), (" 90 s ", 90), ("1h", 3600), ("24h", 86_400)],
)
def test_forms_of_a_budget(text: str, seconds: float):
    assert _budget_s(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "5x", "5 5", "1e9", "nan", "inf", "-5", "+5", "5.", "٥", "24.1h", "9999999"])
def test_what_is_no_budget(text: str):
    with pytest.raises(UsageError, match="--budget is"):
        _budget_s(text)


# --- using a profile -------------------------------------------------------------------------------------------------


@pytest.fixture
def ask(home: Path, tmp_path: Path, tiny_models: TinyModels):
    """Asks the tiny pair for a few tokens; returns what --json says, and stderr."""
    pair = ["--target", tiny_models.target, "--draft", tiny_models.draft, "--ctx", 256]

    def ask(*args: object, models: list[object] = pair, **variables: str) -> tuple[dict[str, Any], str]:
        done = run_localspec(
            ["generate", *models, "--json", "-n", 4, *args, "Hello"], home, tmp_path, variables=variables
        )
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout), done.stderr.decode()

    return ask


def test_flags_environment_and_file_go_before_the_profile(
    ask: Any, tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch, home: Path
):
    stored(tiny_models.target, tiny_models.draft, monkeypatch, home)
    answer, stderr = ask()
    assert (answer["mode"], answer["num_speculative_tokens"], answer["fixed_length"]) == ("draft", 3, True)
    assert stderr.count("\n") == 2  # the word about the profile, and the speed
    assert "Settings as tuned on 2026-11-30: mode draft, num speculative tokens 3, fixed length" in stderr
    answer, stderr = ask("--mode", "lookup")
    assert "mode" not in stderr.split(USED)[-1].split(";")[0], "what the user has set was not tuned"
    assert (answer["mode"], answer["fixed_length"], answer["num_speculative_tokens"]) == ("lookup", False, None)
    answer, _ = ask(LOCALSPEC_NUM_SPECULATIVE_TOKENS="7")
    assert (answer["mode"], answer["fixed_length"], answer["num_speculative_tokens"]) == ("auto", False, 7)
    (home / "config").mkdir()
    (home / "config" / "config.toml").write_text("num_speculative_tokens = 9\n")
    assert ask()[0]["num_speculative_tokens"] == 9


def test_without_profile_it_is_as_if_there_were_none(
    ask: Any, tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch, home: Path
):
    stored(tiny_models.target, tiny_models.draft, monkeypatch, home)
    answer, stderr = ask("--no-profile")
    assert (answer["mode"], answer["num_speculative_tokens"], answer["fixed_length"]) == ("auto", None, False)
    assert "tuned" not in stderr


def test_a_stale_or_damaged_profile_is_ignored_with_one_line(
    ask: Any, tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch, home: Path
):
    file = stored(tiny_models.target, tiny_models.draft, monkeypatch, home)
    content = json.loads(file.read_text())
    content["basis"]["build"]["version"] = "0.3.35"
    file.write_text(json.dumps(content))
    answer, stderr = ask()
    assert answer["mode"] == "auto"
    line = (
        "The tuned profile of this pair was made with llama-cpp-python 0.3.35 and is ignored; run localspec tune again."
    )
    assert line in stderr.splitlines()
    assert USED not in stderr
    file.write_text("{}")
    answer, stderr = ask()
    assert answer["mode"] == "auto"
    assert f"The tuned profile {file} is damaged (" in stderr
    assert "tuned" not in ask("--no-profile")[1]


def test_a_profile_brings_its_draft_along_where_none_is_named(
    ask: Any, tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch, home: Path
):
    stored(tiny_models.target, tiny_models.draft, monkeypatch, home, is_named=False)
    alone = ["--target", tiny_models.target, "--ctx", 256]
    answer, _ = ask(models=alone)
    assert answer["model"] == {"target": "target", "draft": "draft"}
    assert answer["metrics"]["n_drafted"] > 0
    assert ask("--no-profile", models=alone)[0]["model"]["draft"] is None


def test_what_is_tuned_is_loaded(ask: Any, tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch, home: Path):
    """A profile of plain mode does without the draft model."""
    stored(tiny_models.target, tiny_models.draft, monkeypatch, home, mode="plain", fixed_length=False)
    answer, stderr = ask()
    assert (answer["mode"], answer["model"]["draft"]) == ("plain", None)
    assert "mode plain" in stderr
