"""Starting the chat loads no model library, and respects a terminal without colours."""

from __future__ import annotations

import subprocess
import sys

import pytest
from textual.filter import NoColor

from tests.tui.chat_driver import NARROW, make_app, send, settle
from tests.tui.scripted_engine import ScriptedEngine, complete


def test_the_chat_does_not_load_the_model_library() -> None:
    heavy = ("llama_cpp", "fastapi", "huggingface_hub")
    code = f"import sys, localspec.tui.app; print(*(m for m in {heavy} if m in sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == []


async def test_without_colour_nothing_is_coloured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test(size=NARROW) as pilot:
        await send(pilot, "one")
        engine.play(complete("some **bold** words\n\n```python\nx = 1\n```\n"))
        await settle(pilot)
        assert [type(each) for each in app._filters if each.enabled] == [NoColor]
        colours = {
            colour.name
            for strip in app.screen._compositor.render_strips()
            for segment in strip.apply_filter(app._filters[-1], app.screen.background_colors[1])
            if segment.style is not None
            for colour in (segment.style.color, segment.style.bgcolor)
            if colour is not None
        }
        assert colours == {"default"}
