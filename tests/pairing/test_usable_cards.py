"""Cards that this build of llama.cpp cannot use count nowhere: for the lists, for plans, for what is loaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from localspec.cli.machine import machine_for
from localspec.cli.options import PairOptions, SamplingOptions
from localspec.cli.selection import select
from localspec.errors import EngineError
from localspec.llama import inspection
from localspec.llama.inspection import Build
from localspec.memory import devices
from localspec.memory.devices import Machine, MemoryDevice
from localspec.pairing import surroundings
from localspec.pairing.surroundings import Surroundings
from localspec.pairing.usable_cards import with_usable_cards
from tests.memory.shape_models import dense
from tests.memory.shapes import write_shape

GIB = 1 << 30
HOST = MemoryDevice("system memory", 32 * GIB, 24 * GIB)
SMALL_CARD = MemoryDevice("a card", GIB, GIB)
WITH_CARD = Machine(HOST, (SMALL_CARD,), unified=True, note="")
BARE = Machine(HOST, (), unified=False, note="")


class Asked:
    """How often the build was asked, and what it says."""

    def __init__(self, supports_gpu: bool | None) -> None:
        self.supports_gpu = supports_gpu
        self.n = 0

    def __call__(self) -> Build:
        self.n += 1
        if self.supports_gpu is None:
            raise EngineError("llama.cpp cannot be loaded.")
        return Build("1", "1", self.supports_gpu, {}, None, ())


@pytest.mark.parametrize(("supports_gpu", "expected"), [(True, WITH_CARD), (False, BARE), (None, WITH_CARD)])
def test_every_way_of_asking_gives_one_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, supports_gpu: bool | None, expected: Machine
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    asked = Asked(supports_gpu)
    monkeypatch.setattr(inspection, "inspect_build", asked)
    monkeypatch.setattr(devices, "machine", lambda: WITH_CARD)
    monkeypatch.setattr(surroundings, "machine_without", lambda _: WITH_CARD)
    assert with_usable_cards(WITH_CARD) == machine_for(None) == Surroundings(None, lambda: None).machine() == expected
    # A card that is too small for the model decides how it is loaded, unless it does not count.
    path = write_shape(
        tmp_path / "m.gguf", dense("llama", 28, 3584, 28, 4, 128, 18944, 3000, 32768), "q8_0", tokens=True
    )
    monkeypatch.setattr(devices, "machine", lambda: replace(WITH_CARD, unified=False))
    spec = select(None, PairOptions(target=str(path)), SamplingOptions(), {}, uses_profile=False).pair
    assert (spec.target.n_gpu_layers == -1) is (expected is BARE)
    assert asked.n == 4


def test_without_a_card_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(None)
    monkeypatch.setattr(inspection, "inspect_build", asked)
    monkeypatch.setattr(devices, "machine", lambda: BARE)
    assert machine_for(None) == with_usable_cards(BARE) == BARE
    assert machine_for([12.0]).gpus[0].total_bytes == 12 * GIB, "whatever this build can do"
    assert asked.n == 0


def test_the_service_asks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(False)
    monkeypatch.setattr(inspection, "inspect_build", asked)
    monkeypatch.setattr(surroundings, "machine_without", lambda _: WITH_CARD)
    here = Surroundings(None, lambda: None)
    assert not here.lacks_gpu_build
    assert here.machine() == here.machine() == BARE
    assert here.lacks_gpu_build
    assert asked.n == 1
