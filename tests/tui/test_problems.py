"""Errors are shown with what to do next; the prompt is never lost and the program never ends."""

from __future__ import annotations

import pytest

from localspec.engine.events import Failed, LoadFailed, Loading
from localspec.engine.requests import Message
from localspec.errors import (
    ContextFullError,
    DoesNotFitError,
    EngineDiedError,
    EngineError,
    IncompatiblePairError,
    LocalspecError,
    ModelFileError,
    UsageError,
)
from localspec.tui.screens.problem import ProblemDialog
from localspec.tui.widgets.prompt import Prompt
from tests.tui.chat_driver import make_app, prompt, screen_text, send, sent, settle, write
from tests.tui.scripted_engine import LOADED, ScriptedEngine, complete, reply_events

DIED = EngineDiedError("The engine process ended (signal 9).", hint="Send the prompt again.")


@pytest.mark.parametrize(
    ("error", "title"),
    [
        (DIED, "The engine has ended"),
        (EngineError("llama_decode returned 1"), "The engine failed"),
        (ModelFileError("a.gguf is empty."), "The models cannot be used"),
        (IncompatiblePairError("no", rule="r", target_value="1", draft_value="2"), "The models cannot be used"),
        (DoesNotFitError("too big"), "It does not fit"),
        (UsageError("top_k is -1"), "The request cannot be used"),
        (LocalspecError("odd"), "Something went wrong"),
    ],
)
async def test_an_error_is_a_dialog_and_the_prompt_comes_back(error: LocalspecError, title: str) -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test() as pilot:
        await send(pilot, "one")
        engine.play([*reply_events("some words"), Failed("", error)])
        await pilot.pause()
        text = screen_text(app)
        assert title in text
        assert error.message in text
        assert error.hint in text
        await pilot.press("escape")
        await pilot.pause()
        assert app.screen is app.chat
        assert "failed; the prompt is back below" in screen_text(app)
        assert "some words" in screen_text(app)
        assert prompt(app) == "one"
        assert app.focused is app.chat.query_one(Prompt)


async def test_after_the_engine_died_the_next_prompt_just_works() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test() as pilot:
        await send(pilot, "one")
        engine.play([Failed("", DIED)])
        await pilot.pause()
        await pilot.press("enter")  # closes the dialog
        await pilot.press("enter")  # sends what came back
        await pilot.pause()
        engine.report_load(Loading("Loading the target", 0.5))  # the engine starts again by itself
        await pilot.pause()
        assert "Loading the target" in screen_text(app)
        engine.report_load(LOADED)
        engine.play(complete("here again"))
        await settle(pilot)
        assert "here again" in screen_text(app)
        assert len(engine.requests) == 2
        assert sent(engine, 1) == (Message("user", "one"),)


async def test_a_failed_prompt_does_not_push_out_the_next_one() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test() as pilot:
        await send(pilot, "one")
        await write(pilot, "two")
        engine.play([Failed("", DIED)])
        await pilot.pause()
        assert prompt(app) == "one\n\ntwo"


async def test_asking_again_after_a_failure_takes_the_prompt_out_of_the_input() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test() as pilot:
        await send(pilot, "one")
        engine.play([Failed("", DIED)])
        await pilot.pause()
        await pilot.press("escape", "ctrl+r")
        await pilot.pause()
        assert len(engine.requests) == 2
        assert prompt(app) == ""


async def test_a_full_context_offers_a_new_chat() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test() as pilot:
        await send(pilot, "one")
        engine.play(complete("reply"))
        await send(pilot, "two")
        engine.play([Failed("", ContextFullError.for_prompt(9000, 8192))])
        await pilot.pause()
        assert "9000" in screen_text(app)
        assert "8192" in screen_text(app)
        await pilot.press("tab", "enter")  # the second button: the first loses nothing
        await settle(pilot)
        assert app.chat.session.conversation.exchanges == []
        assert prompt(app) == "two"
        await pilot.press("enter")
        await pilot.pause()
        assert sent(engine, -1) == (Message("user", "two"),)


async def test_a_dialog_closes_without_its_remedy() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test() as pilot:
        await send(pilot, "one")
        engine.play([Failed("", ContextFullError.for_prompt(9000, 8192))])
        await pilot.pause()
        await pilot.press("enter")
        await pilot.pause()
        assert app.screen is app.chat
        assert len(app.chat.session.conversation.exchanges) == 1


async def test_models_that_cannot_be_loaded_are_tried_again() -> None:
    engine = ScriptedEngine(
        load_events=[LoadFailed(ModelFileError("target.gguf is empty.", hint="Download it again."))]
    )
    app = make_app(engine)
    async with app.run_test() as pilot:
        await pilot.pause()
        assert "target.gguf is empty." in screen_text(app)
        engine.load_events = [LOADED]
        await pilot.press("enter")
        await settle(pilot)
        assert engine.n_loads == 2
        assert LOADED.target_name in screen_text(app)


async def test_a_prompt_that_waited_for_models_comes_back_when_they_fail_and_loads_them_when_sent() -> None:
    engine = ScriptedEngine(load_events=[])
    app = make_app(engine)
    async with app.run_test() as pilot:
        await send(pilot, "early")
        engine.report_load(LoadFailed(ModelFileError("target.gguf is empty.")))
        await pilot.pause()
        await pilot.press("escape")
        assert prompt(app) == "early"
        engine.load_events = [LOADED]
        await pilot.press("enter")
        await pilot.pause()
        assert engine.n_loads == 2
        assert len(engine.requests) == 1


async def test_a_load_that_fails_under_a_reply_is_told_once() -> None:
    """The engine reports it to the load and to the reply; the user sees one dialog."""
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test() as pilot:
        await send(pilot, "one")
        engine.report_load(LoadFailed(DIED))
        engine.play([Failed("", DIED)])
        await pilot.pause()
        assert isinstance(app.screen, ProblemDialog)
        await pilot.press("escape")
        assert app.screen_stack == [app.chat]
        assert prompt(app) == "one"


@pytest.mark.parametrize("when", ["load", "submit"])
async def test_an_engine_that_refuses_at_once_is_told_like_any_error(when: str) -> None:
    error = EngineError("The engine was closed.", hint="Start again.")
    engine = ScriptedEngine(refuses_load=error if when == "load" else None, refuses_submit=error)
    app = make_app(engine)
    async with app.run_test() as pilot:
        await pilot.pause()
        if when == "submit":
            await send(pilot, "one")
            assert prompt(app) == "one"
            assert app.chat.session.open is None
        assert "The engine was closed." in screen_text(app)
        assert "Start again." in screen_text(app)


async def test_a_request_refused_after_the_load_gives_the_waiting_prompt_back() -> None:
    engine = ScriptedEngine(load_events=[], refuses_submit=EngineError("closed"))
    app = make_app(engine)
    async with app.run_test() as pilot:
        await send(pilot, "early")
        engine.report_load(LOADED)
        await pilot.pause()
        assert isinstance(app.screen, ProblemDialog)
        assert prompt(app) == "early"


async def test_the_text_of_an_error_is_not_trusted() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test() as pilot:
        await send(pilot, "one")
        engine.play([Failed("", ModelFileError("[red]evil\x1b[31m[/nothing]", hint="\u202e[bold]"))])
        await pilot.pause()
        assert "[red]evil␛[31m[/nothing]" in screen_text(app)
        assert "�[bold]" in screen_text(app)


async def test_a_long_error_scrolls() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        await send(pilot, "one")
        engine.play([Failed("", EngineError("line\n" * 100, hint="the end"))])
        await pilot.pause()
        await pilot.press("enter")
        await pilot.pause()
        assert app.screen is app.chat
