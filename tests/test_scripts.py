"""The scripts as real processes, on a Python that answers at once: nothing is downloaded or compiled here."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# All that the scripts may need besides Python and a compiler.
TOOLS = (
    *("bash", "sh", "env", "cat", "cksum", "cp", "chmod", "dirname", "getconf", "grep", "head", "id", "ls"),
    *("mkdir", "rm", "sleep", "tail", "touch", "tput", "tr", "uname", "wc"),
)

# Runs one-liners for real; pretends to be `venv`, `pip` and `pytest`, and writes down every pip call.
STAND_IN_PYTHON = rf"""#!/bin/sh
case "$1 $2" in
    "-c "*ensurepip*) exit "${{STUB_NO_VENV_MODULE:-0}}" ;;
    "-c "*llama_cpp*) exit 0 ;;
    "-c "*) exec {sys.executable} "$@" ;;
    "--version "*) echo "Python 3.11.9" ;;
    "-m venv")
        mkdir -p "$3/bin" && cp "$0" "$3/bin/python"
        for tool in localspec ruff mypy lint-imports; do
            printf '#!/bin/sh\necho %s "$@"\n[ %s != "$STUB_FAILING_TOOL" ]\n' "$tool" "$tool" >"$3/bin/$tool"
            chmod +x "$3/bin/$tool"
        done ;;
    "-m pip")
        shift 3  # and --no-input
        case "$*" in
            --version*) exit 0 ;;
            "cache dir"*) echo /pip/cache; exit 0 ;;
            "cache list"*) echo "$STUB_CACHED_WHEEL"; exit 0 ;;
        esac
        echo "begin $* CMAKE_ARGS=$CMAKE_ARGS" >>"$STUB_CALLS"
        echo "Collecting things"
        case "$*" in
            *"${{STUB_SLOW:-no such}}"*) echo "Building wheel for llama-cpp-python" && sleep "$STUB_SECONDS" ;;
        esac
        case "$*" in *"${{STUB_FAILING:-no such}}"*) echo "ERROR: it broke"; exit 1 ;; esac
        echo "end" >>"$STUB_CALLS" ;;
    "-m pytest") shift 2; echo pytest "$@" ;;
    "-P -m") shift 2; echo "$PYTHONPATH" "$@" ;;
esac
"""

OLD_PYTHON = """#!/bin/sh
case "$2" in *print*) echo 3.9.18 ;; *) exit 1 ;; esac
"""

BROKEN_PYTHON = """#!/bin/sh
echo "this version is not installed" >&2
exit 127
"""


@dataclass
class Checkout:
    """A copy of the repository's scripts, and a PATH that holds the tools above and stand-ins only."""

    root: Path
    bin: Path
    calls_file: Path

    def add(self, name: str, text: str = "#!/bin/sh\nexit 0\n") -> None:
        path = self.bin / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def environment(self, changes: Mapping[str, str]) -> dict[str, str]:
        return {
            "PATH": str(self.bin),
            "HOME": str(self.root),
            "STUB_CALLS": str(self.calls_file),
            "CUDA_HOME": "/nowhere",
            "STUB_SECONDS": "1",
            "STUB_FAILING_TOOL": "none",
            **changes,
        }

    def run(self, script: str, *args: str, **changes: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.root / script, *args],
            env=self.environment(changes),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def start(self, script: str, *args: str, **changes: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.root / script, *args],
            env=self.environment(changes),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    @property
    def calls(self) -> list[str]:
        """The pip calls so far."""
        text = self.calls_file.read_text(encoding="utf-8") if self.calls_file.exists() else ""
        return [line.removeprefix("begin ") for line in text.splitlines() if line != "end"]

    def wait_for_call(self, part: str) -> None:
        deadline = time.monotonic() + 30
        while not any(part in call for call in self.calls):
            assert time.monotonic() < deadline, f"pip was never called with {part!r}"
            time.sleep(0.01)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    root = tmp_path / "a check out"
    shutil.copytree(ROOT / "scripts", root / "scripts")
    shutil.copytree(ROOT / ".ci", root / ".ci")
    shutil.copy(ROOT / "pyproject.toml", root)
    made = Checkout(root=root, bin=tmp_path / "bin", calls_file=tmp_path / "calls")
    made.bin.mkdir()
    for tool in TOOLS:
        path = shutil.which(tool)
        if path is not None:
            (made.bin / tool).symlink_to(path)
    made.add("python3.11", STAND_IN_PYTHON)
    for compiler in ("cc", "c++"):
        made.add(compiler)
    return made


def llama_cpp_call(calls: Sequence[str]) -> str:
    (call,) = [each for each in calls if "--no-deps" in each]
    return call


def test_the_first_run_installs_and_the_second_only_starts(checkout: Checkout) -> None:
    first = checkout.run("scripts/chat", "--mode", "plain", "two words", "")
    assert first.returncode == 0
    assert first.stdout == "localspec chat --mode plain two words \n"
    assert "Making .venv" in first.stderr
    assert [call.split()[:2] for call in checkout.calls] == [
        ["install", "pip>=25.1"],
        ["install", "--no-deps"],
        ["install", "-e"],
    ]
    assert ".[demo]" in checkout.calls[-1]
    assert "--group" not in checkout.calls[-1]
    n_calls = len(checkout.calls)
    second = checkout.run("scripts/chat")
    assert (second.stdout, second.stderr, len(checkout.calls)) == ("localspec chat\n", "", n_calls)


def test_tests_add_the_development_tools_to_what_the_chat_installed(checkout: Checkout) -> None:
    checkout.run("scripts/chat")
    tested = checkout.run("scripts/test", "-k", "one thing")
    assert tested.stdout == "pytest -k one thing\n"
    assert "Making .venv" not in tested.stderr
    assert "--group dev" in checkout.calls[-1]
    n_calls = len(checkout.calls)
    assert checkout.run("scripts/chat").returncode == 0
    assert len(checkout.calls) == n_calls


def test_without_arguments_the_algorithm_must_be_covered_in_full(checkout: Checkout) -> None:
    assert "--cov=localspec.speculative --cov-branch --cov-fail-under=100" in checkout.run("scripts/test").stdout


def test_changed_requirements_are_installed(checkout: Checkout) -> None:
    checkout.run("scripts/chat")
    n_calls = len(checkout.calls)
    with (checkout.root / "pyproject.toml").open("a") as file:
        file.write("# another dependency\n")
    again = checkout.run("scripts/chat")
    assert "Making .venv" not in again.stderr
    assert len(checkout.calls) > n_calls


def test_a_moved_repository_gets_a_new_environment(checkout: Checkout, tmp_path: Path) -> None:
    checkout.run("scripts/chat")
    checkout.root = checkout.root.rename(tmp_path / "elsewhere")
    assert "Making .venv" in checkout.run("scripts/chat").stderr


def test_an_environment_made_by_hand_is_kept(checkout: Checkout) -> None:
    checkout.run("scripts/chat")
    for stamp in checkout.root.glob(".venv/.prepared-*"):
        stamp.unlink()
    mine = checkout.root / ".venv/mine"
    mine.touch()
    assert "Making .venv" not in checkout.run("scripts/chat").stderr
    assert mine.exists()


def test_an_environment_without_its_python_is_made_anew(checkout: Checkout) -> None:
    checkout.run("scripts/chat")
    (checkout.root / ".venv/bin/python").unlink()
    assert "Making .venv" in checkout.run("scripts/chat").stderr


def test_no_python_that_is_new_enough(checkout: Checkout) -> None:
    (checkout.bin / "python3.11").unlink()
    checkout.add("python3", OLD_PYTHON)
    checkout.add("python3.13", BROKEN_PYTHON)
    refused = checkout.run("scripts/chat")
    assert refused.returncode == 1
    assert "needs Python 3.11 or newer; found: python3 is 3.9.18." in refused.stderr
    assert "apt-get install python3 python3-venv" in refused.stderr
    (checkout.bin / "python3").unlink()
    assert "found: none." in checkout.run("scripts/chat").stderr
    assert not (checkout.root / ".venv").exists()


def test_a_python_without_its_venv_module_names_the_package(checkout: Checkout) -> None:
    refused = checkout.run("scripts/chat", STUB_NO_VENV_MODULE="1")
    assert refused.returncode == 1
    assert "sudo apt-get install python3.11-venv" in refused.stderr
    assert not (checkout.root / ".venv").exists()


def test_without_a_compiler_nothing_is_built_and_the_packages_are_named(checkout: Checkout) -> None:
    (checkout.bin / "c++").unlink()
    refused = checkout.run("scripts/chat", STUB_FAILING="--only-binary llama-cpp-python")
    assert refused.returncode == 1
    for package in ("build-essential", "gcc-c++", "base-devel", "xcode-select --install"):
        assert package in refused.stderr
    assert "--only-binary" in llama_cpp_call(checkout.calls)
    assert not any("-e" in call.split() for call in checkout.calls)


def test_without_a_compiler_a_wheel_built_earlier_serves(checkout: Checkout, tmp_path: Path) -> None:
    (checkout.bin / "cc").unlink()
    wheel = tmp_path / "old wheels" / "llama_cpp_python-0.3.36-py3-none-linux_x86_64.whl"
    wheel.parent.mkdir()
    wheel.touch()
    assert checkout.run("scripts/chat", STUB_CACHED_WHEEL=str(wheel)).returncode == 0
    assert f"--find-links {wheel.parent}" in llama_cpp_call(checkout.calls)
    n_calls = len(checkout.calls)
    assert checkout.run("scripts/chat").returncode == 0
    assert len(checkout.calls) == n_calls


def test_the_long_build_is_announced_with_its_duration(checkout: Checkout) -> None:
    built = checkout.run("scripts/chat", STUB_SLOW="--no-deps", STUB_SECONDS="2.5")
    assert re.search(r"Compiling llama\.cpp: about (a|\d+) minutes? on \d+ cores, this once", built.stderr)
    assert built.stderr.count("Compiling") == 1
    log = (checkout.root / ".venv/setup.log").read_text(encoding="utf-8")
    assert "Building wheel for llama-cpp-python" in log


def test_a_failed_installation_shows_why_and_spoils_nothing(checkout: Checkout) -> None:
    checkout.run("scripts/chat")
    failed = checkout.run("scripts/test", STUB_FAILING="--group")
    assert failed.returncode == 1
    assert "ERROR: it broke" in failed.stderr
    assert f"{checkout.root}/.venv/setup.log" in failed.stderr
    assert failed.stdout == ""
    n_calls = len(checkout.calls)
    assert checkout.run("scripts/chat").stdout == "localspec chat\n"
    assert len(checkout.calls) == n_calls
    assert checkout.run("scripts/test", "-x").stdout == "pytest -x\n"


def test_a_killed_installation_is_not_trusted(checkout: Checkout) -> None:
    running = checkout.start("scripts/chat", STUB_SLOW="-e .[demo]", STUB_SECONDS="30")
    checkout.wait_for_call("-e .[demo]")
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate()
    leftover = checkout.root / ".venv/leftover"
    leftover.touch()
    again = checkout.run("scripts/chat")
    assert again.stdout == "localspec chat\n"
    assert "Making .venv" in again.stderr
    assert not leftover.exists()


def test_ctrl_c_ends_the_installation_and_everything_it_started(checkout: Checkout) -> None:
    running = checkout.start("scripts/chat", STUB_SLOW="--no-deps", STUB_SECONDS="30")
    checkout.wait_for_call("--no-deps")
    os.killpg(running.pid, signal.SIGINT)
    out, err = running.communicate(timeout=10)
    assert running.returncode == 130
    assert "Interrupted" in err
    assert out == ""


def test_two_runs_at_once_install_once(checkout: Checkout) -> None:
    first = checkout.start("scripts/chat", "first", STUB_SLOW="-e .[demo]")
    checkout.wait_for_call("install")
    second = checkout.run("scripts/chat", "second")
    out, _ = first.communicate(timeout=60)
    assert out == "localspec chat first\n"
    assert second.stdout == "localspec chat second\n"
    assert "waiting for it" in second.stderr
    assert len([call for call in checkout.calls if "-e .[demo]" in call]) == 1


def test_a_file_in_the_way_is_reported(checkout: Checkout) -> None:
    (checkout.root / ".venv").touch()
    refused = checkout.run("scripts/chat")
    assert refused.returncode == 1
    assert f"Cannot write to {checkout.root}/.venv" in refused.stderr


def test_the_cpu_is_chosen_without_a_driver(checkout: Checkout) -> None:
    checkout.add("nvcc")
    checkout.add("nvidia-smi", "#!/bin/sh\nexit 9\n")
    chosen = checkout.run("scripts/chat")
    assert "for the CPU: there is no NVIDIA driver" in chosen.stderr
    assert llama_cpp_call(checkout.calls).endswith("CMAKE_ARGS=")
    assert "--cache-dir" not in llama_cpp_call(checkout.calls)


def test_a_driver_without_nvcc_is_said_to_be_unused(checkout: Checkout) -> None:
    checkout.add("nvidia-smi")
    assert "there is an NVIDIA driver, but no nvcc" in checkout.run("scripts/chat").stderr
    assert llama_cpp_call(checkout.calls).endswith("CMAKE_ARGS=")


def test_a_build_for_the_cpu_becomes_one_for_cuda(checkout: Checkout) -> None:
    checkout.run("scripts/chat")
    checkout.calls_file.unlink()
    checkout.add("nvidia-smi")
    checkout.add("nvcc")
    rebuilt = checkout.run("scripts/chat", CMAKE_ARGS="-DCMAKE_BUILD_TYPE=Release")
    assert "for CUDA: there are an NVIDIA driver and nvcc" in rebuilt.stderr
    call = llama_cpp_call(checkout.calls)
    assert call.endswith("CMAKE_ARGS=-DCMAKE_BUILD_TYPE=Release -DGGML_CUDA=on")
    assert "--force-reinstall" in call
    assert "--cache-dir /pip/cache/localspec-" in call
    checkout.calls_file.unlink()
    (checkout.bin / "nvcc").unlink()
    assert checkout.run("scripts/chat").stderr == ""
    assert checkout.calls == []


def test_the_toolkit_is_found_where_it_installs_itself(checkout: Checkout, tmp_path: Path) -> None:
    checkout.add("nvidia-smi")
    toolkit = tmp_path / "cuda"
    shutil.copytree(checkout.bin, toolkit / "bin", symlinks=True)
    (toolkit / "bin/cc").rename(toolkit / "bin/nvcc")
    assert "for CUDA" in checkout.run("scripts/chat", CUDA_HOME=str(toolkit)).stderr


def test_a_failed_cuda_build_says_how_to_do_without(checkout: Checkout) -> None:
    checkout.add("nvidia-smi")
    checkout.add("nvcc")
    failed = checkout.run("scripts/chat", STUB_FAILING="--no-deps")
    assert failed.returncode == 1
    assert "CMAKE_ARGS=-DGGML_CUDA=off" in failed.stderr
    chosen = checkout.run("scripts/chat", CMAKE_ARGS="-DGGML_CUDA=off")
    assert chosen.returncode == 0
    assert checkout.calls[-2].endswith("CMAKE_ARGS=-DGGML_CUDA=off")


def test_a_backend_of_the_users_choice_stays(checkout: Checkout) -> None:
    checkout.add("nvidia-smi")
    checkout.add("nvcc")
    chosen = checkout.run("scripts/chat", CMAKE_ARGS="-DX=1 -DGGML_VULKAN=on")
    assert "with -DGGML_VULKAN=on from CMAKE_ARGS" in chosen.stderr
    assert llama_cpp_call(checkout.calls).endswith("CMAKE_ARGS=-DX=1 -DGGML_VULKAN=on")
    n_calls = len(checkout.calls)
    assert checkout.run("scripts/chat").returncode == 0
    assert len(checkout.calls) == n_calls


def test_a_wheel_that_was_installed_by_hand_stays(checkout: Checkout) -> None:
    checkout.run("scripts/chat")
    for record in (".prepared-app", ".backend"):
        (checkout.root / ".venv" / record).unlink()
    (checkout.root / ".venv/lib/python3.11/site-packages/llama_cpp").mkdir(parents=True)
    checkout.calls_file.unlink()
    checkout.add("nvidia-smi")
    checkout.add("nvcc")
    assert checkout.run("scripts/chat").returncode == 0
    assert "--force-reinstall" not in llama_cpp_call(checkout.calls)
    assert llama_cpp_call(checkout.calls).endswith("CMAKE_ARGS=")
    n_calls = len(checkout.calls)
    assert checkout.run("scripts/chat").returncode == 0
    assert len(checkout.calls) == n_calls


def test_every_check_runs_and_any_failure_counts(checkout: Checkout) -> None:
    passed = checkout.run("scripts/check")
    assert passed.returncode == 0
    failed = checkout.run("scripts/check", STUB_FAILING_TOOL="ruff")
    assert failed.returncode == 1
    assert failed.stdout == passed.stdout
    commands = [line for line in passed.stdout.splitlines() if not line.startswith("==")]
    assert commands == ["ruff check", "ruff format --check", "mypy", "lint-imports --no-cache"]


def test_the_comparison_installs_its_peer_once(checkout: Checkout) -> None:
    compared = checkout.run("scripts/bench_peers", "--only", "two words")
    assert compared.stdout == f"{checkout.root} scripts.bench_peers --only two words\n"
    assert "Compiling llama-server" in compared.stderr
    assert "--group peers" in checkout.calls[-1]
    n_calls = len(checkout.calls)
    assert checkout.run("scripts/bench_peers").stderr == ""
    assert checkout.run("scripts/chat").returncode == 0
    assert len(checkout.calls) == n_calls


@pytest.mark.parametrize("script", ["bench_peers", "bench_rows", "bench_serve", "bench_verification"])
def test_asking_for_help_installs_nothing(checkout: Checkout, script: str) -> None:
    asked = checkout.run(f"scripts/{script}", "--help")
    assert asked.returncode == 0
    assert f"scripts/{script}" in asked.stdout
    assert not (checkout.root / ".venv").exists()


@pytest.mark.parametrize("arguments", [["--help"], ["--llama-server", "a file"], ["--llama-server=a file"]])
def test_the_peer_is_installed_only_where_it_is_run(checkout: Checkout, arguments: list[str]) -> None:
    assert checkout.run("scripts/bench_peers", *arguments).returncode == 0
    assert not any("peers" in call for call in checkout.calls)


def test_the_peer_is_compiled_for_the_same_device(checkout: Checkout) -> None:
    checkout.run("scripts/bench_peers")
    assert checkout.calls[-1].endswith("CMAKE_ARGS=")
    checkout.add("nvidia-smi")
    checkout.add("nvcc")
    checkout.run("scripts/bench_peers")
    assert "--group peers" in checkout.calls[-1]
    assert "--force-reinstall" in checkout.calls[-1]
    assert checkout.calls[-1].endswith("CMAKE_ARGS=-DGGML_CUDA=on")


def test_without_its_peer_the_comparison_says_how_to_do_with_another(checkout: Checkout) -> None:
    failed = checkout.run("scripts/bench_peers", STUB_FAILING="--group peers")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "ERROR: it broke" in failed.stderr
    assert "--llama-server FILE" in failed.stderr
    n_calls = len(checkout.calls)
    assert checkout.run("scripts/chat").returncode == 0  # what was installed before still holds
    assert len(checkout.calls) == n_calls


@pytest.mark.parametrize(("check", "test", "code"), [(0, 0, 0), (3, 0, 1), (0, 5, 1)])
def test_ci_runs_both_scripts_without_anybody_to_ask(checkout: Checkout, check: int, test: int, code: int) -> None:
    checkout.add("tmux")
    for script, status in (("check", check), ("test", test)):
        path = checkout.root / "scripts" / script
        path.write_text(f'#!/bin/sh\nread answer || echo "{script} $CI"\nexit {status}\n', encoding="utf-8")
    ran = checkout.run(".ci/run")
    assert ran.stdout == "check true\ntest true\n"
    assert ran.returncode == code
