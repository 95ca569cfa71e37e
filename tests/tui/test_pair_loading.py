"""From a choice to the engine: downloads first, running replies in peace, the draft model without the target."""

from __future__ import annotations

from dataclasses import replace

import pytest
from textual.pilot import Pilot

from localspec.engine.events import Cancelled, Loading, SwapFailed
from localspec.engine.requests import Message, Mode, ModelSpec, PairSpec
from localspec.errors import (
    DiskFullError,
    EngineError,
    IncompatiblePairError,
    LocalspecError,
)
from localspec.pairing.chosen import ChosenPair, ReadyPair
from localspec.pairing.downloads import DownloadState
from localspec.pairing.drafts import Place
from localspec.pairing.service import Listing
from localspec.tui.messages import PairChosen
from localspec.tui.screens.pair import PairScreen
from localspec.tui.screens.problem import ProblemDialog
from localspec.tui.session import Readiness
from localspec.tui.widgets.downloads import DownloadRows
from tests.tui.chat_driver import NARROW, PAIR, make_app, prompt, screen_text, send, sent, settle, until, until_shown
from tests.tui.scripted_engine import LOADED, ScriptedEngine, complete, metrics, reply_events
from tests.tui.scripted_pairs import FOLDER, GB, ScriptedPairs, draft, entry, remote, resolved, target

LLAMA = replace(LOADED, target_name="Llama 3.1 8B", draft_name="Llama 3.2 1B")


def far_pairs() -> ScriptedPairs:
    """Nothing is here; one target is suggested, with one draft."""
    return ScriptedPairs(
        here=Listing((entry("SmolLM2-135M", loaded_as="target"), entry("SmolLM2-135M-Q4", loaded_as="draft"))),
        known=Listing((entry("Llama-3.1-8B", Place.REGISTRY),)),
        target_of=lambda chosen, _: target(chosen.name, here=False, quantization="Q4_K_M"),
        drafts_of=lambda of: [draft("Llama-3.2-1B", of, Place.REGISTRY)],
    )


TARGET = "acme/Llama-3.1-8B-GGUF:Q4_K_M"
DRAFT = "acme/Llama-3.2-1B-GGUF:Q8_0"


async def choose(pilot: Pilot[None]) -> None:
    """From the chat to a chosen pair, in three keys."""
    await settle(pilot)
    await pilot.press("f2")
    await until_shown(pilot, "Llama-3.1-8B")
    await pilot.press("enter")
    await until_shown(pilot, "Drafts for", "Llama-3.2-1B", "✓ fits")
    await until(pilot, lambda: "Looking" not in screen_text(pilot.app))
    await pilot.press("enter")
    await pilot.pause()


# --- the first run ----------------------------------------------------------------------------------------------------


async def test_from_nothing_to_a_chat_in_three_keys_and_a_prompt() -> None:
    engine, pairs = ScriptedEngine(), far_pairs()
    app = make_app(engine, pairs=pairs, is_first_run=True)
    async with app.run_test(size=NARROW) as pilot:
        await settle(pilot)
        assert "F2 chooses models for this machine; or just type." in screen_text(app)
        await choose(pilot)
        await until_shown(
            pilot, "Llama-3.1-8B-GGUF:Q4", "Llama-3.2-1B-GGUF:Q8_0", "It is loaded as soon as it is here."
        )
        assert [each for _, each in pairs.downloads.asked] == [TARGET, DRAFT]
        pairs.downloads.change(TARGET, n_done_bytes=GB, bytes_per_second=12e6, seconds_left=192.0)
        await until_shown(pilot, "1.00 GB of 4.90 GB  12 MB/s  3:12 min left")
        assert engine.n_loads == 1  # the demo pair
        pairs.downloads.finish(DRAFT)
        await until_shown(pilot, "✓ 500 MB, here")
        path = pairs.downloads.finish(TARGET)
        await until(pilot, lambda: app.screen is app.chat)
        assert engine.pairs[-1].target.path == path
        assert engine.pairs[-1].draft is not None
        engine.report_load(LLAMA)
        await send(pilot, "hi")
        engine.play(complete("Hello from Llama."))
        await until_shown(pilot, "Hello from Llama.", "From here on Llama 3.1 8B answers, with Llama 3.2 1B.")
        assert "F2 chooses models" not in screen_text(app)


async def test_without_any_pair_the_choice_comes_first() -> None:
    engine, pairs = ScriptedEngine(load_events=()), far_pairs()
    app = make_app(engine, None, pairs=pairs)
    async with app.run_test(size=NARROW, notifications=True) as pilot:
        await until_shown(pilot, "Llama-3.1-8B")
        assert isinstance(app.screen, PairScreen)
        await pilot.press("escape")
        await until_shown(pilot, "No models are loaded yet. F2 chooses them.")
        await send(pilot, "too early")
        await pilot.pause()
        assert prompt(app) == "too early"
        assert engine.requests == []
        await choose(pilot)
        pairs.downloads.finish(TARGET)
        pairs.downloads.finish(DRAFT)
        await until(pilot, lambda: engine.n_loads == 1)
        engine.report_load(LLAMA)
        await until(pilot, lambda: app.screen is app.chat)
        await pilot.press("enter")
        await until(pilot, lambda: len(engine.requests) == 1)


# --- downloads --------------------------------------------------------------------------------------------------------


async def test_leaving_the_screen_keeps_the_downloads_and_the_chat_shows_them() -> None:
    engine, pairs = ScriptedEngine(), far_pairs()
    app = make_app(engine, pairs=pairs, is_first_run=True)
    async with app.run_test(size=NARROW) as pilot:
        await choose(pilot)
        await pilot.press("f2")
        pairs.downloads.change(TARGET, n_done_bytes=2 * GB, bytes_per_second=10e6)
        await until_shown(pilot, "2 downloads: 37 % of 5.40 GB  10 MB/s  5:40 min left  F2 shows them")
        assert not any(what == "stop" for what, _ in pairs.downloads.asked)
        await send(pilot, "meanwhile")
        engine.play(complete("the demo pair answers"))
        await until_shown(pilot, "the demo pair answers")
        await pilot.press("f2")
        await until_shown(pilot, "Llama-3.1-8B-GGUF:Q4", "2.00 GB of 4.90 GB")


async def test_a_download_is_stopped_kept_resumed_and_taken_away() -> None:
    engine, pairs = ScriptedEngine(), far_pairs()
    app = make_app(engine, pairs=pairs, is_first_run=True)
    async with app.run_test(size=NARROW) as pilot:
        await choose(pilot)
        app.screen.query_one(DownloadRows).focus()
        await pilot.press("delete")
        await until_shown(pilot, "stopped, 0 B of 4.90 GB are kept")
        pairs.downloads.finish(DRAFT)
        await settle(pilot)
        assert engine.n_loads == 1  # the pair is not loaded without its target
        await pilot.press("enter")
        await until_shown(pilot, "0 B of 4.90 GB  waiting")
        assert pairs.downloads.asked[-2:] == [("stop", TARGET), ("resume", TARGET)]
        pairs.downloads.finish(TARGET)
        await until(pilot, lambda: engine.n_loads == 2)  # it was waited for


async def test_who_takes_a_download_away_does_not_want_its_pair() -> None:
    engine, pairs = ScriptedEngine(), far_pairs()
    app = make_app(engine, pairs=pairs, is_first_run=True)
    async with app.run_test(size=NARROW) as pilot:
        await choose(pilot)
        app.screen.query_one(DownloadRows).focus()
        await pilot.press("delete", "delete", "delete", "delete")
        await until(pilot, lambda: pairs.downloads.rows == ())
        assert not app.screen.query_one(DownloadRows).display
        for name, quantization in (("Llama-3.1-8B", "Q4_K_M"), ("Llama-3.2-1B", "Q8_0")):
            pairs.downloads.start(remote(name, quantization))
        pairs.downloads.finish(TARGET)
        pairs.downloads.finish(DRAFT)
        await settle(pilot)
        assert engine.n_loads == 1


async def test_a_failed_download_is_told_of_wherever_one_is() -> None:
    error = DiskFullError("4.90 GB are to be downloaded; 1.00 GB are free.", hint="Make room.")
    engine, pairs = ScriptedEngine(), far_pairs()
    app = make_app(engine, pairs=pairs, is_first_run=True)
    async with app.run_test(size=NARROW, notifications=True) as pilot:
        await choose(pilot)
        pairs.downloads.change(TARGET, state=DownloadState.FAILED, error=error)
        await until_shown(pilot, "✗ failed: 4.90 GB are to be", "1.00 GB are free.", "Make room.")
        pairs.downloads.resume(TARGET)
        await pilot.press("f2")
        await pilot.pause()
        pairs.downloads.change(TARGET, state=DownloadState.FAILED, error=error)
        await until_shown(pilot, "Make room.")
        assert app.screen is app.chat
        assert engine.n_loads == 1


async def test_what_is_here_by_now_is_not_fetched_again() -> None:
    engine, pairs = ScriptedEngine(), far_pairs()
    app = make_app(engine, pairs=pairs, is_first_run=True)
    async with app.run_test(size=NARROW) as pilot:
        await choose(pilot)
        pairs.downloads.finish(TARGET)
        pairs.downloads.finish(DRAFT)
        await until(pilot, lambda: engine.n_loads == 2)
        await pilot.press("f2")
        await until_shown(pilot, "Drafts for", "here = identical", "● Llama-3.2-1B")
        assert pairs.downloads.rows == ()  # done with
        engine.report_load(LLAMA)
        await pilot.press("down", "enter")
        await until(pilot, lambda: engine.drafts == [None])
        assert [what for what, _ in pairs.downloads.asked] == ["start", "start", "forget", "forget"]


async def test_the_end_of_the_chat_ends_the_downloads() -> None:
    engine, pairs = ScriptedEngine(), far_pairs()
    app = make_app(engine, pairs=pairs)
    async with app.run_test() as pilot:
        await pilot.press("f2")
    assert (pairs.n_closes, engine.n_closes) == (1, 1)
    pairs.downloads.on_change()  # a late one finds nobody, and that is no error


# --- the engine -------------------------------------------------------------------------------------------------------


def near_pairs() -> ScriptedPairs:
    """The target of the pair that is loaded, with two drafts that are here."""
    return ScriptedPairs(
        here=Listing((entry("target", loaded_as="target"),)),
        target_of=lambda chosen, _: replace(
            target(chosen.name), model=replace(resolved("target"), path=PAIR.target.path)
        ),
        drafts_of=lambda of: [draft("small", of), draft("tiny", of)],
    )


async def choose_near(pilot: Pilot[None], *keys: str) -> None:
    await settle(pilot)
    await pilot.press("f2")
    await until_shown(pilot, "● target")
    await pilot.press("enter")
    await until_shown(pilot, "small", "tiny")
    await until(pilot, lambda: "Looking" not in screen_text(pilot.app))
    await pilot.press(*keys, "enter")
    await pilot.pause()


async def test_another_draft_is_exchanged_without_loading_the_target_again_and_the_history_stays() -> None:
    engine = ScriptedEngine()
    app = make_app(engine, pairs=near_pairs())
    async with app.run_test(size=NARROW) as pilot:
        await send(pilot, "one")
        engine.play(complete("first"))
        await choose_near(pilot)
        assert app.screen is app.chat
        assert (engine.n_loads, engine.drafts) == (1, [ModelSpec(FOLDER / "small.gguf")])
        engine.report_swap(Loading("Loading the draft", 0.5))
        await until_shown(pilot, "Loading the draft")
        await send(pilot, "two")  # waits for it
        assert len(engine.requests) == 1
        engine.report_swap(replace(LOADED, draft_name="Small"))
        await until(pilot, lambda: len(engine.requests) == 2)
        assert sent(engine)[:2] == (Message("user", "one"), Message("assistant", "first"))
        engine.play(complete("second"))
        await until_shown(pilot, "The draft model from here on: Small.", "second")
        assert app.chat.session.pair == replace(PAIR, name="target", draft=ModelSpec(FOLDER / "small.gguf"))


async def test_the_draft_can_be_taken_away_and_the_modes_follow() -> None:
    engine = ScriptedEngine()
    app = make_app(engine, pairs=near_pairs())
    async with app.run_test(size=NARROW) as pilot:
        await settle(pilot)
        await pilot.press("ctrl+t")  # draft mode
        await choose_near(pilot, "down", "down")
        assert engine.drafts == [None]
        engine.report_swap(replace(LOADED, draft_name=None))
        await until_shown(
            pilot, "The draft model from here on: no draft model.", "none: drafts come from prompt lookup"
        )
        names = [command.title for command in app.get_system_commands(app.screen)]
        assert [name for name in names if name.startswith("Mode")] == ["Mode: auto", "Mode: plain"]
        assert app.chat.session.mode.value == "auto"


@pytest.mark.parametrize("restored", [LOADED, replace(LOADED, draft_name=None), None])
async def test_a_draft_that_is_refused_leaves_a_pair_that_answers(restored: object) -> None:
    error = IncompatiblePairError(
        "small cannot draft for it.", rule="r", target_value="1", draft_value="2", hint="Try."
    )
    engine = ScriptedEngine()
    app = make_app(engine, pairs=near_pairs())
    async with app.run_test(size=NARROW) as pilot:
        await choose_near(pilot)
        engine.report_swap(SwapFailed(error, restored))  # type: ignore[arg-type]
        await until_shown(pilot, "small cannot draft for it.", "Try.")
        assert isinstance(app.screen, ProblemDialog)
        kept = PAIR if restored != replace(LOADED, draft_name=None) else replace(PAIR, draft=None)
        assert app.chat.session.pair == kept
        if restored is None:  # the engine has died meanwhile
            assert app.chat.session.readiness is Readiness.FAILED
            await pilot.press("enter")  # Try again
            await until(pilot, lambda: engine.n_loads == 2)
        else:
            await pilot.press("escape")
        await send(pilot, "still there?")
        await until(pilot, lambda: len(engine.requests) == 1)


async def test_the_pair_that_is_loaded_already_is_not_loaded_again() -> None:
    def drafts_of(of: object) -> list[object]:
        assert PAIR.draft is not None
        found = draft("draft", of)  # type: ignore[arg-type]
        return [replace(found, model=replace(found.model, path=PAIR.draft.path))]

    engine, pairs = ScriptedEngine(), near_pairs()
    pairs.drafts_of = drafts_of  # type: ignore[assignment]
    app = make_app(engine, pairs=pairs)
    async with app.run_test(size=NARROW, notifications=True) as pilot:
        await settle(pilot)
        await pilot.press("f2")
        await until_shown(pilot, "● target")
        await pilot.press("enter")
        await until_shown(pilot, "● draft")
        await until(pilot, lambda: "Looking" not in screen_text(app))
        await pilot.press("enter")
        await until_shown(pilot, "This pair is loaded already.")
        assert (engine.n_loads, engine.drafts) == (1, [])


async def test_a_running_reply_is_never_cut_off() -> None:
    engine = ScriptedEngine()
    app = make_app(engine, pairs=near_pairs())
    async with app.run_test(size=NARROW) as pilot:
        await send(pilot, "one")
        engine.play(reply_events("a long"))
        await choose_near(pilot)
        await until_shown(pilot, "A reply runs: the pair is loaded when it has ended.")
        assert engine.drafts == []
        await pilot.press("f2", "escape")
        engine.play([Cancelled("", (), metrics(n_tokens=2))])
        await until(pilot, lambda: len(engine.drafts) == 1)
        assert engine.cancelled == [engine.requests[0].request_id]


async def test_the_last_choice_wins() -> None:
    engine = ScriptedEngine()
    app = make_app(engine, pairs=near_pairs())
    async with app.run_test(size=NARROW) as pilot:
        await send(pilot, "one")
        await choose_near(pilot)
        await pilot.press("down", "enter")
        await pilot.pause()
        engine.play(complete("done"))
        await until(pilot, lambda: engine.drafts == [ModelSpec(FOLDER / "tiny.gguf")])
        await settle(pilot)
        assert len(engine.drafts) == 1


async def test_the_end_of_a_load_that_another_one_replaced_is_not_shown() -> None:
    engine = ScriptedEngine(load_events=())
    app = make_app(engine, pairs=near_pairs())
    async with app.run_test(size=NARROW) as pilot:
        await settle(pilot)
        first = engine._load_listener
        assert first is not None
        app.chat.use_pair(PairSpec("other", ModelSpec(FOLDER / "other.gguf")))
        await pilot.pause()
        from localspec.engine.events import LoadFailed

        first(LoadFailed(EngineError("Loading was stopped.")))
        await pilot.pause()
        assert app.screen is app.chat
        assert app.chat.session.readiness is Readiness.LOADING
        engine.report_load(LOADED)
        await pilot.pause()
        assert app.chat.session.readiness is Readiness.READY


async def test_a_pair_drafts_as_it_was_tuned_and_the_next_one_does_not() -> None:
    engine, pairs = ScriptedEngine(), near_pairs()

    def tuned(ready: ReadyPair) -> ReadyPair:
        if ready.spec.draft is None:
            return ready
        changes = {"mode": Mode.DRAFT, "num_speculative_tokens": 5, "fixed_length": True}
        return replace(ready, **changes, notice="Settings as tuned on 2026-11-30: mode draft.")  # type: ignore[arg-type]

    pairs.tuned = tuned
    app = make_app(engine, pairs=pairs)
    async with app.run_test(size=NARROW, notifications=True) as pilot:
        await choose_near(pilot)
        await until_shown(pilot, "Settings as tuned on")
        engine.report_load(LOADED)
        await send(pilot, "one")
        request = engine.requests[-1]
        assert (request.mode, request.num_speculative_tokens, request.fixed_length) == (Mode.DRAFT, 5, True)
        engine.play(complete("A reply."))
        await until_shown(pilot, "A reply.")
        pairs.tuned = lambda ready: ready
        app.post_message(PairChosen(ChosenPair(target("other"), None)))
        await until(pilot, lambda: engine.pairs[-1].draft is None)
        engine.report_load(replace(LOADED, draft_name=None))
        await send(pilot, "two")
        request = engine.requests[-1]
        assert (request.mode, request.num_speculative_tokens, request.fixed_length) == (Mode.AUTO, None, False)


async def test_a_mode_that_was_chosen_by_key_outlives_pairs_that_nobody_tuned() -> None:
    engine = ScriptedEngine()
    app = make_app(engine, pairs=near_pairs())
    async with app.run_test(size=NARROW) as pilot:
        await settle(pilot)
        await pilot.press("ctrl+t", "ctrl+t")
        await choose_near(pilot)
        await until(pilot, lambda: app.screen is app.chat)
        engine.report_load(LOADED)
        await send(pilot, "one")
        assert engine.requests[-1].mode is Mode.LOOKUP


async def test_a_pair_that_cannot_be_built_says_so() -> None:
    class Refusing(ScriptedPairs):
        def ready(self, chosen: object, fetched: object) -> ReadyPair:
            raise LocalspecError("It is gone.", hint="Look again.")

    pairs = near_pairs()
    app = make_app(
        ScriptedEngine(), pairs=Refusing(here=pairs.here, target_of=pairs.target_of, drafts_of=pairs.drafts_of)
    )
    async with app.run_test(size=NARROW) as pilot:
        await choose_near(pilot)
        await until_shown(pilot, "It is gone. Look again.")
