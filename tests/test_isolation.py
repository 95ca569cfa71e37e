"""Tests leave the person who runs them alone: see tests/conftest.py."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from localspec import paths

FOLDERS = (paths.config_dir, paths.data_dir, paths.cache_dir, paths.log_dir)


def test_folders_of_tests_are_temporary(tmp_path_factory: pytest.TempPathFactory) -> None:
    for folder in FOLDERS:
        assert folder().is_relative_to(tmp_path_factory.getbasetemp())


def test_so_are_those_of_processes_that_tests_start(tmp_path_factory: pytest.TempPathFactory) -> None:
    code = f"from localspec import paths; print(*(getattr(paths, name)() for name in {[f.__name__ for f in FOLDERS]}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for folder in done.stdout.split():
        assert folder.startswith(str(tmp_path_factory.getbasetemp()))


def test_no_setting_of_theirs_reaches_a_test() -> None:
    assert [name for name in os.environ if name.startswith("LOCALSPEC_")] == ["LOCALSPEC_HOME"]
