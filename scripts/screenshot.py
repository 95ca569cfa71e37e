"""Makes docs/chat.svg: a real reply of the demo pair, drawn by the chat itself.

.venv/bin/python scripts/screenshot.py
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from textual.pilot import Pilot

from localspec.config import Settings
from localspec.engine.client import EngineClient
from localspec.engine.requests import ModelSpec, PairSpec, SamplingParams
from localspec.memory.usage import process_memory
from localspec.models.demo import demo_files
from localspec.pairing.service import PairService
from localspec.paths import config_file
from localspec.tui.app import ChatApp
from localspec.tui.messages import PromptSent
from localspec.tui.options import ChatOptions
from localspec.tui.session import Readiness

PROMPT = "Write a Python function that checks whether a number is prime, and explain it in two sentences."
SIZE = (104, 34)  # columns and rows
PICTURE = Path("docs/chat.svg")

_LOOK_INTERVAL_S = 0.05


def main() -> None:
    """Load, ask, draw."""
    files = demo_files()
    pair = PairSpec("demo", ModelSpec(files.target, unpacked_from=files.draft), ModelSpec(files.draft))
    with EngineClient() as engine:
        options = ChatOptions(
            sampling=SamplingParams(temperature=0.0),
            max_tokens=260,
            memory_probe=lambda: process_memory(engine.process_id) if engine.process_id else None,
            pairs=lambda: PairService(Settings(), config_file()),
        )
        asyncio.run(draw(ChatApp(engine, pair, options)))


async def draw(app: ChatApp) -> None:
    """Run the chat without a terminal, ask, and write the picture."""
    async with app.run_test(size=SIZE) as pilot:
        await until_idle(app, pilot)
        app.chat.post_message(PromptSent(PROMPT))
        await pilot.pause(_LOOK_INTERVAL_S)
        await until_idle(app, pilot)
        PICTURE.write_text(app.export_screenshot(title="localspec chat"), encoding="utf-8")


async def until_idle(app: ChatApp, pilot: Pilot[None]) -> None:
    """Wait while models load or a reply runs."""
    session = app.chat.session
    while session.readiness is Readiness.LOADING or session.open is not None:
        await pilot.pause(_LOOK_INTERVAL_S)
    if app.screen is not app.chat:
        raise SystemExit("The chat shows an error: run `localspec chat` to read it.")


if __name__ == "__main__":
    main()
