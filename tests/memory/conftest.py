"""Machines with other cards, and other systems, than the one that runs the tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from localspec.memory import nvidia
from tests.memory.fake_nvml import FakeDriver

Install = Callable[..., None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a driver in place of this machine's; None: there is none, for the reason given."""

    def put(driver: FakeDriver | None, reason: str = "There is no NVIDIA driver.") -> None:
        monkeypatch.setattr(nvidia, "_started", lambda: (driver, "" if driver else reason))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)

    return put
