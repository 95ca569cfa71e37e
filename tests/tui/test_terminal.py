"""The chat in a real terminal: keys in their order, hostile text kept out, no colours where none are wanted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


class Terminal:
    """A tmux session of 80 by 24 cells that runs the scripted chat."""

    def __init__(self, tmux: str, environment: str = "") -> None:
        # A server of its own, without the user's settings: the test neither sees nor disturbs their sessions.
        self._tmux = [tmux, "-L", f"localspec-{uuid.uuid4().hex[:8]}", "-f", os.devnull]
        command = f"exec env {environment} {sys.executable} -m tests.tui.play_in_terminal"
        self.run("new-session", "-d", "-x", "80", "-y", "24", "-c", str(ROOT), command)

    def run(self, *arguments: str) -> str:
        ran = subprocess.run([*self._tmux, *arguments], capture_output=True, text=True, timeout=20, check=True)
        return ran.stdout

    def screen(self, *options: str) -> str:
        return self.run("capture-pane", "-p", *options)

    def until(self, look: Callable[[], str], *wanted: str) -> str:
        """Look until everything that is wanted is there."""
        deadline = time.monotonic() + 30
        while True:
            seen = look()
            if all(each in seen for each in wanted):
                return seen
            assert time.monotonic() < deadline, seen
            time.sleep(0.1)

    def exit_status(self) -> str:
        return self.run("display-message", "-p", "status #{pane_dead_status}").strip()

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], capture_output=True, timeout=20, check=False)


@pytest.fixture
def terminal(tmux: str) -> Iterator[Terminal]:
    terminal = Terminal(tmux)
    yield terminal
    terminal.close()


@pytest.fixture(params=["NO_COLOR=1", "TERM=vt100"])
def plain_terminal(tmux: str, request: pytest.FixtureRequest) -> Iterator[Terminal]:
    terminal = Terminal(tmux, request.param)
    yield terminal
    terminal.close()


def test_keys_text_and_quitting(terminal: Terminal) -> None:
    terminal.until(terminal.screen, "8,192 tokens", "^q Quit")
    title = terminal.run("display-message", "-p", "#{pane_title}")
    # One burst: letters, a line end, letters, Enter, and the beginning of the next prompt.
    terminal.run("send-keys", "first line", "C-j", "second line", "Enter", "next")
    hostile = "before ␛]0;owned␇ ␛[1;1Hmoved ␛[?1049l ␛c �31m after"
    terminal.until(terminal.screen, hostile, "prompt: first line\n  second line", "draft mode ·", "│ next ", "^q Quit")
    assert terminal.run("display-message", "-p", "#{pane_title}") == title
    assert terminal.run("display-message", "-p", "#{alternate_on}").strip() == "1"
    terminal.run("set-option", "remain-on-exit", "on")
    terminal.run("send-keys", "C-q")
    terminal.until(terminal.exit_status, "status 0")


def test_no_colour_reaches_a_terminal_that_wants_none(plain_terminal: Terminal) -> None:
    plain_terminal.until(plain_terminal.screen, "^q Quit")
    plain_terminal.run("send-keys", "hello", "Enter")
    plain_terminal.until(plain_terminal.screen, "draft mode ·")
    codes = {
        code for sequence in re.findall(r"\x1b\[([\d;]*)m", plain_terminal.screen("-e")) for code in sequence.split(";")
    }
    coloured = {code for code in codes if re.fullmatch(r"3[0-8]|4[0-8]|9[0-7]|10[0-7]", code)}
    assert coloured == set()
    assert "7" in codes  # the cursor is still seen
