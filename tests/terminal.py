"""A real terminal for the tests: a private tmux server, keys sent to it, and what its screen shows."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]


class Terminal:
    """A tmux session of 80 by 24 cells that runs a Python module."""

    def __init__(self, tmux: str, module: str, environment: str = "") -> None:
        # A server of its own, without the user's settings: the test neither sees nor disturbs their sessions.
        self._tmux = [tmux, "-L", f"localspec-{uuid.uuid4().hex[:8]}", "-f", os.devnull]
        command = f"exec env {environment} {sys.executable} -m {module}"
        self.run("new-session", "-d", "-x", "80", "-y", "24", "-c", str(ROOT), command)

    def run(self, *arguments: str) -> str:
        ran = subprocess.run([*self._tmux, *arguments], capture_output=True, text=True, timeout=20, check=True)
        return ran.stdout

    def screen(self, *options: str) -> str:
        return self.run("capture-pane", "-p", *options)

    def until(self, look: Callable[[], str], *wanted: str) -> str:
        """Look until everything that is wanted is there."""
        deadline = time.monotonic() + 60
        while True:
            seen = look()
            if all(each in seen for each in wanted):
                return seen
            assert time.monotonic() < deadline, seen
            time.sleep(0.1)

    def exit_status(self) -> str:
        self.run("run-shell", "true")  # tmux may miss the end of one child; that of the next makes it look
        return self.run("display-message", "-p", "status #{pane_dead_status}").strip()

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], capture_output=True, timeout=20, check=False)
