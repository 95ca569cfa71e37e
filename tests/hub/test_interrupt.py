"""Ctrl-C while the headers of a set are read, from a Hub that keeps silent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.hub.remote_gguf import split_model
from tests.hub.server import FakeHub, Fault

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")

PROGRAM = """
import sys
from pathlib import Path
from localspec.hub.client import Hub
hub = Hub(endpoint=sys.argv[1], cache_dir=Path(sys.argv[2]))
hub.header(hub.models("o/r")[0])
"""


def test_the_program_ends_at_once(server: FakeHub, tmp_path: Path) -> None:
    parts = split_model(3)
    server.add_files("o/r", {f"m-Q8_0-{number:05}-of-00003.gguf": body for number, body in enumerate(parts, 1)})
    server.faults["storage"] = [Fault(), *[Fault(stall_after=0)] * 9]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, server.endpoint, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        until = time.monotonic() + 60
        while len(server.asked("storage", "00002")) + len(server.asked("storage", "00003")) < 2:
            assert time.monotonic() < until
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        started = time.monotonic()
        _, errors = process.communicate(timeout=60)
        assert "KeyboardInterrupt" in errors
        assert time.monotonic() - started < 8  # 0.1 s; with an executor's threads, 20 s
    finally:
        process.kill()
        process.wait()
