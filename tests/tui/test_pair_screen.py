"""Choosing a pair: what the screen shows, and that every key does what it says."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Footer

from localspec.errors import HubUnreachableError, LocalspecError, ModelFileError, OfflineError, UsageError
from localspec.models.compat import PairVerdict, Reason, Verdict
from localspec.pairing.drafts import DraftOption, Place
from localspec.pairing.fit import Fit
from localspec.pairing.service import Listing, Quantization
from localspec.pairing.targets import TargetEntry
from localspec.tui.app import ChatApp
from localspec.tui.screens.pair import PairScreen
from localspec.tui.widgets.row_list import RowList
from tests.tui.chat_driver import NARROW, WIDE, make_app, screen_text, settle, until, until_shown, write
from tests.tui.scripted_engine import ScriptedEngine
from tests.tui.scripted_pairs import GB, WARNING, ScriptedPairs, draft, entry, planned, refused, remote, target

OFFLINE = OfflineError("Offline mode forbids to ask the Hub.", hint="Take HF_HUB_OFFLINE out of the environment.")


def some_pairs(**changes: Any) -> ScriptedPairs:
    values: dict[str, Any] = {
        "here": Listing((entry("Qwen3-8B"), entry("SmolLM2-1.7B", quantization="Q8_0"))),
        "known": Listing((entry("Llama-3.1-8B", Place.REGISTRY),)),
        "drafts_of": lambda of: [draft("Qwen3-0.6B", of), refused("Mistral-0.5B")],
    }
    return ScriptedPairs(**values | changes)


async def opened(pilot: Pilot[None], *texts: str) -> None:
    """The screen, with the lists of both places."""
    await settle(pilot)
    await pilot.press("f2")
    await until_shown(pilot, "On this machine", *texts)


async def at_drafts(pilot: Pilot[None], name: str = "Qwen3-8B") -> None:
    await opened(pilot, name)
    await pilot.press("enter")
    await until_shown(pilot, f"Drafts for {name}")
    await until(pilot, lambda: "Looking" not in screen_text(pilot.app))


def highlighted(app: ChatApp) -> str:
    """The line that the next Enter takes."""
    shown = next(each for each in app.screen.query(RowList) if each.display and each.parent and each.parent.display)
    row = next((row for row in shown._rows if row.key == shown.highlighted_key), None)
    return row.set(120).plain.strip() if row is not None else ""


# --- targets ----------------------------------------------------------------------------------------------------------


async def test_targets_are_listed_with_size_quantization_context_and_fit() -> None:
    pairs = some_pairs(
        here=Listing(
            (
                entry("Qwen3-8B", loaded_as="target"),
                entry("Huge-70B", n_bytes=42 * GB, fit=Fit.TOO_LARGE),
                entry("Big-32B", fit=Fit.PARTLY),
            )
        )
    )
    app = make_app(ScriptedEngine(), pairs=pairs)
    async with app.run_test(size=NARROW) as pilot:
        await opened(pilot, "Qwen3-8B", "Llama-3.1-8B")
        lines = [" ".join(line.split()) for line in screen_text(app).splitlines()]
        assert "● Qwen3-8B Q4_K_M 4.90 GB 128k ✓ fits" in lines
        assert "Huge-70B Q4_K_M 42.00 GB 128k ✗ too large" in lines
        assert "Big-32B Q4_K_M 4.90 GB 128k ◐ partly" in lines
        assert "Llama-3.1-8B Q4_K_M ~4.90 GB – ✓ fits" in lines  # guessed, and so it says
        assert "8.0B · Q4_K_M · 4.90 GB · context 131,072 · apache-2.0" in lines


async def test_typing_filters_the_list_at_once_and_backspace_takes_it_back() -> None:
    app = make_app(ScriptedEngine(), pairs=some_pairs())
    async with app.run_test(size=NARROW) as pilot:
        await opened(pilot, "Qwen3-8B", "Llama")
        await write(pilot, "smol q8")  # typed over the list
        await until(pilot, lambda: "Qwen3-8B" not in screen_text(app))
        assert "SmolLM2-1.7B" in screen_text(app)
        assert "none of 1 has that name" in screen_text(app)
        await pilot.press("down")
        assert highlighted(app).startswith("SmolLM2-1.7B")
        await pilot.press(*["backspace"] * 7)
        await until_shown(pilot, "Qwen3-8B", "Llama-3.1-8B")


async def test_enter_in_the_field_searches_the_hub_and_leads_to_what_was_found() -> None:
    found = entry("acme/Phi-4-mini-GGUF", Place.HUB, is_gated=True)
    pairs = some_pairs(on_hub=Listing((found,)), forms=[Quantization(remote("Phi-4-mini", "Q4_K_M"), Fit.FITS)])
    app = make_app(ScriptedEngine(), pairs=pairs)
    async with app.run_test(size=NARROW) as pilot:
        await opened(pilot, "Qwen3-8B")
        await write(pilot, "phi mini")
        await pilot.press("enter")
        await until_shown(
            pilot, "acme/Phi-4-mini-GGUF", "On the Hub, for 'phi mini'", "(gated)", "Its licence is to be accepted"
        )
        assert pairs.searched == ["phi mini"]
        assert highlighted(app).startswith("acme/Phi-4-mini-GGUF")


async def test_an_empty_list_explains_itself() -> None:
    note = "There is no model on this machine yet. Choose one below, or search the Hub."
    pairs = some_pairs(here=Listing((), (note,)), known=Listing(()), on_hub=Listing((), ("The Hub has none.",)))
    app = make_app(ScriptedEngine(), pairs=pairs)
    async with app.run_test(size=NARROW) as pilot:
        await opened(pilot, note)
        assert "Type a name above and press Enter to search the Hub." in screen_text(app)
        await write(pilot, "x")
        await pilot.press("enter")
        await until_shown(pilot, "The Hub has none.")


async def test_a_failed_search_shows_its_hint_and_loses_nothing() -> None:
    pairs = some_pairs(on_hub=Listing((entry("first", Place.HUB),)))
    app = make_app(ScriptedEngine(), pairs=pairs)
    async with app.run_test(size=NARROW) as pilot:
        await opened(pilot, "Qwen3-8B")
        await write(pilot, "fir")
        await pilot.press("enter")
        await until_shown(pilot, "first")
        pairs.on_hub = OFFLINE
        await write(pilot, "s")
        await pilot.press("enter")
        await until_shown(pilot, OFFLINE.message, OFFLINE.hint, "first")
        assert app.screen is not app.chat


async def test_a_broken_models_toml_does_not_hide_what_is_here() -> None:
    pairs = some_pairs(known=UsageError("models.toml, line 7: it is broken.", hint="Correct that line."))
    app = make_app(ScriptedEngine(), pairs=pairs)
    async with app.run_test(size=NARROW) as pilot:
        await opened(pilot, "Qwen3-8B", "models.toml, line 7: it is broken.", "Correct that line.")


async def test_a_programming_error_of_a_question_is_shown_and_ends_nothing() -> None:
    pairs = some_pairs(target_of=lambda *_: 1 / 0)
    app = make_app(ScriptedEngine(), pairs=pairs)
    async with app.run_test(size=NARROW) as pilot:
        await opened(pilot, "Qwen3-8B")
        await pilot.press("enter")
        await until_shown(pilot, "ZeroDivisionError")
        await pilot.press("escape")
        assert app.screen is app.chat


async def test_what_is_too_large_is_chosen_by_a_second_enter_only() -> None:
    pairs = some_pairs(here=Listing((entry("Huge-70B", fit=Fit.TOO_LARGE),)))
    app = make_app(ScriptedEngine(), pairs=pairs)
    async with app.run_test(size=NARROW) as pilot:
        await opened(pilot, "Huge-70B")
        await pilot.press("enter")
        await until_shown(pilot, "Enter again chooses it all the same")
        assert "Drafts for" not in screen_text(app)
        await pilot.press("enter")
        await until_shown(pilot, "Drafts for Huge-70B")


async def test_a_target_that_cannot_be_read_says_why_and_another_can_be_chosen() -> None:
    def target_of(chosen: TargetEntry, _: object) -> Any:
        if chosen.name == "Qwen3-8B":
            raise ModelFileError("Qwen3-8B.gguf is truncated.", hint="Download it again.")
        return target(chosen.name)

    app = make_app(ScriptedEngine(), pairs=some_pairs(target_of=target_of))
    async with app.run_test(size=NARROW) as pilot:
        await opened(pilot, "Qwen3-8B")
        await pilot.press("enter")
        await until_shown(pilot, "Qwen3-8B.gguf is truncated. Download it again.")
        await pilot.press("down", "enter")
        await until_shown(pilot, "Drafts for SmolLM2-1.7B")
        assert "truncated" not in screen_text(app)


async def test_an_answer_that_nobody_waits_for_any_more_changes_nothing() -> None:
    gate = threading.Event()
    pairs = some_pairs(may_answer=lambda: gate.wait(20) and None)
    app = make_app(ScriptedEngine(), pairs=pairs)
    async with app.run_test(size=NARROW) as pilot:
        await opened(pilot, "Qwen3-8B")
        await pilot.press("enter")
        await until_shown(pilot, "Reading the header of Qwen3-8B")
        await pilot.press("down", "enter")  # another one
        await until_shown(pilot, "Reading the header of SmolLM2-1.7B")
        gate.set()
        await until_shown(pilot, "Drafts for SmolLM2-1.7B")
        await settle(pilot)
        assert "Drafts for SmolLM2-1.7B" in screen_text(app)


# --- quantizations ----------------------------------------------------------------------------------------------------


async def test_a_repository_asks_for_a_quantization_and_offers_the_best() -> None:
    forms = [
        Quantization(remote("Phi", "Q8_0", 8 * GB), Fit.TOO_LARGE),
        Quantization(remote("Phi", "Q4_K_M", 4 * GB), Fit.FITS, is_best=True),
        Quantization(remote("Phi", "Q2_K", 2 * GB), Fit.FITS),
    ]
    taken: list[str] = []

    def target_of(chosen: TargetEntry, form: Any) -> Any:
        taken.append(form.quantization)
        return target(chosen.name, here=False, quantization=form.quantization)

    pairs = some_pairs(on_hub=Listing((entry("Phi", Place.HUB),)), forms=forms, target_of=target_of)
    app = make_app(ScriptedEngine(), pairs=pairs)
    async with app.run_test(size=NARROW) as pilot:
        await opened(pilot, "Qwen3-8B")
        await write(pilot, "phi")
        await pilot.press("enter")
        await until_shown(pilot, "for 'phi'", "Phi ")
        await pilot.press("enter")
        await until_shown(pilot, "Q8_0", "8.00 GB ✗ too large", "→ Q4_K_M")
        await pilot.press("enter")
        await until_shown(pilot, "Drafts for Phi")
        assert taken == ["Q4_K_M"]


async def test_f3_offers_other_quantizations_of_a_draft_that_is_not_here() -> None:
    of = target("Qwen3-8B")
    far = draft("Qwen3-0.6B", of, Place.REGISTRY)
    small = draft("Qwen3-0.6B", of, Place.HUB, model=far.model, warnings=(WARNING,))
    form = Quantization(remote("Qwen3-0.6B", "Q4_0", 400_000_000), Fit.FITS, draft=replace(small, model=_other(far)))
    pairs = some_pairs(target_of=lambda *_: of, drafts_of=lambda _: [far], forms=[form])
    app = make_app(ScriptedEngine(), pairs=pairs)
    async with app.run_test(size=NARROW) as pilot:
        await at_drafts(pilot)
        assert "500 MB" in highlighted(app)
        await pilot.press("f3")
        await until_shown(pilot, "acme/Qwen3-0.6B-GGUF", "Q4_0", "400 MB")
        await pilot.press("enter")
        await pilot.pause()
        assert "400 MB" in highlighted(app)
        await pilot.press("down", "f3")
        await pilot.pause()
        assert isinstance(app.screen, PairScreen)  # there is nothing to choose for "no draft model"


def _other(option: DraftOption) -> Any:
    form = remote("Qwen3-0.6B", "Q4_0", 400_000_000)
    header = replace(option.model.header, path=option.model.header.path.with_name(form.files[0].name))
    return replace(option.model, reference=form.reference, header=header, remote=form)


# --- drafts -----------------------------------------------------------------------------------------------------------


async def test_drafts_are_ranked_with_verdict_fit_and_speed_and_the_best_is_highlighted() -> None:
    def drafts_of(of: Any) -> list[DraftOption]:
        reason = Reason("vocabulary size", "151,936", "151,665", "the larger vocabulary has tokens at its end")
        close = PairVerdict(Verdict.COMPATIBLE, (reason,))
        large = draft("Qwen3-4B", of)
        return [
            refused("Mistral-0.5B"),
            replace(large, plan=planned(of.model, None)),
            draft("Qwen3-1.7B", of, Place.REGISTRY, verdict=close, warnings=(WARNING,)),
            draft("Qwen3-0.6B", of, prediction=replace(large.prediction, speedup=1.9)),
        ]

    app = make_app(ScriptedEngine(), pairs=some_pairs(drafts_of=drafts_of, notes=["One was not looked at."]))
    async with app.run_test(size=WIDE) as pilot:
        await at_drafts(pilot)
        lines = [" ".join(line.split()) for line in screen_text(app).splitlines()]
        first, second, third, none, last = (
            next(number for number, line in enumerate(lines) if line.startswith(text))
            for text in ("Qwen3-0.6B here", "Qwen3-1.7B", "Qwen3-4B", "no draft model", "Mistral-0.5B")
        )
        assert first < second < third < none < last
        assert "here = identical ✓ fits ~1.9 x" in lines[first]
        assert "500 MB ≈ compatible ✓ fits !1 ~1.6 x" in lines[second]
        assert "✗ no room" in lines[third]
        assert "✗ refused" in lines[last]
        assert "One was not looked at." in screen_text(app)
        assert highlighted(app).startswith("Qwen3-0.6B")
        await pilot.press("down")
        await until_shown(pilot, "context: the draft was trained on", "vocabulary size: the larger")


async def test_a_refused_draft_shows_rule_and_values_and_is_not_loaded() -> None:
    engine = ScriptedEngine()
    app = make_app(engine, pairs=some_pairs(drafts_of=lambda _: [refused("Mistral-0.5B")]))
    async with app.run_test(size=NARROW) as pilot:
        await at_drafts(pilot)
        await pilot.press("down")
        await until_shown(pilot, "token text", "<|im_start|>", "<s>", "Choose a smaller model of the target's own")
        await pilot.press("enter")
        await until_shown(pilot, "✗ It cannot draft for this target: token 7 means different texts")
        assert (engine.n_loads, engine.drafts) == (1, [])


async def test_without_drafts_the_list_says_so_and_the_target_can_be_loaded_alone() -> None:
    engine = ScriptedEngine()
    app = make_app(engine, pairs=some_pairs(drafts_of=lambda _: [], notes=["models.toml does not know the target."]))
    async with app.run_test(size=NARROW) as pilot:
        await at_drafts(pilot)
        assert "No draft model was found for this target." in screen_text(app)
        assert "models.toml does not know the target." in screen_text(app)
        await pilot.press("enter")
        await until(pilot, lambda: engine.n_loads == 2)
        assert engine.pairs[-1].draft is None


async def test_memory_is_shown_as_a_bar_and_too_little_is_loaded_by_a_second_enter_only() -> None:
    engine = ScriptedEngine()
    pairs = some_pairs(target_of=lambda chosen, _: target(chosen.name, n_bytes=60 * GB), drafts_of=lambda _: [])
    app = make_app(engine, pairs=pairs)
    async with app.run_test(size=NARROW) as pilot:
        await at_drafts(pilot)
        assert "system memory" in screen_text(app)
        assert "█" in screen_text(app)
        assert "✗ 33.6 GiB too little" in screen_text(app)
        await pilot.press("enter")
        await until_shown(pilot, "By its plan there is too little memory for it. Enter again")
        assert engine.n_loads == 1
        await pilot.press("enter")
        await until(pilot, lambda: engine.n_loads == 2)


async def test_drafts_that_could_not_be_looked_for_say_why() -> None:
    def fails(_: Any) -> Any:
        raise HubUnreachableError("The Hub does not answer.", hint="Check the network.")

    app = make_app(ScriptedEngine(), pairs=some_pairs(drafts_of=fails))
    async with app.run_test(size=NARROW) as pilot:
        await opened(pilot, "Qwen3-8B")
        await pilot.press("enter")
        await until_shown(pilot, "✗ The Hub does not answer.", "Check the network.", "no draft model")


# --- saving, leaving, drawing -----------------------------------------------------------------------------------------


async def test_a_pair_is_saved_under_a_name_and_a_taken_name_needs_a_second_enter() -> None:
    pairs = some_pairs()
    app = make_app(ScriptedEngine(), pairs=pairs)
    async with app.run_test(size=NARROW, notifications=True) as pilot:
        await at_drafts(pilot)
        await pilot.press("ctrl+s")
        await until_shown(pilot, "Save the pair", "Qwen3-8B")
        await pilot.press("enter")
        await until_shown(pilot, "Saved as Qwen3-8B")
        chosen = pairs.saved["Qwen3-8B"]
        assert chosen.draft is not None
        assert chosen.draft.model.name == "Qwen3-0.6B.gguf"
        pairs.refuses_save = UsageError("There is a pair named Qwen3-8B already.", hint="Give --replace.")
        await pilot.press("down", "ctrl+s")
        await until_shown(pilot, "Save the pair")
        await pilot.press("enter")
        await until_shown(pilot, "named Qwen3-8B already.")
        await pilot.press("enter")
        await until(pilot, lambda: pairs.saved["Qwen3-8B"].draft is None)


async def test_the_screen_is_left_and_found_again_as_it_was() -> None:
    app = make_app(ScriptedEngine(), pairs=some_pairs())
    async with app.run_test(size=NARROW) as pilot:
        await at_drafts(pilot)
        await pilot.press("f2")
        assert app.screen is app.chat
        await pilot.press("f2")
        await until_shown(pilot, "Drafts for Qwen3-8B")
        await pilot.press("escape")
        await until_shown(pilot, "On this machine")
        await pilot.press("escape")
        assert app.screen is app.chat
        assert [each.title for each in app.get_system_commands(app.screen)].count("Pair: choose models") == 1


async def test_f1_explains_the_keys() -> None:
    app = make_app(ScriptedEngine(), pairs=some_pairs())
    async with app.run_test(size=NARROW) as pilot:
        await opened(pilot, "Qwen3-8B")
        await pilot.press("f1")
        await until_shown(pilot, "Choosing models, after F2", "Other quantizations", "Save the pair under a name")
        await pilot.press("f1")
        await until_shown(pilot, "On this machine")


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (60, 16), (40, 12)], ids=str)
async def test_it_fits_and_follows_a_resize(size: tuple[int, int]) -> None:
    app = make_app(ScriptedEngine(), pairs=some_pairs())
    async with app.run_test(size=size) as pilot:
        await at_drafts(pilot)
        for width, height in ((80, 24), (130, 40), size):
            await pilot.resize_terminal(width, height)
            await settle(pilot)
            lines = screen_text(app).splitlines()
            assert len(lines) == height
            row = next(line for line in lines if line.startswith("   Qwen3-0.6B"))
            assert "✓ fits" in row
            assert "~1.6 x" in row
        if size == NARROW:
            assert app.screen.query_one(Footer).max_scroll_x == 0


async def test_names_can_neither_steer_the_terminal_nor_the_markup() -> None:
    hostile = "[red]x[/] \x1b]0;owned\x07 \x1b[2J\u202e"
    error = LocalspecError(f"{hostile} cannot be read.", hint=hostile)
    named = entry(hostile, text="a", quantization=hostile, licence=hostile, note=hostile)
    here = Listing((entry("ok"), named), (hostile,))
    pairs = some_pairs(
        here=here,
        known=error,
        target_of=lambda chosen, _: target(chosen.name.replace("/", "")),
        drafts_of=lambda of: [draft(hostile.replace("/", ""), of, warnings=(replace(WARNING, text=hostile),))],
        notes=[hostile],
    )
    app = make_app(ScriptedEngine(), pairs=pairs)
    async with app.run_test(size=WIDE, notifications=True) as pilot:
        await opened(pilot, "[red]x[/]")
        await pilot.press("down")
        await settle(pilot)
        assert "[red]x[/] ␛]0;owned␇ ␛[2J" in screen_text(app)
        await pilot.press("enter")
        await until_shown(pilot, "Drafts for [red]x[] ␛]0;owned␇")
        await pilot.press("ctrl+s")
        await pilot.pause()
        await pilot.press("enter")
        await until_shown(pilot, "Saved as [red]x[] ␛]0;owned␇")
        text = screen_text(app)
        assert not any(character in text for character in "\x1b\x07\u202e")


async def test_the_mouse_highlights_first_and_chooses_at_the_second_click() -> None:
    app = make_app(ScriptedEngine(), pairs=some_pairs())
    async with app.run_test(size=NARROW) as pilot:
        await opened(pilot, "SmolLM2-1.7B")
        row = next(number for number, line in enumerate(screen_text(app).splitlines()) if "SmolLM2-1.7B" in line)
        await pilot.click(offset=(5, row))
        await pilot.pause()
        assert highlighted(app).startswith("SmolLM2-1.7B")
        assert "Drafts for" not in screen_text(app)
        await pilot.click(offset=(5, row))
        await until_shown(pilot, "Drafts for SmolLM2-1.7B")
