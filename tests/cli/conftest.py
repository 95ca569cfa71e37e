"""Runs the console script as a process of its own, as a shell would."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from localspec.bench.basis import present_basis
from localspec.bench.profile import Findings, Profile, profile_file
from localspec.bench.records import write_record
from localspec.config import TunedSettings
from tests.native_fixtures import TinyModels

Localspec = Callable[..., "subprocess.CompletedProcess[bytes]"]


def clean_environment(home: Path) -> dict[str, str]:
    """An environment without the configuration, cache and colours of the person who runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOCALSPEC_")}
    return kept | {"LOCALSPEC_HOME": str(home), "COLUMNS": "200", "NO_COLOR": "1", "PYTHONUTF8": "1"}


def run_localspec(
    args: Sequence[object],
    home: Path,
    folder: Path,
    stdin: bytes = b"",
    variables: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run the command in `folder`; no failure of any kind may show a traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "localspec", *map(str, args)],
        input=stdin,
        capture_output=True,
        env=clean_environment(home) | dict(variables or {}),
        cwd=folder,
        timeout=120,
        check=False,
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def environment(home: Path) -> dict[str, str]:
    return clean_environment(home)


@pytest.fixture
def localspec(home: Path, tmp_path: Path) -> Localspec:
    def run(*args: object, stdin: bytes = b"", check: int | None = None) -> subprocess.CompletedProcess[bytes]:
        done = run_localspec(args, home, tmp_path, stdin)
        if check is not None:
            assert done.returncode == check, done.stderr.decode()
        return done

    return run


@pytest.fixture
def tiny(tiny_models: TinyModels) -> list[object]:
    """The flags of the tiny pair."""
    return ["--target", tiny_models.target, "--draft", tiny_models.draft, "--ctx", 256, "--threads", 1]


def stored(target: Path, draft: Path | None, patch: pytest.MonkeyPatch, home: Path, **settings: Any) -> Path:
    """A profile as if it had been tuned; its draft is named by nobody if `settings` say so."""
    patch.setenv("LOCALSPEC_HOME", str(home))
    named = draft if settings.pop("is_named", True) else None
    chosen = {
        "mode": "draft",
        "num_speculative_tokens": 3,
        "fixed_length": True,
        "lookup_min_ngram": 2,
        "lookup_max_ngram": 4,
        "kv_type": "f16",
        "draft_kv_type": "f16",
        "threads": 1,
    }
    profile = Profile(
        settings=TunedSettings(**(chosen | settings)),
        basis=present_basis(target, draft, gpu_layers=-1, draft_gpu_layers=-1),
        findings=Findings(
            measured_at=datetime(2026, 11, 30, tzinfo=UTC),
            localspec="0.1.0",
            seconds=300.0,
            temperatures=(0.8,),
            workloads=("chat/seasons",),
            max_tokens=64,
            reason="draft mode, drafts of 3: 1.30 x",
            comparisons=(),
        ),
    )
    file = profile_file(target, named)
    write_record(profile, file)
    return file
