"""The chat in a real terminal: keys in their order, hostile text kept out, no colours where none are wanted."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.terminal import Terminal

MODULE = "tests.tui.play_in_terminal"


@pytest.fixture
def terminal(tmux: str) -> Iterator[Terminal]:
    terminal = Terminal(tmux, MODULE)
    yield terminal
    terminal.close()


@pytest.fixture(params=["NO_COLOR=1", "TERM=vt100"])
def plain_terminal(tmux: str, request: pytest.FixtureRequest) -> Iterator[Terminal]:
    terminal = Terminal(tmux, MODULE, request.param)
    yield terminal
    terminal.close()


def test_keys_text_and_quitting(terminal: Terminal) -> None:
    terminal.until(terminal.screen, "8,192 tokens", "^q Quit")
    title = terminal.run("display-message", "-p", "#{pane_title}")
    # One burst: letters, a line end, letters, Enter, and the beginning of the next prompt.
    terminal.run("send-keys", "first line", "C-j", "second line", "Enter", "next")
    hostile = "before ␛]0;owned␇ ␛[1;1Hmoved ␛[?1049l ␛c �31m after"
    terminal.until(terminal.screen, hostile, "prompt: first line\n  second line", "auto mode ·", "│ next ", "^q Quit")
    assert terminal.run("display-message", "-p", "#{pane_title}") == title
    assert terminal.run("display-message", "-p", "#{alternate_on}").strip() == "1"
    terminal.run("set-option", "remain-on-exit", "on")
    terminal.run("send-keys", "C-q")

    terminal.until(terminal.exit_status, "status 0")


def test_a_pair_is_chosen_in_one_burst_of_keys(terminal: Terminal) -> None:
    terminal.until(terminal.screen, "8,192 tokens", "^q Quit")
    title = terminal.run("display-message", "-p", "#{pane_title}")
    terminal.run("send-keys", "F2")
    terminal.until(terminal.screen, "● first", "second before ␛]0;owned␇")
    # What is typed over the list filters it, and the arrow leads back before Enter arrives.
    terminal.run("send-keys", "target first")
    terminal.until(terminal.screen, "target first", "none of 2 has that name")
    terminal.run("send-keys", *["BSpace"] * 12)
    terminal.until(terminal.screen, "● first")
    terminal.run("send-keys", "first", "Down", "Enter")
    terminal.until(terminal.screen, "Drafts for first", "a draft", "before ␛]0;owned␇")
    terminal.run("send-keys", "Enter")
    terminal.until(terminal.screen, "The draft model from here on: before ␛]0;owned␇", "Write a prompt")
    assert terminal.run("display-message", "-p", "#{pane_title}") == title


def test_no_colour_reaches_a_terminal_that_wants_none(plain_terminal: Terminal) -> None:
    plain_terminal.until(plain_terminal.screen, "^q Quit")
    plain_terminal.run("send-keys", "hello", "Enter")
    plain_terminal.until(plain_terminal.screen, "auto mode ·")
    codes = {
        code for sequence in re.findall(r"\x1b\[([\d;]*)m", plain_terminal.screen("-e")) for code in sequence.split(";")
    }
    coloured = {code for code in codes if re.fullmatch(r"3[0-8]|4[0-8]|9[0-7]|10[0-7]", code)}
    assert coloured == set()
    assert "7" in codes  # the cursor is still seen
