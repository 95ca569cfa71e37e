"""The very first start, in a real terminal: nothing is installed beside localspec, and nobody has chosen a pair."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.models.local_models import put, writer
from tests.terminal import Terminal

MODULE = "tests.cli.chat_without_demo"
Start = Callable[[], Terminal]


@pytest.fixture
def start(tmux: str, tmp_path: Path) -> Iterator[Start]:
    """Starts the chat in a home of its own, without a network."""
    variables = {
        "HOME": tmp_path,
        "LOCALSPEC_HOME": tmp_path / "localspec",
        "HF_HOME": tmp_path / "hf",
        "LLAMA_CACHE": tmp_path / "llama",
        "OLLAMA_MODELS": tmp_path / "ollama",
        "HF_HUB_OFFLINE": 1,
    }
    environment = " ".join(f"{name}={shlex.quote(str(value))}" for name, value in variables.items())
    begun: list[Terminal] = []

    def begin() -> Terminal:
        begun.append(Terminal(tmux, MODULE, environment))
        return begun[-1]

    yield begin
    for terminal in begun:
        terminal.close()


def test_without_the_demo_and_without_a_pair_the_choice_of_models_comes_first(start: Start) -> None:
    terminal = start()
    shown = terminal.until(terminal.screen, "There is no model on this machine yet.", "from models.toml", "^q Quit")
    assert "Write a prompt" not in shown
    terminal.run("send-keys", "Escape")
    terminal.until(terminal.screen, "No models are loaded yet. F2 chooses them.", "Write a prompt")
    terminal.run("set-option", "remain-on-exit", "on")
    terminal.run("send-keys", "C-q")
    terminal.until(terminal.exit_status, "status 0")


def test_what_is_here_is_offered(start: Start, tmp_path: Path) -> None:
    put(tmp_path / "localspec" / "data" / "models" / "my-own-Q8_0.gguf", writer("Mine", 800))
    terminal = start()
    shown = terminal.until(terminal.screen, "my-own-Q8_0")
    assert "Write a prompt" not in shown
    assert "There is no model" not in shown


def test_a_pair_of_the_configuration_is_loaded_instead(start: Start, tmp_path: Path) -> None:
    model = put(tmp_path / "mine.gguf", writer("Mine", 800))
    config = f'pair = "mine"\n[pairs.mine]\ntarget = "{model}"\n'
    put(tmp_path / "localspec" / "config" / "config.toml", config.encode())
    terminal = start()
    terminal.until(terminal.screen, "Write a prompt", "mine")
