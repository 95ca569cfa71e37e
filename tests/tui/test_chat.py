"""The chat from the keyboard to the engine and back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from localspec.engine.events import Cancelled, Finished, FinishReason, Loading, Prefilling, Queued
from localspec.engine.requests import Message, Mode
from localspec.speculative.drafter import DraftSource
from localspec.tui.app import ChatApp
from localspec.tui.conversation import Outcome
from localspec.tui.messages import EngineReported
from localspec.tui.widgets.loading import LoadingLine
from localspec.tui.widgets.passage import Passage
from localspec.tui.widgets.prompt import Prompt
from localspec.tui.widgets.statistics import Statistics
from localspec.tui.widgets.transcript import Transcript
from tests.tui.chat_driver import NARROW, PAIR, WIDE, make_app, prompt, screen_text, send, sent, settle, write
from tests.tui.scripted_engine import LOADED, ScriptedEngine, complete, finished, metrics, reply_events

REPLY = "some words that the draft model and the copies wrote together, and some that the target wrote alone"


def panel_rows(app: ChatApp, *labels: str) -> list[str]:
    """Rows of the column that begin with one of the labels, with single spaces."""
    lines = app.chat.query_one(Statistics).render().plain.splitlines()
    return [" ".join(line.split()) for line in lines if line.startswith(labels)]


def drafters(app: ChatApp) -> list[str]:
    """The table of who drafts."""
    return panel_rows(app, "draft model", "copied", "none")


async def test_a_prompt_is_answered_on_the_screen() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test(size=NARROW) as pilot:
        await send(pilot, "hi there")
        assert sent(engine) == (Message("user", "hi there"),)
        assert prompt(app) == ""
        assert "waiting for the engine" in screen_text(app)
        engine.play([Queued("", 7, Mode.AUTO), Prefilling("", 30, 1234, 0)])
        await pilot.pause()
        assert "reading the prompt, 30 of 1,234 tokens" in screen_text(app)
        engine.play([Prefilling("", 1233, 1234, 0, 800)])
        await pilot.pause()
        assert "the draft model reads the prompt, 800 tokens to go" in screen_text(app)
        events = reply_events("A *short* reply.")
        engine.play(events)
        await pilot.pause()
        assert "A short reply." in screen_text(app)
        assert "reading" not in screen_text(app)
        engine.play([finished(events)])
        await pilot.pause()
        assert "auto mode · 6 tokens · 49.8 tokens/s" in screen_text(app)


async def test_a_reply_that_is_there_at_once_is_shown() -> None:
    """Its events may come before the screen has made room for it."""
    engine = ScriptedEngine()
    engine.replies.append(complete("at once"))
    app = make_app(engine)
    async with app.run_test() as pilot:
        await send(pilot, "one")
        assert "at once" in screen_text(app)
        assert "auto mode · 2 tokens" in screen_text(app)


async def test_the_statistics_follow_each_step() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test(size=WIDE) as pilot:
        await settle(pilot)
        await send(pilot, "hi")
        events = reply_events("one two three four five six seven eight nine ten eleven twelve")
        engine.play(events[:1])
        await pilot.pause()
        readings = app.chat.query_one(Statistics).readings
        assert readings.metrics is events[0].metrics
        assert (readings.rate, readings.accepted, readings.per_step) == ("38.0", "100.0 %", "6.00")
        engine.play(events[1:])
        await pilot.pause()
        assert [step.n_accepted for step in readings.steps] == [event.step.n_accepted for event in events]
        assert f"context{readings.context:>25}" in screen_text(app)
        engine.play([finished(events)])
        await pilot.pause()
        assert readings.rate == "49.8"


async def test_the_statistics_say_who_drafts() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test(size=WIDE) as pilot:
        await settle(pilot)
        await send(pilot, "hi")
        model, copies = (
            reply_events(REPLY, accepted=[4, 3], sources=[source]) for source in (DraftSource.MODEL, DraftSource.LOOKUP)
        )
        engine.play(model[:2])
        await pilot.pause()
        assert drafters(app) == ["draft model 100 % 70 %", "copied 0 % –", "none 0 %"]
        mixed = replace(model[1].metrics, n_steps=4, n_drafted=20, n_accepted=17)
        mixed = replace(mixed, n_plain_steps=1, n_lookup_steps=1, n_lookup_drafted=10, n_lookup_accepted=10)
        engine.play([replace(copies[0], metrics=mixed)])
        await pilot.pause()
        assert drafters(app) == ["draft model 50 % 70 %", "copied 25 % 100 %", "none 25 %"]
        await pilot.resize_terminal(*NARROW)
        await pilot.pause()
        assert "draft model 50 % of steps, 70 % accepted   copied 25 %, 100 %   none 25 %" in screen_text(app)


async def test_a_reply_whose_drafts_do_not_pay_says_so_until_they_do() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    note = "resting: drafts do not pay here"
    async with app.run_test(size=NARROW) as pilot:
        await send(pilot, "hi")
        engine.play(reply_events("word " * 20, accepted=[-1]))
        await pilot.pause()
        assert f"{note}   draft model 0 % of steps   copied 0 %" in screen_text(app)
        engine.play(reply_events("word " * 20, accepted=[5]))
        await pilot.pause()
        assert note not in screen_text(app)
        await pilot.resize_terminal(*WIDE)
        engine.play(reply_events("word " * 40, accepted=[-1]))
        await pilot.pause()
        assert note in screen_text(app)
        await pilot.press("ctrl+n")
        await pilot.pause()
        assert note not in screen_text(app)


async def test_after_a_change_of_mode_the_numbers_are_still_those_of_the_last_reply() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test(size=WIDE) as pilot:
        assert panel_rows(app, "next reply", "last reply") == ["next reply auto"]
        await send(pilot, "one")
        await pilot.press("ctrl+t")
        await pilot.pause()
        assert panel_rows(app, "this reply", "next reply") == ["this reply auto", "next reply draft"]
        engine.play(complete("first"))
        await pilot.press("ctrl+t")
        await pilot.pause()
        assert panel_rows(app, "this reply", "last reply", "tokens/s", "next reply") == [
            "last reply auto",
            "tokens/s 49.8",
            "next reply lookup",
        ]
        await send(pilot, "two")
        assert panel_rows(app, "last reply", "this reply", "tokens/s", "next reply") == [
            "this reply lookup",
            "tokens/s –",
        ]


async def test_a_mode_that_runs_as_another_is_shown_as_that() -> None:
    engine = ScriptedEngine()
    app = make_app(engine, replace(PAIR, draft=None))
    async with app.run_test(size=WIDE) as pilot:
        await send(pilot, "one")
        engine.play([Queued("", 7, Mode.LOOKUP), *complete("first")])
        await pilot.pause()
        assert panel_rows(app, "last reply", "next reply", "draft model") == ["last reply lookup"]
        assert "lookup mode · 1 tokens" in screen_text(app)


async def test_the_statistics_stay_whole_in_every_window() -> None:
    app = make_app(ScriptedEngine())
    async with app.run_test(size=NARROW) as pilot:
        await settle(pilot)
        for width in (40, 60, 79, 80, 99, 100, 130):
            for height in (12, 19, 20, 24, 50):
                await pilot.resize_terminal(width, height)
                await pilot.pause()
                text = screen_text(app)
                assert "tokens/s" in text
                assert "accepted" in text
                assert app.chat.query_one(Prompt).region.bottom <= height
                if width >= 60:
                    assert "0/8,192" in text
                    assert "812 MiB" in text


async def test_while_a_reply_runs_the_next_prompt_can_be_written_but_not_sent() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test(notifications=True) as pilot:
        await send(pilot, "one")
        await send(pilot, "two")
        assert len(engine.requests) == 1
        assert prompt(app) == "two"
        assert "One at a time" in screen_text(app)
        engine.play(complete("first"))
        await pilot.pause()
        await pilot.press("enter")
        await pilot.pause()
        assert sent(engine) == (Message("user", "one"), Message("assistant", "first"), Message("user", "two"))


async def test_a_reply_stopped_before_its_first_word_gives_the_prompt_back() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test() as pilot:
        await send(pilot, "one")
        await write(pilot, "two")
        await pilot.press("escape")
        engine.play([Cancelled("", (), metrics(n_tokens=0))])
        await pilot.pause()
        assert prompt(app) == "one\n\ntwo"
        assert "stopped before the first word" in screen_text(app)


async def test_a_mode_that_cannot_run_says_why_once() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    note = "The pair has no draft model: the reply is plain."
    async with app.run_test(size=WIDE) as pilot:
        for text in ("one", "two"):
            await send(pilot, text)
            engine.play([Queued("", 7, Mode.PLAIN, note), *complete(text)])
            await pilot.pause()
        assert screen_text(app).count(note) == 1
        assert "plain mode" in screen_text(app)


async def test_loading_shows_its_progress_while_the_prompt_is_written() -> None:
    engine = ScriptedEngine(load_events=[Loading("Writing the demo target", 0.25)])
    app = make_app(engine)
    async with app.run_test(size=NARROW) as pilot:
        await write(pilot, "early")
        await pilot.pause()
        assert "Writing the demo target  ━━━━━━──────────────────   25 %" in screen_text(app)
        engine.report_load(Loading("Loading the target", 1.0))
        await pilot.press("enter")
        await pilot.pause()
        assert "Loading the target  ━━━━━━━━━━━━━━━━━━━━━━━━  100 %" in screen_text(app)
        assert "waiting for the models" in screen_text(app)
        assert engine.requests == []
        engine.report_load(LOADED)
        await pilot.pause()
        assert not app.chat.query_one(LoadingLine).display
        assert LOADED.target_name in screen_text(app)
        assert sent(engine) == (Message("user", "early"),)


async def test_a_model_without_a_chat_template_is_answered_for_but_once() -> None:
    loaded = replace(LOADED, has_chat_template=False, speculation_note="The draft model cannot roll back")
    engine = ScriptedEngine(load_events=[loaded])
    app = make_app(engine)
    async with app.run_test(size=(160, 36)) as pilot:
        await pilot.pause()
        engine.report_load(loaded)  # the engine died and came back
        await pilot.pause()
        assert screen_text(app).count("no chat template: ChatML is assumed, and the replies may suffer") == 1
        assert screen_text(app).count("The draft model cannot roll back") == 1


async def test_a_model_with_a_chat_template_needs_no_word_about_it() -> None:
    app = make_app(ScriptedEngine())
    async with app.run_test(size=WIDE) as pilot:
        await pilot.pause()
        assert "template" not in screen_text(app)


async def test_links_that_are_defined_at_the_end_of_a_long_reply_are_resolved_when_it_ends() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    text = "See [the docs][1].\n\n" + "A paragraph of some words.\n\n" * 60 + "[1]: https://docs.example\n"
    async with app.run_test(size=(120, 200)) as pilot:
        await send(pilot, "one")
        events = complete(text)
        engine.play(events[:-1])
        await settle(pilot)
        assert len(app.chat.query(Passage)) > 1
        assert "See [the docs][1]." in screen_text(app)
        engine.play(events[-1:])
        await settle(pilot)
        assert "See the docs (https://docs.example)." in screen_text(app)
        for _ in range(2):  # to the origins and back
            await pilot.press("ctrl+o")
        await settle(pilot)
        assert "See the docs (https://docs.example)." in screen_text(app)


async def test_a_notice_and_the_name_of_the_pair_greet_the_user() -> None:
    app = make_app(ScriptedEngine(load_events=[]), notice="This is the [red]demo[/] pair.")
    async with app.run_test() as pilot:
        await pilot.pause()
        assert "This is the [red]demo[/] pair." in screen_text(app)
        assert "demo" in screen_text(app)


async def test_text_of_the_model_and_of_the_user_is_shown_literally() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test(size=WIDE) as pilot:
        await send(pilot, "[red]mine[/red]")
        engine.play(complete("[bold]yours[/] \x1b]0;owned\x07 \u202eabc &#x202e;"))
        await pilot.pause()
        for _ in range(2):
            text = screen_text(app)
            assert "[red]mine[/red]" in text
            assert "[bold]yours[/] ␛]0;owned␇ �abc" in text
            assert not {"\x1b", "\x07", "\u202e"} & set(text)
            await pilot.press("ctrl+o")
            await pilot.pause()


async def test_a_pasted_file_is_sent_whole_and_shown_by_its_beginning() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    text = "\n".join(f"line {n}" for n in range(1000))
    async with app.run_test(size=(80, 60)) as pilot:
        app.chat.query_one(Prompt).text = text
        await pilot.press("enter")
        await pilot.pause()
        assert sent(engine) == (Message("user", text),)
        assert "line 39" in screen_text(app)
        assert "line 40" not in screen_text(app)
        assert "more characters" in screen_text(app)


async def test_an_empty_reply_says_so() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test() as pilot:
        await send(pilot, "one")
        engine.play([Finished("", (), FinishReason.STOP, metrics(n_tokens=1))])
        await pilot.pause()
        assert "an empty reply" in screen_text(app)
        assert prompt(app) == ""


async def test_a_reply_that_is_cut_says_where() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test() as pilot:
        await send(pilot, "one")
        events = reply_events("cut")
        engine.play([*events, finished(events, FinishReason.LENGTH)])
        await pilot.pause()
        assert "cut at the token limit" in screen_text(app)
        await send(pilot, "two")
        engine.play([*events, finished(events, FinishReason.CONTEXT_FULL)])
        await pilot.pause()
        assert "cut where the context is full" in screen_text(app)
        assert "Ctrl+N starts a new chat." in screen_text(app)


async def test_the_transcript_follows_its_end_until_the_user_reads_back() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test(size=NARROW) as pilot:
        await settle(pilot)
        transcript = app.chat.query_one(Transcript)
        assert transcript.scroll_offset.y == 0
        assert screen_text(app).splitlines()[1].strip().startswith("localspec")
        await send(pilot, "one")
        engine.play(reply_events("line\n\n" * 30))
        await settle(pilot)
        assert transcript.is_vertical_scroll_end
        await pilot.press("pageup")
        await settle(pilot)
        place = transcript.scroll_offset.y
        engine.play(reply_events("more\n\n" * 10))
        await settle(pilot)
        assert transcript.scroll_offset.y == place
        await pilot.press(*["pagedown"] * 5)
        await settle(pilot)
        engine.play(reply_events("again\n\n" * 10))
        await settle(pilot)
        assert transcript.is_vertical_scroll_end
        await pilot.press("pageup")
        engine.play([Finished("", (), FinishReason.STOP, metrics())])
        await send(pilot, "two")
        await settle(pilot)
        assert transcript.is_vertical_scroll_end


async def test_a_screen_that_lags_draws_once_for_many_steps() -> None:
    """Steps that come while the screen is busy are one message, one change of the text and one of the numbers."""
    engine = ScriptedEngine()
    app = make_app(engine)
    draws: list[EngineReported] = []

    def watch(message: object) -> None:
        if isinstance(message, EngineReported):
            draws.append(message)

    async with app.run_test(message_hook=watch) as pilot:
        await send(pilot, "one")
        draws.clear()
        events = reply_events("word " * 300)
        assert len(events) > 50
        engine.play(events)  # the loop that draws does not run in between
        await pilot.pause()
        assert len(draws) == 1
        reply = app.chat.session.conversation.exchanges[0].reply
        assert reply.text == "word " * 300
        assert len(app.chat.query_one(Statistics).readings.rates) == 1
        assert len(app.chat.query_one(Statistics).readings.steps) == len(events)


async def test_an_engine_on_a_thread_of_its_own() -> None:
    def on_a_thread(function: Callable[[], None]) -> None:
        thread = threading.Thread(target=function)
        thread.start()
        thread.join()

    engine = ScriptedEngine(caller=on_a_thread)
    app = make_app(engine)
    async with app.run_test(size=NARROW) as pilot:
        await settle(pilot)
        await send(pilot, "one")
        engine.play(complete("from another thread"))
        await settle(pilot)
        assert app.chat.session.conversation.exchanges[0].reply.outcome is Outcome.FINISHED
        assert "from another thread" in screen_text(app)


async def test_quitting_closes_the_engine() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test() as pilot:
        await send(pilot, "one")
        await pilot.press("ctrl+q")
    assert engine.n_closes == 1
    engine.play(complete("after the end"))  # reaches nobody, and breaks nothing


async def test_a_memory_probe_that_fails_costs_nothing_but_its_figures() -> None:
    def probe() -> None:
        raise OSError("no driver")

    app = make_app(ScriptedEngine(), memory_probe=probe)
    async with app.run_test(size=WIDE) as pilot:
        await settle(pilot)
        assert app.chat.query_one(Statistics).readings.memory_rows == [("memory", "–")]
