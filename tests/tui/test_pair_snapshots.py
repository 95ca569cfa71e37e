"""Pictures of the pair screen; how to renew them: see test_snapshots.py."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from textual.pilot import Pilot

from localspec.memory.plan import Plan
from localspec.models.compat import PairVerdict, Reason, Verdict
from localspec.pairing.chosen import Target
from localspec.pairing.downloads import Download, DownloadState
from localspec.pairing.drafts import DraftOption, Place
from localspec.pairing.fit import Fit
from localspec.pairing.service import Listing, Quantization
from localspec.tui.theme import LIGHT
from tests.tui.chat_driver import NARROW, WIDE, make_app, settle, until, until_shown
from tests.tui.scripted_engine import ScriptedEngine
from tests.tui.scripted_pairs import (
    GB,
    WARNING,
    ScriptedPairs,
    draft,
    entry,
    planned,
    refused,
    remote,
)

Scene = Callable[[Pilot[None]], Awaitable[None]]
Picture = Callable[..., bool]


def drafts_of(of: Target) -> list[DraftOption]:
    reason = Reason("vocabulary size", "152,064", "151,936", "the larger vocabulary has tokens at its end")
    close = PairVerdict(Verdict.COMPATIBLE, (reason,))
    large = draft("Qwen3-4B-Q8_0", of)
    alone: Plan = planned(of.model, None)
    return [
        draft("Qwen3-1.7B", of, Place.REGISTRY, verdict=close, warnings=(WARNING,)),
        replace(large, plan=replace(alone, reasons=("No draft model: Qwen3-4B-Q8_0.gguf lacks 1.2 GiB beside it.",))),
        refused("Mistral-Small-DRAFT-0.5B-Q8_0"),
        draft("Qwen3-0.6B-Q8_0", of),
    ]


FORMS = [
    Quantization(remote("Qwen3-1.7B", "F16", round(3.4 * GB)), Fit.TOO_LARGE),
    Quantization(remote("Qwen3-1.7B", "Q8_0", round(1.8 * GB)), Fit.FITS, is_best=True),
    Quantization(remote("Qwen3-1.7B", "Q4_K_M", round(1.1 * GB)), Fit.FITS),
]
PAIRS = ScriptedPairs(
    here=Listing(
        (
            entry("SmolLM2-135M-Instruct.F32", loaded_as="target", quantization="F32", n_bytes=540_000_000),
            entry("SmolLM2-135M-Instruct.Q4_1", loaded_as="draft", quantization="Q4_1", n_bytes=98_000_000),
            entry("Qwen3-14B-Q4_K_M", n_bytes=9 * GB, fit=Fit.PARTLY, tokens_per_s=None),
        ),
        ("2 files here cannot be read; `localspec models` says why.",),
    ),
    known=Listing(
        (
            entry("Llama-3.1-8B-Instruct", Place.REGISTRY),
            entry("Qwen3-8B", Place.REGISTRY),
            entry("Llama-3.3-70B-Instruct", Place.REGISTRY, n_bytes=42 * GB, fit=Fit.TOO_LARGE),
        )
    ),
    drafts_of=drafts_of,
    notes=["3 smaller models here have another vocabulary and cannot draft for it."],
    forms=FORMS,
)


@pytest.fixture
def picture(snap_compare: Callable[..., bool]) -> Picture:
    """Plays a scene from the open screen on, and compares the screen at its end."""

    def compare(scene: Scene, size: tuple[int, int]) -> bool:
        pairs = replace(PAIRS, downloads=type(PAIRS.downloads)())
        app = make_app(ScriptedEngine(), pairs=pairs)

        async def run_before(pilot: Pilot[None]) -> None:
            await settle(pilot)
            await pilot.press("f2")
            await until_shown(pilot, "Qwen3-14B")
            await until(pilot, lambda: not app.screen._targets._sections[Place.REGISTRY].status)  # type: ignore[attr-defined]
            for row in ROWS if scene is downloading else ():
                pairs.downloads.put(row)
            await scene(pilot)
            await settle(pilot)

        return snap_compare(app, terminal_size=size, run_before=run_before)

    return compare


ROWS = (
    Download("acme/Llama-3.1-8B-GGUF:Q4_K_M", round(4.9 * GB), DownloadState.RUNNING, 2 * GB, 24.5e6, 118.0),
    Download("acme/Llama-3.2-1B-GGUF:Q8_0", round(1.3 * GB), DownloadState.DONE, round(1.3 * GB)),
    Download("acme/Qwen3-0.6B-GGUF:Q8_0", GB // 2, DownloadState.STOPPED, GB // 5),
)


async def targets(pilot: Pilot[None]) -> None:
    await pilot.press("down", "down", "down")


async def drafts(pilot: Pilot[None]) -> None:
    await pilot.press("down", "down", "enter")
    await until_shown(pilot, "Drafts for Qwen3-14B", "3 smaller models")
    await pilot.press("down")


async def too_large(pilot: Pilot[None]) -> None:
    await drafts(pilot)
    await pilot.press("down")


async def refusal(pilot: Pilot[None]) -> None:
    await drafts(pilot)
    await pilot.press("end")


async def downloading(pilot: Pilot[None]) -> None:
    await drafts(pilot)


async def quantizations(pilot: Pilot[None]) -> None:
    await drafts(pilot)
    await pilot.press("f3")
    await until_shown(pilot, "Q4_K_M ")


async def light(pilot: Pilot[None]) -> None:
    pilot.app.theme = LIGHT.name
    await drafts(pilot)


def test_targets(picture: Picture) -> None:
    assert picture(targets, NARROW)


@pytest.mark.parametrize("size", [NARROW, WIDE], ids=["80x24", "120x36"])
def test_drafts(picture: Picture, size: tuple[int, int]) -> None:
    assert picture(drafts, size)


@pytest.mark.parametrize("scene", [too_large, refusal, downloading, quantizations], ids=lambda scene: scene.__name__)
def test_drafts_in_trouble_and_at_work(picture: Picture, scene: Scene) -> None:
    assert picture(scene, NARROW)


def test_light(picture: Picture) -> None:
    assert picture(light, WIDE)


@pytest.mark.parametrize("scene", [targets, downloading], ids=lambda scene: scene.__name__)
def test_without_colour(picture: Picture, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert picture(scene, NARROW)
