"""`localspec models` and `localspec models rm`, as a process, and with a terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import clean_environment
from tests.models.gguf_bytes import name
from tests.models.local_models import cache_file, ollama_model, put, writer
from tests.models.small_models import model_bytes

HUB_VARIABLES = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME", "LLAMA_CACHE", "OLLAMA_MODELS")


class Machine:
    """A home of its own, with the folders of every program, and the command in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.own = root / "localspec" / "data" / "models"
        self.hub = root / ".cache" / "huggingface" / "hub"
        self.lm_studio = root / ".lmstudio" / "models"
        self.ollama = root / ".ollama" / "models"
        kept = {key: value for key, value in clean_environment(root / "localspec").items() if key not in HUB_VARIABLES}
        # Ollama's service has a folder outside of every home.
        self.environment = kept | {"HOME": str(root), "USERPROFILE": str(root), "OLLAMA_MODELS": str(self.ollama)}

    def command(self, *args: object) -> list[str]:
        return [sys.executable, "-m", "localspec", *map(str, args)]

    def run(self, *args: object, check: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(*args),
            input="",
            capture_output=True,
            text=True,
            env=self.environment | variables,
            cwd=self.root,
            timeout=60,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == check, done.stderr
        return done

    def listed(self, *args: object, **variables: str) -> dict[str, Any]:
        return json.loads(self.run("models", "--json", *args, **variables).stdout)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_list(machine: Machine) -> None:
    put(machine.own / "big-Q8_0.gguf", writer("Big", 800))
    cache_file(machine.hub, "owner/small-GGUF", "small-Q4_K_M.gguf", writer("Small", 8))
    put(machine.own / "mmproj.gguf", model_bytes(architecture="clip"))
    put(machine.own / "cut.gguf", writer("Cut")[:-1])
    done = machine.run("models")
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["NAME", "ARCH", "WEIGHTS", "SIZE", "QUANT", "CONTEXT", "LICENCE", "WHERE"]
    big = next(line for line in lines if line.startswith("big-Q8_0 "))
    assert big.split()[1:3] == ["llama", "800"]
    assert "4,096" in big
    assert " mit " in big
    assert lines[lines.index(big) + 1] == "    drafts: owner/small-GGUF:Q4_K_M"
    assert any(line.startswith("owner/small-GGUF:Q4_K_M ") and line.endswith("Hugging Face") for line in lines)
    assert "CANNOT BE READ" in lines
    assert any(line.startswith("  cut: ") and "is cut" in line for line in lines)
    assert "mmproj" not in done.stdout
    assert "And 1 file that is no model; see --all." in done.stderr


def test_all_shows_why_files_are_no_models(machine: Machine) -> None:
    put(machine.own / "mmproj.gguf", model_bytes(architecture="clip"))
    put(machine.own / "lora.gguf", model_bytes(name("general.type", "adapter")))
    done = machine.run("models", "--all")
    assert "mmproj: is the image encoder" in done.stdout
    assert "lora: is a LoRA adapter" in done.stdout
    assert "And 2 files that are no models" in machine.run("models").stderr


def test_json_has_everything(machine: Machine) -> None:
    put(machine.own / "big-Q8_0.gguf", writer("Big", 800))
    path = put(machine.lm_studio / "publisher" / "small" / "small-F32.gguf", writer("Small"))
    blob = ollama_model(machine.ollama, "registry.ollama.ai/library/tiny/1b", writer("Tiny", 4))
    put(machine.own / "mmproj.gguf", model_bytes(architecture="clip"))
    put(machine.own / "cut.gguf", writer("Cut")[:-1])
    found = machine.listed()
    by_name = {each["name"]: each for each in found["models"]}
    assert by_name["big-Q8_0"]["drafts"] == ["tiny:1b", "small-F32"]
    small = by_name["small-F32"]
    assert (small["path"], small["place"], small["repo"]) == (str(path), "LM Studio", "publisher/small")
    assert (small["title"], small["architecture"], small["n_parameters"]) == ("Small", "llama", 8)
    assert (small["quantization"], small["n_ctx_train"], small["licence"]) == ("F32", 4096, "mit")
    assert (small["bits_per_weight"], small["n_vocab"], small["drafts"]) == (32.0, 305, ["tiny:1b"])
    assert by_name["tiny:1b"]["path"] == str(blob)
    (other,) = found["not_models"]
    assert "image encoder" in other["reason"]
    (broken,) = found["unreadable"]
    assert "is cut" in broken["reason"]
    assert broken["hint"]
    assert {"place": "localspec", "path": str(machine.own), "exists": True} in found["folders"]


def test_an_empty_machine_is_told_where_was_looked(machine: Machine) -> None:
    done = machine.run("models")
    assert done.stdout == ""
    assert f"localspec: {machine.own} (not there)" in done.stderr
    assert "localspec pull" in done.stderr
    assert machine.listed()["models"] == []


def test_the_own_folder_is_a_setting(machine: Machine) -> None:
    put(machine.root / "elsewhere" / "a.gguf", writer("a"))
    config = put(machine.root / "localspec" / "config" / "config.toml", b'models_dir = "../../elsewhere"\n')
    assert [each["name"] for each in machine.listed()["models"]] == ["a"]
    assert machine.listed(LOCALSPEC_MODELS_DIR=str(machine.own))["models"] == []
    config.write_text("models_dir = 3")
    assert "models_dir is 3" in machine.run("models", check=2).stderr


def test_names_cannot_write_to_the_terminal(machine: Machine) -> None:
    raw = model_bytes(name("general.license", "\x1b[2J"), name("general.name", "\x1b[2J"))
    put(machine.own / "evil\x1b[2J.gguf", raw)
    put(machine.own / "worse\x1b[2J.gguf", raw[:-1])
    put(machine.own / "no\x1b[2J.gguf", model_bytes(architecture="clip"))
    done = machine.run("models", "--all")
    assert "\x1b" not in done.stdout + done.stderr
    assert "\x1b" not in machine.run("models", "rm", "--yes", "evil\x1b[2J").stderr


def test_a_thousand_files_are_listed_soon(machine: Machine) -> None:
    for number in range(1_000):
        put(machine.own / f"model-{number}.gguf", writer(str(number), 8 + number % 50))
    machine.run("models")
    started = time.perf_counter()
    done = machine.run("models")
    taken_s = time.perf_counter() - started
    print(f"{taken_s:.2f} s")
    assert done.stdout.count("localspec\n") == 1_000
    assert taken_s < 8  # 0.6 s where nothing else runs


# --- removing ---------------------------------------------------------------------------------------------------------


def test_rm_without_a_terminal_needs_yes(machine: Machine) -> None:
    path = put(machine.own / "a-Q8_0.gguf", writer("a"))
    done = machine.run("models", "rm", "a-Q8_0", check=2)
    assert "stdin is no terminal" in done.stderr
    assert "--yes" in done.stderr
    assert path.exists()
    done = machine.run("models", "rm", "a-Q8_0", "--yes")
    assert str(path) in done.stderr
    assert "to be freed" in done.stderr
    assert done.stdout == ""
    assert not path.exists()
    assert machine.listed()["models"] == []


def test_rm_of_what_is_not_there(machine: Machine) -> None:
    put(machine.own / "a-Q8_0.gguf", writer("a"))
    done = machine.run("models", "rm", "--yes", "a-Q8", check=2)
    assert "Did you mean a-Q8_0?" in done.stderr


@pytest.mark.parametrize("place", ["LM Studio", "Ollama"])
def test_rm_leaves_other_programs_alone(machine: Machine, place: str) -> None:
    if place == "Ollama":
        path, title = ollama_model(machine.ollama, "registry.ollama.ai/library/a/1b", writer("a")), "a:1b"
    else:
        path, title = put(machine.lm_studio / "p" / "a" / "a.gguf", writer("a")), "a"
    done = machine.run("models", "rm", "--yes", title, check=2)
    assert f"is {place}'s" in done.stderr
    assert path.exists()


@pytest.mark.skipif(os.name == "nt", reason="links of POSIX")
def test_rm_from_the_shared_cache(machine: Machine) -> None:
    gone = cache_file(machine.hub, "owner/a-GGUF", "a-Q8_0.gguf", writer("a"))
    kept = cache_file(machine.hub, "owner/a-GGUF", "a-Q4_0.gguf", writer("b"))
    blob = gone.resolve()
    assert "llama-server" in machine.run("models", "rm", "owner/a-GGUF:Q8_0", check=2).stderr
    machine.run("models", "rm", "--yes", "owner/a-GGUF:Q8_0")
    assert not gone.exists()
    assert not blob.exists()
    assert kept.exists()
    assert [each["name"] for each in machine.listed()["models"]] == ["owner/a-GGUF:Q4_0"]


@pytest.mark.skipif(os.name == "nt", reason="links of POSIX")
def test_rm_promises_only_what_it_frees(machine: Machine) -> None:
    path = cache_file(machine.hub, "owner/a-GGUF", "a-Q8_0.gguf", writer("a"))
    assert "to be freed" in machine.run("models", "rm", "owner/a-GGUF:Q8_0", check=2).stderr
    path.with_name("twin-Q4_0.gguf").symlink_to(path.readlink())
    done = machine.run("models", "rm", "--yes", "owner/a-GGUF:Q8_0")
    assert ", 0 B to be freed" in done.stderr
    assert path.with_name("twin-Q4_0.gguf").exists()


@pytest.mark.skipif(os.name == "nt", reason="pseudo-terminals of POSIX")
@pytest.mark.parametrize(
    ("answer", "code", "stays"), [("y", 0, False), ("yes", 0, False), ("", 1, True), ("n", 1, True)]
)
def test_rm_asks_on_a_terminal(machine: Machine, answer: str, code: int, stays: bool) -> None:
    import pty

    path = put(machine.own / "a.gguf", writer("a"))
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            machine.command("models", "rm", "a"),
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=machine.environment,
            text=True,
        )
        os.write(ours, f"{answer}\n".encode())
        _, errors = process.communicate(timeout=60)
    finally:
        os.close(ours)
        os.close(theirs)
    assert "Remove it? [y/N]" in errors
    assert process.returncode == code, errors
    assert path.exists() is stays


def test_flags_of_the_list_do_not_go_with_rm(machine: Machine) -> None:
    assert "belong to the list" in machine.run("models", "--json", "rm", "a", check=2).stderr
