"""Makes docs/chat.svg: a real reply of the demo pair, drawn by the chat itself.

.venv/bin/python scripts/screenshot.py
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from localspec.engine.client import EngineClient
from localspec.engine.requests import ModelSpec, PairSpec, SamplingParams
from localspec.memory.devices import process_memory
from localspec.models.demo import DEMO_NUM_SPECULATIVE_TOKENS, demo_files
from localspec.tui.app import ChatApp
from localspec.tui.options import ChatOptions
from localspec.tui.screenshot import save_svg

PROMPT = "Write a Python function that checks whether a number is prime, and explain it in two sentences."


def main() -> None:
    """Load, ask, draw."""
    files = demo_files()
    pair = PairSpec("demo", ModelSpec(files.target, unpacked_from=files.draft), ModelSpec(files.draft))
    with EngineClient() as engine:
        options = ChatOptions(
            sampling=SamplingParams(temperature=0.0),
            num_speculative_tokens=DEMO_NUM_SPECULATIVE_TOKENS,
            max_tokens=260,
            memory_probe=lambda: process_memory(engine.process_id) if engine.process_id else None,
        )
        app = ChatApp(engine, pair, options)
        asyncio.run(save_svg(app, Path("docs/chat.svg"), (104, 34), prompts=[PROMPT]))


if __name__ == "__main__":
    main()
