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


def shown(machine: Machine, columns: int, *args: object) -> list[str]:
    """What a terminal of so many cells gets to show, line by line as it was written."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    kept = {key: value for key, value in machine.environment.items() if key != "COLUMNS"}
    with subprocess.Popen(
        machine.command("models", *args), stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, env=kept
    ) as process:
        os.close(theirs)
        raw = b""
        try:
            while piece := os.read(ours, 65536):
                raw += piece
        except OSError:  # Linux ends a pseudo-terminal so
            pass
        finally:
            os.close(ours)
        assert process.wait(timeout=60) == 0
    return raw.decode().replace("\r\n", "\n").splitlines()


LONG = "a-rather-long-name-of-a-model-as-they-are-on-the-hub-7B-Instruct-Q4_K_M"


@pytest.mark.skipif(os.name == "nt", reason="pseudo-terminals of POSIX")
def test_the_list_on_terminals_of_any_width(machine: Machine) -> None:
    """No line is longer than the terminal, names can be copied whole, and columns stay below each other."""
    put(machine.own / f"{LONG}.gguf", writer("Big", 800))
    put(machine.own / "mid-Q8_0.gguf", writer("Mid", 80))
    cache_file(machine.hub, "owner/small-model-with-a-name-GGUF", "small-Q4_K_M.gguf", writer("Small", 8))
    put(machine.own / "cut.gguf", writer("Cut")[:-1])
    put(machine.own / "mmproj.gguf", model_bytes(architecture="clip"))
    wide = machine.run("models", "--all").stdout.splitlines()
    assert shown(machine, 250, "--all") == wide
    for columns in (120, 80, 60):
        lines = shown(machine, columns, "--all")
        assert all(len(line) <= columns or " " not in line.strip() for line in lines), columns
        assert {LONG, "mid-Q8_0"} < {line.rstrip(",").split()[0] for line in lines if line} | set(lines)
        text = " ".join(" ".join(lines).split())
        assert "drafts: owner/small-model-with-a-name-GGUF:Q4_K_M, mid-Q8_0" in text
        assert "cut: " in text
        assert "mmproj: is the image encoder" in text
        if max(map(len, wide[:1])) > columns:
            heading = lines[1]
            assert heading.startswith("    ")
            assert lines[0] == "NAME"
            facts = lines[lines.index(LONG) + 1]
            assert facts.index("800") == heading.index("WEIGHTS")
            assert facts.index("localspec") == heading.index("WHERE")


# --- downloads that were begun ----------------------------------------------------------------------------------------


def begin(machine: Machine, n_done: int, repo: str = "owner/half-GGUF", quantization: str = "Q4_K_M") -> Path:
    """What a download leaves that was cut off."""
    from localspec.hub.download_notes import DownloadNotes
    from localspec.hub.remote_model import RemoteFile, RemoteModel

    file = RemoteFile(f"half-{quantization}.gguf", 5_000_000, quantization[1].replace("_", "0") * 64)
    notes = DownloadNotes(machine.hub, machine.root / "localspec" / "data" / "downloads")
    notes.add(RemoteModel(repo, "c0ffee" * 6 + "beef", quantization, (file,)))
    blob = machine.hub / f"models--{repo.replace('/', '--')}" / "blobs" / f"{file.blob}.incomplete"
    return put(blob, bytes(n_done))


def test_downloads_that_were_begun_are_a_note_below_the_list(machine: Machine) -> None:
    put(machine.own / "a-Q8_0.gguf", writer("a"))
    assert "UNFINISHED" not in machine.run("models").stdout
    assert machine.listed()["partial_downloads"] == []
    begin(machine, 1_200_000)
    lines = machine.run("models").stdout.splitlines()
    assert lines[-2:] == [
        "UNFINISHED DOWNLOADS",
        "  owner/half-GGUF:Q4_K_M: 1.2 MB of 5.0 MB (24%). Go on with: localspec pull owner/half-GGUF:Q4_K_M",
    ]
    (found,) = machine.listed()["partial_downloads"]
    assert (found["name"], found["done_bytes"], found["total_bytes"]) == (
        "owner/half-GGUF:Q4_K_M",
        1_200_000,
        5_000_000,
    )
    assert found["files"] == ["half-Q4_K_M.gguf"]


@pytest.mark.parametrize(
    "name_", ["owner/half-GGUF:Q4_K_M", "owner/half-GGUF", "half-Q4_K_M.gguf", "Owner/half-GGUF:q4_k_m"]
)
def test_rm_of_what_has_arrived(machine: Machine, name_: str) -> None:
    path = begin(machine, 1_200_000)
    other = begin(machine, 10, "owner/other-GGUF", "Q8_0")
    foreign = put(path.with_name(f"{'f' * 64}.incomplete"), b"another program's")
    assert "stdin is no terminal" in machine.run("models", "rm", name_, check=2).stderr
    assert path.exists()
    done = machine.run("models", "rm", "--yes", name_)
    assert "Removed what had arrived of owner/half-GGUF:Q4_K_M: 1.2 MB." in done.stderr
    assert not path.exists()
    assert other.exists()
    assert foreign.exists()
    assert [each["name"] for each in machine.listed()["partial_downloads"]] == ["owner/other-GGUF:Q8_0"]


def test_rm_does_not_guess_between_downloads(machine: Machine) -> None:
    paths = [begin(machine, 10, repo) for repo in ("owner/half-GGUF", "other/half-GGUF")]
    done = machine.run("models", "rm", "--yes", "half-Q4_K_M.gguf", check=2)
    assert "owner/half-GGUF:Q4_K_M" in done.stderr
    assert "other/half-GGUF:Q4_K_M" in done.stderr
    assert all(path.exists() for path in paths)


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
@pytest.mark.parametrize(
    "named",
    [
        "hugging-quants/Llama-3.2-1B-Instruct-Q8_0-GGUF:Q8_0",
        "Hugging-quants/llama-3.2-1b-instruct-q8_0-gguf:q8_0",
        "hugging-quants/Llama-3.2-1B-Instruct-Q8_0-GGUF/Llama-3.2-1B-Instruct-Q8_0.gguf",
        "llama-3.2-1b:Q8_0",
        "Llama-3.2-1B-Instruct-Q8_0.gguf",
    ],
)
def test_rm_by_every_name_that_other_commands_take(machine: Machine, named: str) -> None:
    repo = "hugging-quants/Llama-3.2-1B-Instruct-Q8_0-GGUF"
    gone = cache_file(machine.hub, repo, "Llama-3.2-1B-Instruct-Q8_0.gguf", writer("a"))
    kept = cache_file(machine.hub, repo, "Llama-3.2-1B-Instruct-Q4_0.gguf", writer("b"))
    machine.run("models", "rm", "--yes", named)
    assert not gone.exists()
    assert kept.exists()


@pytest.mark.skipif(os.name == "nt", reason="links of POSIX")
def test_rm_does_not_guess_between_quantizations(machine: Machine) -> None:
    files = [cache_file(machine.hub, "owner/a-GGUF", f"a-{each}.gguf", writer(each)) for each in ("Q8_0", "Q4_0")]
    done = machine.run("models", "rm", "--yes", "owner/a-GGUF", check=2)
    assert "names 2 models" in done.stderr
    assert "owner/a-GGUF:Q4_0" in done.stderr
    assert all(path.exists() for path in files)
    assert "There is no model named" in machine.run("models", "rm", "--yes", "owner/a-GGUF:Q5_0", check=2).stderr
    files[0].unlink()
    machine.run("models", "rm", "--yes", "owner/a-GGUF")
    assert not files[1].exists()


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
