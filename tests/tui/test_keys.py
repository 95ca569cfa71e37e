"""Every key of the chat does what the footer, the help and the command palette say."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from textual.widgets import Footer

from localspec.engine.events import Cancelled, Step, TextSpan
from localspec.engine.requests import Message, Mode
from localspec.speculative.rejection import Origin
from localspec.tui.screens.chat import ChatScreen
from localspec.tui.screens.copy import CopyDialog
from localspec.tui.screens.help import HelpDialog
from localspec.tui.widgets.origin_legend import OriginLegend
from localspec.tui.widgets.reply import ReplyView
from localspec.tui.widgets.statistics import Statistics
from tests.tui.chat_driver import NARROW, PAIR, WIDE, make_app, prompt, screen_text, send, sent, settle
from tests.tui.scripted_engine import ScriptedEngine, complete, finished, metrics, reply_events
from tests.tui.scripted_pairs import ScriptedPairs

CODE_REPLY = "Try this:\n\n```python\nprint('hi')\n```\n\nor\n\n```\nplain\n```\n"


async def test_escape_stops_the_reply_and_keeps_what_there_is() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test() as pilot:
        await send(pilot, "one")
        engine.play(reply_events("the first words"))
        await pilot.press("escape")
        assert engine.cancelled == [engine.requests[0].request_id]
        engine.play([Cancelled("", (TextSpan(" and a few", Origin.DRAFT),), metrics(n_tokens=6))])
        await pilot.pause()
        assert "the first words and a few" in screen_text(app)
        assert "stopped · auto mode · 6 tokens" in screen_text(app)
        await send(pilot, "two")
        assert sent(engine)[1] == Message("assistant", "the first words and a few")


async def test_stop_is_offered_only_while_there_is_something_to_stop() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test() as pilot:
        await settle(pilot)
        assert "Stop" not in screen_text(app)
        await pilot.press("escape")
        assert engine.cancelled == []
        await send(pilot, "one")
        await pilot.pause()
        assert "esc Stop" in screen_text(app)
        engine.play(complete("first"))
        await settle(pilot)
        assert "Stop" not in screen_text(app)


async def test_the_footer_fits_the_smallest_usual_terminal() -> None:
    app = make_app(ScriptedEngine(), pairs=ScriptedPairs())
    async with app.run_test(size=NARROW) as pilot:
        await send(pilot, "one")
        await settle(pilot)
        footer = screen_text(app).splitlines()[-1]
        for key in ("esc Stop", "^t Mode", "^o Origins", "^y Copy", "^n New", "f1 Help", "f2 Pair", "^q Quit", "^p"):
            assert key in footer
        assert app.chat.query_one(Footer).max_scroll_x == 0


async def test_the_mode_is_switched_for_the_next_reply() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test(size=NARROW) as pilot:
        for _ in range(5):
            await send(pilot, "a prompt")
            engine.play(complete("a reply"))
            await pilot.press("ctrl+t")
    modes = [request.mode for request in engine.requests]
    assert modes == [Mode.AUTO, Mode.DRAFT, Mode.LOOKUP, Mode.PLAIN, Mode.AUTO]


@pytest.mark.parametrize("first", [Mode.AUTO, Mode.LOOKUP])
async def test_without_a_draft_model_there_are_two_modes(first: Mode) -> None:
    """Auto is lookup then, and a chat that was started in lookup mode has no use for the same under another name."""
    app = make_app(ScriptedEngine(), replace(PAIR, draft=None), mode=first)
    async with app.run_test(size=NARROW) as pilot:
        names = [command.title for command in app.get_system_commands(app.screen)]
        assert [name for name in names if name.startswith("Mode")] == ["Mode: auto", "Mode: plain"]
        modes = []
        for _ in range(3):
            await pilot.press("ctrl+t")
            modes.append(app.chat.session.mode)
        assert modes == [Mode.PLAIN, Mode.AUTO, Mode.PLAIN]


async def test_replies_are_shown_by_origin_and_as_markdown_again() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test(size=WIDE) as pilot:
        await send(pilot, "one")
        events = reply_events("some **bold** words to show in another way")
        engine.play(events[:2])
        await pilot.pause()
        assert "some bold words" in screen_text(app)
        await pilot.press("ctrl+o")
        engine.play(events[2:])  # it goes on in either view
        await pilot.pause()
        assert "some **bold** words to show in another way" in screen_text(app)
        counts = Counter(origin for event in events for origin in event.step.origins)
        assert counts[Origin.COPIED]
        assert "   ".join(f"{origin} {counts[origin]}" for origin in Origin) in screen_text(app)
        engine.play([finished(events)])
        await send(pilot, "two")
        engine.play(complete("more **bold** words"))
        await pilot.pause()
        assert "more **bold** words" in screen_text(app)
        await pilot.press("ctrl+o")
        await settle(pilot)
        assert "some bold words to show in another way" in screen_text(app)
        assert "more bold words" in screen_text(app)
        assert not app.chat.query_one(OriginLegend).display


async def test_the_counts_by_origin_are_whole_in_a_long_reply() -> None:
    app = make_app(ScriptedEngine())
    async with app.run_test(size=NARROW) as pilot:
        await pilot.press("ctrl+o")
        legend = app.chat.query_one(OriginLegend)
        assert "tokens by origin  draft 0   copied 0" in screen_text(app)
        for _ in range(2):
            legend.advance((Step((), tuple(Origin) * 6_000, 8, 8, 0.1),))
        await pilot.pause()
        line = "draft 12.0k   copied 12.0k   residual 12.0k   bonus 12.0k   target 12.0k"
        assert line in [each.strip() for each in screen_text(app).splitlines()]


async def test_a_reply_without_code_is_copied_at_once() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test(notifications=True) as pilot:
        await pilot.press("ctrl+y")
        await pilot.pause()
        assert "There is no reply to copy." in screen_text(app)
        await send(pilot, "one")
        engine.play(complete("some *words*\x1b[31m"))
        await pilot.press("ctrl+y")
        await pilot.pause()
        assert app.clipboard == "some *words*␛[31m"
        assert "Copied" in screen_text(app)


async def test_a_code_block_or_the_whole_reply_is_copied() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test() as pilot:
        await send(pilot, "one")
        engine.play(complete(CODE_REPLY))
        for keys, copied in [(("enter",), "print('hi')"), (("down", "enter"), "plain"), (("end", "enter"), CODE_REPLY)]:
            await pilot.press("ctrl+y")
            await pilot.pause()
            assert isinstance(app.screen, CopyDialog)
            assert "python, 1 line" in screen_text(app)
            await pilot.press(*keys)
            await pilot.pause()
            assert app.clipboard == copied
        await pilot.press("ctrl+y", "escape")
        assert app.clipboard == CODE_REPLY


async def test_a_selection_made_with_the_mouse_is_copied() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test(size=NARROW) as pilot:
        await send(pilot, "one")
        engine.play(complete("some words"))
        await settle(pilot)
        app.screen.text_select_all()
        await pilot.press("ctrl+c")
        assert "some words" in app.clipboard
        assert "one" in app.clipboard


async def test_without_a_selection_ctrl_c_stops_the_reply_or_says_how_to_quit() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test(notifications=True) as pilot:
        await pilot.press("ctrl+c")
        await pilot.pause()
        assert "Ctrl+Q quits." in screen_text(app)
        await send(pilot, "one")
        await pilot.press("ctrl+c")
        assert engine.cancelled == [engine.requests[0].request_id]


async def test_the_last_reply_is_asked_for_again() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test() as pilot:
        for text in ("one", "two"):
            await send(pilot, text)
            engine.play(complete(f"reply to {text}"))
        await pilot.press("ctrl+r")
        await pilot.pause()
        assert sent(engine) == sent(engine, 1)
        assert "reply to two" not in screen_text(app)
        engine.play(complete("another reply"))
        await pilot.pause()
        assert "another reply" in screen_text(app)
        assert len(app.chat.query(ReplyView)) == 2


async def test_the_last_prompt_is_edited() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test() as pilot:
        await send(pilot, "one")
        engine.play(complete("reply"))
        await pilot.press("f3")
        await pilot.pause()
        assert prompt(app) == "one"
        assert "reply" not in [line.strip() for line in screen_text(app).splitlines()]
        await send(pilot, " more")
        assert sent(engine) == (Message("user", "one more"),)


async def test_nothing_is_taken_back_from_a_reply_that_runs() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test(notifications=True) as pilot:
        await pilot.press("ctrl+r")
        await pilot.pause()
        assert "There is no reply yet." in screen_text(app)
        await send(pilot, "one")
        await pilot.press("f3", "ctrl+r")
        await pilot.pause()
        assert len(engine.requests) == 1
        assert prompt(app) == ""


async def test_a_new_chat_is_empty() -> None:
    engine = ScriptedEngine()
    app = make_app(engine, system="Be brief.")
    async with app.run_test() as pilot:
        await send(pilot, "one")
        engine.play(reply_events("first words"))
        await pilot.pause()
        await pilot.press("ctrl+n")
        await settle(pilot)
        assert engine.cancelled == [engine.requests[0].request_id]
        engine.play(complete(" and a late rest"))
        await settle(pilot)
        assert "first words" not in screen_text(app)
        assert "late" not in screen_text(app)
        assert app.chat.query_one(Statistics).readings.metrics is None
        await send(pilot, "two")
        assert sent(engine) == (Message("system", "Be brief."), Message("user", "two"))


async def test_help_names_every_key_of_the_footer() -> None:
    app = make_app(ScriptedEngine())
    async with app.run_test(size=(120, 60)) as pilot:
        await pilot.press("f1")
        await pilot.pause()
        assert isinstance(app.screen, HelpDialog)
        text = screen_text(app)
        keys = "Ctrl+T", "Ctrl+O", "Ctrl+Y", "Ctrl+R", "Ctrl+N", "Ctrl+P", "Ctrl+Q", "F2", "F3", "Escape", "Ctrl+J"
        for key in keys:
            assert key in text
        for origin in Origin:
            assert origin.value in text
        await pilot.press("f1")
        assert isinstance(app.screen, ChatScreen)


async def test_the_command_palette_offers_what_the_keys_do() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test() as pilot:
        names = [command.title for command in app.get_system_commands(app.screen)]
        for name in (
            "Mode: auto",
            "Mode: lookup",
            "Token origins",
            "Copy",
            "Ask again",
            "Stop the reply",
            "New chat",
            "Help",
            "Theme",
        ):
            assert name in names
        await pilot.press("ctrl+p")
        await pilot.pause()
        await pilot.press(*"plain")
        await settle(pilot)
        await pilot.press("enter", "enter")
        await settle(pilot)
        assert app.chat.session.mode is Mode.PLAIN
