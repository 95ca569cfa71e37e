"""`localspec chat` from a shell: what it needs before the screen is taken."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Localspec


def test_without_a_terminal_it_says_what_to_use_instead(localspec: Localspec):
    done = localspec("chat", "--demo", check=2)
    assert b"terminal" in done.stderr
    assert b"localspec generate" in done.stderr
    assert done.stdout == b""


@pytest.mark.parametrize("args", [["--temperature", "hot"], ["--num-speculative-tokens", 99], ["--no-such-flag"]])
def test_wrong_flags_are_refused_before_the_screen_is_taken(localspec: Localspec, args: list[object]):
    assert str(args[0]).encode() in localspec("chat", *args, check=2).stderr


def test_help_lists_the_options_of_both_commands(localspec: Localspec):
    for command in ("chat", "generate"):
        text = localspec(command, "--help", check=0).stdout.decode()
        for option in (
            "--target",
            "--draft",
            "--ctx",
            "--gpu-layers",
            "--kv-type",
            "--temperature",
            "--mode",
            "--seed",
        ):
            assert option in text, (command, option)


def test_the_version_names_what_decides_the_output(localspec: Localspec):
    text = localspec("--version", check=0).stdout.decode()
    assert text.startswith("localspec 0.")
    assert "llama-cpp-python 0.3." in text
