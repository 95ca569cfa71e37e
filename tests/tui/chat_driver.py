"""What the tests of the chat do over and over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from textual.app import App
from textual.pilot import Pilot

from localspec.engine.requests import ChatPrompt, Message, ModelSpec, PairSpec
from localspec.tui.app import ChatApp
from localspec.tui.options import ChatOptions
from localspec.tui.widgets.prompt import Prompt
from tests.tui.scripted_engine import MEMORY, ScriptedEngine

PAIR = PairSpec("demo", ModelSpec(Path("target.gguf")), ModelSpec(Path("draft.gguf")))

NARROW = (80, 24)
WIDE = (120, 36)


def make_app(engine: ScriptedEngine, pair: PairSpec | None = PAIR, **options: Any) -> ChatApp:
    """A chat with the scripted engine and constant memory figures."""
    options.setdefault("memory_probe", lambda: MEMORY)
    if (pairs := options.pop("pairs", None)) is not None:
        options["pairs"] = lambda: pairs
    return ChatApp(engine, pair, ChatOptions(**options))


async def settle(pilot: Pilot[None]) -> None:
    """Wait until everything is drawn, the memory figures included."""
    await pilot.pause()
    await pilot.app.workers.wait_for_complete()
    await pilot.pause()


async def until(pilot: Pilot[None], is_so: Callable[[], bool]) -> None:
    """Wait for what threads bring about."""
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline, screen_text(pilot.app)
        await pilot.pause()
        await asyncio.sleep(0.01)
    await pilot.pause()


async def until_shown(pilot: Pilot[None], *texts: str) -> None:
    """Wait until all of them are on the screen."""
    await until(pilot, lambda: all(text in screen_text(pilot.app) for text in texts))


async def write(pilot: Pilot[None], text: str) -> None:
    """Type a text."""
    names = {" ": "space", "\n": "ctrl+j"}
    await pilot.press(*(names.get(character, character) for character in text))


async def send(pilot: Pilot[None], prompt: str) -> None:
    """Send a prompt, which is put into the input at once: one key after the other takes long."""
    pilot.app.screen.query_one(Prompt).insert(prompt)
    await pilot.press("enter")
    await pilot.pause()


def prompt(app: ChatApp) -> str:
    """What stands in the input."""
    return app.chat.query_one(Prompt).text


def sent(engine: ScriptedEngine, index: int = -1) -> tuple[Message, ...]:
    """The messages of a request, by default the last."""
    request_prompt = engine.requests[index].prompt
    assert isinstance(request_prompt, ChatPrompt)
    return request_prompt.messages


def screen_text(app: App[None]) -> str:
    """What the screen shows, without styles."""
    lines = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in line).rstrip() for line in lines)
