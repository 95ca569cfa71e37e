"""Runs the console script as a process of its own, as a shell would."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.native_fixtures import TinyModels

Localspec = Callable[..., "subprocess.CompletedProcess[bytes]"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment of one's own: no configuration, cache or colour of the person who runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOCALSPEC_")}
    return kept | {"LOCALSPEC_HOME": str(tmp_path / "home"), "COLUMNS": "200", "NO_COLOR": "1", "PYTHONUTF8": "1"}


@pytest.fixture
def localspec(environment: dict[str, str], tmp_path: Path) -> Localspec:
    def run(*args: object, stdin: bytes = b"", check: int | None = None) -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run(
            [sys.executable, "-m", "localspec", *map(str, args)],
            input=stdin,
            capture_output=True,
            env=environment,
            cwd=tmp_path,
            timeout=120,
            check=False,
        )
        assert b"Traceback" not in done.stderr, done.stderr.decode()
        if check is not None:
            assert done.returncode == check, done.stderr.decode()
        return done

    return run


@pytest.fixture
def tiny(tiny_models: TinyModels) -> list[object]:
    """The flags of the tiny pair."""
    return ["--target", tiny_models.target, "--draft", tiny_models.draft, "--ctx", 256, "--threads", 1]
