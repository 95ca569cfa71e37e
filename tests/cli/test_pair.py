"""`localspec pair` as a process: verdicts and exit codes, searching, picking, measuring, and names that lie."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import run_localspec
from tests.hub.server import FakeHub, Padded
from tests.memory.shape_models import dense
from tests.memory.shapes import write_shape
from tests.models.gguf_bytes import name
from tests.models.small_models import TOKENS, write_model
from tests.native_fixtures import TinyModels

CARD = ("--gpu-memory", 12, "--ctx", 4096)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    write_shape(root / "Big.gguf", dense("llama", 28, 3584, 28, 4, 128, 18944, 3000, 32768), "q8_0", tokens=True)
    write_shape(root / "Small.gguf", dense("llama", 12, 1024, 8, 2, 128, 2048, 3000, 32768), "q8_0", tokens=True)
    write_shape(root / "Stranger.gguf", dense("llama", 12, 1024, 8, 2, 128, 2048, 2000, 32768), "q8_0", tokens=True)
    return root


@pytest.fixture
def server(folder: Path) -> Iterator[FakeHub]:
    with FakeHub().running() as hub:
        for stem in ("Big", "Small"):
            path = folder / f"{stem}.gguf"
            with path.open("rb") as file:
                body = Padded(file.read(1 << 20), path.stat().st_size)
            hub.add_files(f"owner/{stem}-GGUF", {f"{stem}-Q8_0.gguf": body, f"{stem}-Q4_K_M.gguf": Padded(b"", 10**8)})
        yield hub


class Pair:
    """Runs the command; no failure may show a traceback."""

    def __init__(self, home: Path, folder: Path, variables: dict[str, str]) -> None:
        self.home, self.folder, self.variables = home, folder, variables

    def __call__(self, *args: object, code: int = 0, command: str = "pair") -> subprocess.CompletedProcess[bytes]:
        done = run_localspec([command, *args], self.home, self.folder, variables=self.variables)
        assert done.returncode == code, (done.stdout.decode(), done.stderr.decode())
        return done

    def json(self, *args: object, code: int = 0) -> Any:
        return json.loads(self(*args, "--json", code=code).stdout)


@pytest.fixture
def pair(home: Path, folder: Path, tmp_path: Path) -> Pair:
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf"), "HF_TOKEN": ""}
    return Pair(home, folder, offline)


@pytest.fixture
def online(pair: Pair, server: FakeHub) -> Pair:
    pair.variables |= {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": server.endpoint}
    return pair


def test_one_pair_is_judged_in_words_and_by_the_exit_code(pair: Pair):
    said = pair("Big.gguf", "--draft", "Small.gguf", *CARD).stdout.decode()
    assert "Small can draft for Big: identical." in said
    assert "Fits" in said
    assert "tokens/s without drafts, where memory is read at" in said
    said = pair("Big.gguf", "--draft", "Stranger.gguf", *CARD, code=3).stdout.decode()
    assert "cannot draft" in said
    assert "3,000" in said
    assert "2,000" in said


def test_the_verdict_as_json(pair: Pair):
    answer = pair.json("Big.gguf", "--draft", "Small.gguf", *CARD)
    assert answer["verdict"] == "identical"
    assert answer["reasons"] == []
    assert answer["fits"] is True
    assert answer["memory"]["choice"]["n_ctx"] == answer["n_ctx"] == 4096
    assert answer["memory"]["target"]["kv_bytes"] > 0
    assert answer["predicted"]["speedup"] >= 1
    refused = pair.json("Big.gguf", "--draft", "Stranger.gguf", *CARD, code=3)
    assert refused["verdict"] == "refused"
    assert refused["memory"] is None
    assert {"rule", "target", "draft", "text", "hint"} == refused["reasons"][0].keys()


def test_vocabulary_files_are_judged_like_models(pair: Pair):
    vocab = next((Path(__file__).parents[1] / "data" / "vocab").glob("*.gguf"))
    assert pair.json(vocab, "--draft", vocab)["verdict"] == "identical"
    assert pair.json(vocab, "--draft", "Small.gguf", code=3)["verdict"] == "refused"


def test_an_empty_list_explains_itself(pair: Pair):
    said = pair("Big.gguf", *CARD).stdout.decode()
    assert "No draft was found" in said
    assert "--mode lookup" in said


def test_drafts_here_are_ranked_and_the_best_is_picked(pair: Pair, home: Path, folder: Path):
    pair.variables["LOCALSPEC_MODELS_DIR"] = str(folder)
    said = pair("Big.gguf", *CARD, "--pick", "mine")
    assert "Small.gguf" in said.stdout.decode()
    assert "Saved as pair mine" in said.stderr.decode()
    saved = tomllib.loads((home / "config" / "config.toml").read_text())
    assert saved["pair"] == "mine"
    assert saved["pairs"]["mine"]["target"] == str(folder / "Big.gguf")
    assert saved["pairs"]["mine"]["draft"] == str(folder / "Small.gguf")
    assert saved["pairs"]["mine"]["ctx"] == 4096
    again = pair("Big.gguf", "--draft", "Small.gguf", "--ctx", 2048, "--pick", "mine", code=2)
    assert "has a pair named mine already" in again.stderr.decode()
    pair("Big.gguf", "--draft", "Small.gguf", "--ctx", 2048, "--pick", "mine", "--replace")


def test_a_saved_pair_stands_for_its_target_and_its_draft_is_among_the_drafts(pair: Pair, home: Path, tmp_path: Path):
    """Wherever its draft lies: here in a folder where nobody looks."""
    (home / "config").mkdir(parents=True)
    folder = pair.folder
    (home / "config" / "config.toml").write_text(
        f'[pairs.mine]\ntarget = "{folder / "Big.gguf"}"\ndraft = "{folder / "Small.gguf"}"\nctx = 2048\n'
        f'[pairs.broken]\ntarget = "{folder / "Big.gguf"}"\ndraft = "{folder / "gone.gguf"}"\n'
    )
    answer = pair.json("mine", "--gpu-memory", 12)
    assert answer["n_ctx"] == 2048
    assert [Path(each["draft"]["path"]).name for each in answer["drafts"]] == ["Small.gguf"]
    pair.variables["LOCALSPEC_MODELS_DIR"] = str(folder)  # found in two ways, and judged once
    assert [Path(each["draft"]["path"]).name for each in pair.json("mine")["drafts"]] == ["Small.gguf"]
    assert pair.json("mine", "--draft", "Stranger.gguf", code=3)["verdict"] == "refused"
    assert any("gone.gguf" in note for note in pair.json("broken", "--gpu-memory", 12)["notes"])


def test_the_second_time_no_header_is_transferred(online: Pair, server: FakeHub):
    asked = ("owner/Big-GGUF:Q8_0", "--draft", "owner/Small-GGUF:Q8_0", *CARD)
    first = online.json(*asked)
    sent = server.n_sent
    assert first["target"]["header_bytes"] > 0
    assert first["draft"]["header_bytes"] > 0
    second = online.json(*asked)
    assert online.json("owner/Big-GGUF:Q8_0", *CARD)["target"]["header_bytes"] == 0
    assert server.n_sent == sent
    assert second["target"] == first["target"] | {"header_bytes": 0}
    assert second["draft"] == first["draft"] | {"header_bytes": 0}
    for key in ("verdict", "reasons", "warnings", "fits"):
        assert second[key] == first[key]


def test_what_is_refused_is_not_picked(pair: Pair, home: Path):
    said = pair("Big.gguf", "--draft", "Stranger.gguf", *CARD, "--pick", "mine", code=3)
    assert "no draft to pick" in said.stderr.decode()
    assert not (home / "config" / "config.toml").exists()


def test_models_on_the_hub_are_judged_by_their_headers(online: Pair, server: FakeHub):
    answer = online.json("owner/Big-GGUF:Q8_0", "--draft", "owner/Small-GGUF:Q8_0", *CARD)
    assert answer["verdict"] == "identical"
    assert answer["draft"]["download_bytes"] > 10**8 > answer["draft"]["header_bytes"] > 0
    assert answer["target"]["reference"] == "owner/Big-GGUF:Q8_0"
    missing = online("owner/Big-GGUF:Q3_K_S", code=3)
    assert "Q8_0" in missing.stderr.decode(), "what there is instead"


def test_a_repository_without_a_quantization_gets_the_best_that_fits(online: Pair):
    saved = online("Big.gguf", "--draft", "owner/Small-GGUF:Q8_0", *CARD, "--pick", "mine")
    assert "Saved" in saved.stderr.decode()
    assert "owner/Small-GGUF:Q8_0" in (online.home / "config" / "config.toml").read_text()


def test_offline_says_so(pair: Pair):
    said = pair("owner/Big-GGUF:Q8_0", "--offline", code=1).stderr.decode()
    assert "offline" in said


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("no such name",), "names no model"),
        (("qwen2.5-codr-32b",), "Did you mean"),
        (("none.gguf",), "does not exist"),
        (("--draft", "x.gguf"), "Which target"),
    ],
)
def test_what_cannot_be_judged(pair: Pair, args: tuple[str, ...], words: str):
    done = run_localspec(["pair", *args], pair.home, pair.folder, variables=pair.variables)
    assert done.returncode in {2, 3}
    assert words in done.stderr.decode()


def test_suggestions_fit_the_card_that_is_named(pair: Pair):
    small, large = (pair.json("--gpu-memory", size) for size in (8, 24))
    assert small
    assert all(each["n_bytes"] < 8 * 2**30 and each["drafts"] for each in small)
    assert max(each["n_bytes"] for each in large) > max(each["n_bytes"] for each in small)
    assert "localspec pair TARGET" in pair("--gpu-memory", 8).stdout.decode()
    assert "embedded pair" in pair("--gpu-memory", 0.1).stdout.decode()


def test_names_in_headers_cannot_steer_a_terminal(pair: Pair, tmp_path: Path):
    evil = "\x1b[2J\x1b]0;owned\x07[bold]x[/bold]"
    target = write_model(tmp_path / "t.gguf", name("general.name", evil), tokens=[*TOKENS, evil])
    draft = write_model(tmp_path / "d.gguf", name("general.name", evil), tokens=[*TOKENS, "x"])
    done = pair(target, "--draft", draft, code=3)
    shown = done.stdout + done.stderr
    assert not re.search(rb"[\x00-\x08\x0b-\x1f\x7f]", shown)


@pytest.mark.native
def test_measuring_stores_a_speed_that_is_shown_from_then_on(pair: Pair, tiny_models: TinyModels, home: Path):
    files = (tiny_models.target, "--draft", tiny_models.draft, "--ctx", 512)
    assert pair.json(*files)["measured"] is None
    done = pair(*files, "--measure", "--json")
    assert done.stderr.decode().splitlines()[-1] == "Measuring draft.gguf (1 of 1)"
    speed = json.loads(done.stdout)["measured"]
    assert speed["plain_tokens_per_s"] > 0
    assert speed["low"] <= speed["speedup"] <= speed["high"]
    assert speed["n_prompts"] >= 1
    assert pair.json(*files)["measured"] == speed
    assert "Measured here on" in pair(*files).stdout.decode()
    (stored,) = (home / "data" / "speeds").iterdir()
    stored.write_text("{}")
    assert pair.json(*files)["measured"] is None, "a damaged record counts as none"


@pytest.mark.native
def test_a_pair_by_name_is_downloaded_where_a_file_is_wanted(
    pair: Pair, tiny_models: TinyModels, server: FakeHub, tmp_path: Path
):
    """Everywhere a model can be named, not only here."""
    server.add_files("tiny/T-GGUF", {"T-F32.gguf": tiny_models.target.read_bytes()})
    server.add_files("tiny/D-GGUF", {"D-F32.gguf": tiny_models.draft.read_bytes()})
    server.add_files("tiny/S-GGUF", {"S-F32.gguf": tiny_models.stranger.read_bytes()})
    pair.variables |= {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": server.endpoint}
    files = ("--target", "tiny/T-GGUF:F32", "--draft", "tiny/D-GGUF:F32")
    rest = ("--ctx", 256, "--temp", 0, "--max-tokens", 8, "--raw", "abc")
    first = pair(*files, *rest, command="generate")
    assert "Downloading tiny/T-GGUF:F32" in first.stderr.decode()
    second = pair(*files, *rest, command="generate")
    assert "Downloading" not in second.stderr.decode()
    assert second.stdout == first.stdout
    pair.variables["HF_HUB_OFFLINE"] = "1"
    assert pair(*files, *rest, command="generate").stdout == first.stdout
    assert "offline mode" in pair("--target", "tiny/S-GGUF:F32", *rest, command="generate", code=1).stderr.decode()


def test_names_as_the_list_of_models_shows_them_and_files_of_other_programs(
    pair: Pair, tmp_path: Path, tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
):
    """A name from models.toml finds the file that LM Studio has of the same repository; so does its short name."""
    root = tmp_path / "user"
    folder = root / ".lmstudio" / "models" / "lmstudio-community" / "Meta-Llama-3.1-8B-Instruct-GGUF"
    folder.mkdir(parents=True)
    (folder / "Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf").symlink_to(tiny_models.target)
    (folder / "Draft-Q4_K_M.gguf").symlink_to(tiny_models.draft)
    pair.variables["HOME"] = str(root)
    shown = json.loads(pair("--json", command="models").stdout)
    names = {each["name"] for each in shown["models"]}
    assert len(names) == 2
    for name_ in ("llama-3.1-8b", "Meta-Llama-3.1-8B-Instruct-Q4_K_M", *names):
        answer = pair.json(name_, "--draft", tiny_models.draft, "--ctx", 256)
        assert answer["target"]["path"] is not None, name_
        assert answer["target"]["download_bytes"] == 0
    plan = json.loads(pair("--target", "llama-3.1-8b", "--ctx", 256, "--json", command="plan").stdout)
    assert plan["fits"]
    pair("--target", "llama-3.1-8b", "--ctx", 128, "--max-tokens", 2, "--raw", "x", command="generate")


def test_what_does_not_fit_is_neither_picked_nor_fetched(pair: Pair, home: Path, folder: Path):
    pair.variables["LOCALSPEC_MODELS_DIR"] = str(folder)
    said = pair("Big.gguf", "--gpu-memory", 3, "--ctx", 4096, "--pick", "mine", code=4)
    assert "does not fit beside" in said.stderr.decode()
    assert "no room for a draft" in said.stdout.decode()
    assert "localspec pull" not in said.stdout.decode()
    assert not (home / "config" / "config.toml").exists()


def test_a_quantization_that_fits_is_offered_for_a_target_that_does_not(online: Pair, server: FakeHub):
    shown = online("owner/Big-GGUF:Q8_0", "--gpu-memory", 3, "--draft", "owner/Small-GGUF:Q8_0", "--ctx", 4096)
    assert "Whole on this machine would be of owner/Big-GGUF: Q4_K_M (100 MB)" in shown.stdout.decode()


def test_a_machine_that_is_not_here_is_not_measured(pair: Pair):
    said = pair("Big.gguf", "--draft", "Small.gguf", "--gpu-memory", 24, "--measure", code=2)
    assert "Leave one out" in said.stderr.decode()


def test_names_that_are_listed_come_before_the_hub(
    online: Pair, server: FakeHub, tmp_path: Path, tiny_models: TinyModels
):
    """Whatever the Hub has under the same name is somebody else's."""
    own = tmp_path / "own"
    for folder in ("owner", "other"):
        (own / folder).mkdir(parents=True)
        (own / folder / "Big-GGUF.gguf").write_bytes(tiny_models.target.read_bytes())
    (own / "qwen3-8b.gguf").write_bytes(tiny_models.draft.read_bytes())
    online.variables["LOCALSPEC_MODELS_DIR"] = str(own)
    for named in ("owner/Big-GGUF", "qwen3-8b"):
        answer = online.json(named, "--draft", own / "qwen3-8b.gguf")
        assert answer["target"]["path"].startswith(str(own)), named
    said = online("Big-GGUF", code=2).stderr.decode()
    assert "names 2 models" in said
    assert "owner/Big-GGUF" in said
    assert not server.n_sent


def test_json_is_one_ascii_document_whatever_files_are_called(pair: Pair, tmp_path: Path):
    own = tmp_path / "own"
    own.mkdir()
    evil = own / "\udcff\u202e\x1b[2J.gguf"
    write_model(evil, name("general.name", "\u009b2J\u202e"), tokens=[*TOKENS])
    pair.variables["LOCALSPEC_MODELS_DIR"] = str(own)
    for args, command in (((evil,), "pair"), (("--json",), "models")):
        shown = pair(*args, *(["--json"] if command == "pair" else []), command=command).stdout
        assert shown.isascii()
        assert b"\x1b" not in shown
        json.loads(shown)


def test_a_home_that_nobody_knows_is_no_bug(pair: Pair):
    pair.variables["LOCALSPEC_HOME"] = "~no-such-user-here/x"
    for command in (("pair",), ("plan", "--target", "x"), ("pull", "qwen3-8b"), ("models",)):
        done = run_localspec(command, pair.home, pair.folder, variables=pair.variables)
        assert done.returncode == 2, done.stderr
        assert b"bug" not in done.stderr


def test_a_terminal_without_the_signs_still_shows_the_rest(pair: Pair):
    pair.variables |= {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    assert b"can draft" in pair("Big.gguf", "--draft", "Small.gguf", *CARD).stdout
