"""A picture of the chat, made by the chat itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from textual.pilot import Pilot

from localspec.errors import EngineError
from localspec.tui.app import ChatApp
from localspec.tui.messages import PromptSent
from localspec.tui.session import Readiness

_LOOK_INTERVAL_S: Final = 0.05


async def save_svg(
    app: ChatApp, path: Path, size: tuple[int, int], *, prompts: Sequence[str] = (), keys: Sequence[str] = ()
) -> None:
    """Run the chat without a terminal, send `prompts` one after the other, press `keys`, and write an SVG.

    `size` is columns and rows. The engine is the app's own, and closed at the end.

    Raises:
        EngineError: the models cannot be loaded, or a reply failed; its dialog's text is in the log.
    """
    async with app.run_test(size=size) as pilot:
        await _until_idle(app, pilot)
        for prompt in prompts:
            app.chat.post_message(PromptSent(prompt))
            await pilot.pause(_LOOK_INTERVAL_S)
            await _until_idle(app, pilot)
        await pilot.press(*keys)
        await pilot.pause()
        path.write_text(app.export_screenshot(title="localspec chat"), encoding="utf-8")


async def _until_idle(app: ChatApp, pilot: Pilot[None]) -> None:
    """Wait while models load or a reply runs."""
    session = app.chat.session
    while app.is_running and (session.readiness is Readiness.LOADING or session.open is not None):
        await pilot.pause(_LOOK_INTERVAL_S)
    if app.screen is not app.chat:
        raise EngineError("The chat shows an error.", hint="Run it in a terminal to read it.")
