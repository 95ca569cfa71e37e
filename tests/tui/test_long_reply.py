"""A step costs the same at every length of the reply: what it lays out is counted, not timed."""

from __future__ import annotations

from typing import Any

import pytest
from textual.content import Content
from textual.pilot import Pilot

from localspec.engine.events import StepDecoded
from localspec.tui import pieces
from localspec.tui.app import ChatApp
from localspec.tui.markdown_text import markdown_lines
from localspec.tui.pieces import HARD_LIMIT, SOFT_LIMIT
from localspec.tui.widgets.passage import Passage
from tests.tui.chat_driver import WIDE, make_app, screen_text, send, settle
from tests.tui.scripted_engine import ScriptedEngine, finished, reply_events

SECTION = """## Section

A paragraph with **some** words that wrap over the end of the line, and `code`.

- an item of a list
- another item, with *emphasis*

```python
def f(x):
    return x + 1
```

| a | b |
|---|---|
| 1 | 2 |

"""


class Counter:
    """Characters laid out, call by call."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def markdown_lines(self, source: str, width: int, **options: Any) -> list[Content]:
        self.calls.append(len(source))
        return markdown_lines(source, width, **options)


async def draw_one_by_one(
    pilot: Pilot[None], engine: ScriptedEngine, events: list[StepDecoded], counter: Counter
) -> list[int]:
    """Draw each step by itself; returns how many characters each of them laid out."""
    app = pilot.app
    assert isinstance(app, ChatApp)
    costs = []
    for index, event in enumerate(events):
        counter.calls.clear()
        engine.play([event])
        app.chat.draw()
        if index % 10 == 0:
            await pilot.pause()  # new passages get their width
        costs.append(sum(counter.calls))
    return costs


@pytest.mark.parametrize("by_origin", [False, True], ids=["markdown", "origins"])
async def test_a_reply_of_20000_tokens(monkeypatch: pytest.MonkeyPatch, by_origin: bool) -> None:
    counter = Counter()
    monkeypatch.setattr(pieces, "markdown_lines", counter.markdown_lines)
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test(size=WIDE) as pilot:
        if by_origin:
            await pilot.press("ctrl+o")
        await send(pilot, "write a book")
        events = reply_events(SECTION * 214)
        assert events[-1].metrics.n_tokens > 20_000
        early = await draw_one_by_one(pilot, engine, events[:300], counter)
        engine.play(events[300:-300])
        await pilot.pause()
        n_passages = len(app.chat.query(Passage))
        late = await draw_one_by_one(pilot, engine, events[-300:], counter)
        await pilot.pause()

        assert max(late) <= 2 * HARD_LIMIT
        assert sum(late) <= 1.2 * sum(early) + HARD_LIMIT
        # Widgets grow with the text, one for a screenful; not with its paragraphs, items, cells or steps.
        n_characters = len(SECTION * 214)
        assert len(app.chat.query(Passage)) <= n_characters / SOFT_LIMIT + 2
        assert len(app.chat.query(Passage)) - n_passages <= 300 * 6 * 8 / SOFT_LIMIT
        engine.play([finished(events)])
        await settle(pilot)
        assert "20.1k tokens" in screen_text(app)


async def test_a_step_that_adds_no_line_lays_out_no_other_widget(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test(size=WIDE) as pilot:
        await send(pilot, "one")
        events = reply_events("a few words on one line that is not yet full")
        engine.play(events[:1])
        await settle(pilot)
        layouts: list[bool] = []
        refresh = Passage.refresh

        def counted(self: Passage, *regions: object, layout: bool = False, **options: object) -> Passage:
            layouts.append(layout)
            return refresh(self, *regions, layout=layout, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(Passage, "refresh", counted)
        for event in events[1:]:
            engine.play([event])
            app.chat.draw()
        assert layouts
        assert not any(layouts)
