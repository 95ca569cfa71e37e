"""Pictures of the screen. After a wanted change: pytest tests/tui/test_snapshots.py --snapshot-update, and look."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from textual.pilot import Pilot

from localspec.engine.events import Failed, Loading, Prefilling, Queued
from localspec.engine.requests import Mode
from localspec.errors import EngineDiedError
from localspec.memory.usage import MemoryUse
from localspec.speculative.drafter import DraftSource
from localspec.tui.theme import LIGHT
from tests.tui.chat_driver import NARROW, WIDE, make_app, send, settle, write
from tests.tui.scripted_engine import GIB, MEMORY, ScriptedEngine, finished, reply_events
from tests.tui.scripted_pairs import ScriptedPairs

REPLY = """Speculative decoding lets a **small model** write a few tokens ahead. \
The large one then checks all of them in *one pass*:

1. the draft model proposes five tokens,
2. the target scores every position at once,
3. a prefix is accepted, and one more token is added.

```python
def step(draft, target):
    tokens = draft.propose(5)  # cheap
    return target.verify(tokens)
```

| mode | tokens/s | accepted |
|:-----|---------:|---------:|
| plain | 31.0 | – |
| draft | 52.3 | 93.1 % |

The result has the law of the target, see `verify()`.
"""
NOTICE = "No models are configured: this is the demo pair."

Scene = Callable[[Pilot[None], ScriptedEngine], Awaitable[None]]
Picture = Callable[..., bool]


@pytest.fixture
def picture(snap_compare: Callable[..., bool]) -> Picture:
    """Plays a scene and compares the screen at its end."""

    def compare(scene: Scene, size: tuple[int, int], *, memory: MemoryUse = MEMORY, loads: bool = True) -> bool:
        engine = ScriptedEngine() if loads else ScriptedEngine(load_events=[])
        app = make_app(engine, notice=NOTICE, memory_probe=lambda: memory, pairs=ScriptedPairs())

        async def run_before(pilot: Pilot[None]) -> None:
            await settle(pilot)
            await scene(pilot, engine)
            await settle(pilot)

        return snap_compare(app, terminal_size=size, run_before=run_before)

    return compare


async def welcome(pilot: Pilot[None], engine: ScriptedEngine) -> None:
    """Nothing has happened."""


async def loading(pilot: Pilot[None], engine: ScriptedEngine) -> None:
    engine.report_load(Loading("Writing the demo target", 0.4))
    await write(pilot, "hello")


async def prefill(pilot: Pilot[None], engine: ScriptedEngine) -> None:
    await send(pilot, "How does speculative decoding work?")
    engine.play([Queued("", 7, Mode.AUTO), Prefilling("", 512, 1234, 0)])


async def mid_reply(pilot: Pilot[None], engine: ScriptedEngine) -> None:
    await send(pilot, "How does speculative decoding work?")
    events = reply_events(REPLY)
    for event in events[:-6]:  # one by one: the speed has a history
        engine.play([event])
        pilot.app.chat.draw()  # type: ignore[attr-defined]
    await pilot.press("ctrl+t")


async def reply(pilot: Pilot[None], engine: ScriptedEngine) -> None:
    await mid_reply(pilot, engine)
    events = reply_events(REPLY)
    engine.play([*events[-6:], finished(events)])


async def origins(pilot: Pilot[None], engine: ScriptedEngine) -> None:
    await reply(pilot, engine)
    await pilot.press("ctrl+o")


async def resting(pilot: Pilot[None], engine: ScriptedEngine) -> None:
    """The first drafts cost more than they brought."""
    await send(pilot, "How does speculative decoding work?")
    accepted = [2, 0, 1, 0, 3, *[-1] * 30, 0, *[-1] * 100]
    for event in reply_events(REPLY, accepted=accepted, sources=[DraftSource.MODEL])[:90]:
        engine.play([event])
        pilot.app.chat.draw()  # type: ignore[attr-defined]


async def copy_dialog(pilot: Pilot[None], engine: ScriptedEngine) -> None:
    await reply(pilot, engine)
    await pilot.press("ctrl+y")


async def error(pilot: Pilot[None], engine: ScriptedEngine) -> None:
    await send(pilot, "How does speculative decoding work?")
    hint = "Send the prompt again: the models are loaded anew."
    engine.play(
        [*reply_events("Speculative"), Failed("", EngineDiedError("The engine process ended (signal 9).", hint=hint))]
    )


async def help_dialog(pilot: Pilot[None], engine: ScriptedEngine) -> None:
    await pilot.press("f1")


async def light(pilot: Pilot[None], engine: ScriptedEngine) -> None:
    pilot.app.theme = LIGHT.name
    await reply(pilot, engine)


SIZES = pytest.mark.parametrize("size", [NARROW, WIDE], ids=["80x24", "120x36"])


@SIZES
def test_welcome(picture: Picture, size: tuple[int, int]) -> None:
    assert picture(welcome, size)


@SIZES
def test_loading(picture: Picture, size: tuple[int, int]) -> None:
    assert picture(loading, size, loads=False)


@SIZES
def test_prefill(picture: Picture, size: tuple[int, int]) -> None:
    assert picture(prefill, size)


@SIZES
def test_mid_reply(picture: Picture, size: tuple[int, int]) -> None:
    assert picture(mid_reply, size, memory=replace(MEMORY, gpu_bytes=12 * GIB))


@SIZES
def test_resting(picture: Picture, size: tuple[int, int]) -> None:
    assert picture(resting, size)


@SIZES
def test_reply(picture: Picture, size: tuple[int, int]) -> None:
    assert picture(reply, size)


@SIZES
def test_origins(picture: Picture, size: tuple[int, int]) -> None:
    assert picture(origins, size)


@SIZES
def test_error(picture: Picture, size: tuple[int, int]) -> None:
    assert picture(error, size)


def test_copy(picture: Picture) -> None:
    assert picture(copy_dialog, NARROW)


def test_help(picture: Picture) -> None:
    assert picture(help_dialog, WIDE)


def test_light(picture: Picture) -> None:
    assert picture(light, WIDE)


def test_small_window(picture: Picture) -> None:
    assert picture(mid_reply, (60, 16))


@pytest.mark.parametrize("scene", [mid_reply, origins, copy_dialog, error], ids=lambda scene: scene.__name__)
def test_without_colour(picture: Picture, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert picture(scene, NARROW)
