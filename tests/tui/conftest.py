"""The chat's tests draw as on a terminal with colours, whatever terminal they are run in."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def a_terminal_with_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("TEXTUAL_THEME", raising=False)
