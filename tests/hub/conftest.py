"""A Hub of the test's own, a cache of the test's own, and nothing of the user's."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest
from huggingface_hub.utils import close_session

from localspec.hub import patience
from localspec.hub.client import Hub
from tests.hub.server import FakeHub


@pytest.fixture(autouse=True)
def _own_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in list(os.environ):
        if name.startswith(("HF_", "HUGGING", "TRANSFORMERS_")) or name.upper().endswith("_PROXY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "localspec"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_STORED_TOKENS_PATH", str(tmp_path / "stored_tokens"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(patience, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(patience, "LONGEST_WAIT_S", 0.02)
    close_session()  # the next one sees the proxies of this world
    yield
    close_session()


@pytest.fixture
def server() -> Iterator[FakeHub]:
    with FakeHub().running() as hub:
        yield hub


@pytest.fixture
def hub_at(server: FakeHub, tmp_path: Path) -> Callable[..., Hub]:
    """Another user of the same Hub and cache."""

    def make(token: str | None = None, **options: object) -> Hub:
        settings = {"endpoint": server.endpoint, "token": token, "cache_dir": tmp_path / "cache"} | options
        return Hub(**settings)  # type: ignore[arg-type]

    return make


@pytest.fixture
def hub(hub_at: Callable[..., Hub]) -> Hub:
    return hub_at()
