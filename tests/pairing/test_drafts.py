"""Judging, ranking and finding drafts, on headers with real hyper-parameters and a Hub of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.hub.client import Hub
from localspec.memory.devices import Machine, MemoryDevice
from localspec.models.compat import Verdict
from localspec.models.library import find_models
from localspec.models.model_folders import ModelFolder
from localspec.models.model_folders import Place as Folder
from localspec.models.registry import load_registry
from localspec.pairing.drafts import Conditions, Place, judge, ranked
from localspec.pairing.finding import find_drafts
from localspec.pairing.quantizations import best_quantization, quantization_options
from localspec.pairing.resolve import ResolvedModel, resolve
from localspec.pairing.traffic import Bandwidths
from tests.hub.server import FakeHub, Padded
from tests.memory.shape_models import dense
from tests.memory.shapes import write_shape

GIB = 1 << 30


def machine(gpu_gib: float | None, host_gib: float = 32) -> Machine:
    size = int((gpu_gib or 0) * GIB)
    gpus = (MemoryDevice("a card", size, size),) if gpu_gib else ()
    return Machine(MemoryDevice("system memory", int(host_gib * GIB), int(host_gib * GIB)), gpus, False, "")


def conditions(gpu_gib: float | None = 12, **more: object) -> Conditions:
    bandwidths = Bandwidths(40e9, (400e9,) if gpu_gib else ())
    return Conditions(machine(gpu_gib), 4096, bandwidths=bandwidths, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target of 6 GB, drafts of 1.2 GB and 0.2 GB for it, and a stranger. Sparse: a few kB on the disk."""
    root = tmp_path_factory.mktemp("models")
    shapes = {
        "Big-7B-Q8_0": (dense("llama", 28, 3584, 28, 4, 128, 18944, 3000, 32768), "q8_0"),
        "Middle-1B-Q8_0": (dense("llama", 16, 2048, 32, 8, 64, 8192, 3000, 32768), "q8_0"),
        "Small-0.2B-Q8_0": (dense("llama", 12, 1024, 8, 2, 128, 2048, 3000, 32768), "q8_0"),
        "Stranger-1B-Q8_0": (dense("llama", 16, 2048, 32, 8, 64, 8192, 2000, 32768), "q8_0"),
    }
    for stem, (shape, kind) in shapes.items():
        write_shape(root / f"{stem}.gguf", shape, kind, tokens=True)
    return root


def here(folder: Path, stem: str) -> ResolvedModel:
    return resolve(str(folder / f"{stem}.gguf"))


def test_a_pair_that_fits_has_a_plan_and_a_forecast(folder: Path):
    option = judge(here(folder, "Big-7B-Q8_0"), here(folder, "Small-0.2B-Q8_0"), conditions())
    assert option.verdict.verdict is Verdict.IDENTICAL
    assert option.fits
    assert option.plan is not None
    assert option.plan.choice.is_target_whole_on_gpu
    assert option.speedup is not None
    assert option.speedup > 1.3


def test_a_stranger_is_refused_before_anything_is_planned(folder: Path):
    option = judge(here(folder, "Big-7B-Q8_0"), here(folder, "Stranger-1B-Q8_0"), conditions())
    assert option.is_refused
    assert option.plan is None
    assert not option.fits
    reason = option.verdict.reasons[0]
    assert (reason.target_value, reason.draft_value) == ("3,000", "2,000")
    assert reason.hint


def test_no_room_beside_the_target_is_no_refusal(folder: Path):
    target = here(folder, "Big-7B-Q8_0")
    size = sum(tensor.n_bytes for tensor in target.header.tensors) / GIB
    option = judge(target, here(folder, "Middle-1B-Q8_0"), conditions(size + 1.6))
    assert not option.is_refused
    assert not option.fits
    assert option.plan is not None
    assert option.plan.fits
    assert option.plan.choice.draft is None
    assert option.plan.choice.is_target_whole_on_gpu, "the target goes before the draft"


def test_vocabularies_alone_are_judged(tmp_path: Path):
    vocab = next((Path(__file__).parents[1] / "data" / "vocab").glob("*.gguf"))
    option = judge(resolve(str(vocab)), resolve(str(vocab)), conditions())
    assert option.verdict.verdict is Verdict.IDENTICAL
    assert option.plan is None


def test_the_order_is_what_fits_then_what_is_known_then_what_is_fast(folder: Path):
    target = here(folder, "Big-7B-Q8_0")
    size = sum(tensor.n_bytes for tensor in target.header.tensors) / GIB
    tight = conditions(size + 2.2)
    stems = ["Stranger-1B-Q8_0", "Middle-1B-Q8_0", "Small-0.2B-Q8_0"]
    options = ranked([judge(target, here(folder, stem), tight) for stem in stems])
    assert [option.model.name.split("-")[0] for option in options] == ["Small", "Middle", "Stranger"]
    assert [option.fits for option in options] == [True, False, False]


def test_what_is_on_this_machine_is_found_and_strangers_are_counted(folder: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    local = find_models([ModelFolder(Folder.OWN, folder)])
    found = find_drafts(here(folder, "Big-7B-Q8_0"), conditions(), local=local)
    assert [(option.model.name, option.place) for option in found.options] == [
        ("Small-0.2B-Q8_0.gguf", Place.HERE),
        ("Middle-1B-Q8_0.gguf", Place.HERE),
    ]
    assert any("1 smaller model here cannot draft for it" in note for note in found.notes)
    none = find_drafts(here(folder, "Small-0.2B-Q8_0"), conditions(), local=local)
    assert not none.options


# --- the Hub ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def server(folder: Path) -> Iterator[FakeHub]:
    def body(stem: str) -> Padded:
        path = folder / f"{stem}.gguf"
        with path.open("rb") as file:
            return Padded(file.read(1 << 20), path.stat().st_size)

    with FakeHub().running() as hub:
        hub.add_files(
            "bartowski/Llama-3.2-1B-Instruct-GGUF",
            {
                "Small-F16.gguf": Padded(b"", 4 * 10**8),
                "Small-Q8_0.gguf": body("Small-0.2B-Q8_0"),
                "Small-Q4_K_M.gguf": Padded(b"", 60_000_000),
            },
        )
        hub.add_files("hugging-quants/Llama-3.2-1B-Instruct-Q8_0-GGUF", {"small-q8_0.gguf": body("Small-0.2B-Q8_0")})
        yield hub


@pytest.fixture
def hub(server: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "localspec"))
    for variable in ("HF_HUB_OFFLINE", "HF_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    return Hub(endpoint=server.endpoint, token=None, offline=False, cache_dir=tmp_path / "cache")


def test_only_the_header_of_what_is_on_the_hub_is_read(folder: Path, server: FakeHub, hub: Hub):
    draft = resolve("bartowski/Llama-3.2-1B-Instruct-GGUF:Q8_0", hub)
    assert draft.path is None
    assert 0 < draft.n_header_bytes < 2 << 20 < draft.n_download_bytes
    assert judge(here(folder, "Big-7B-Q8_0"), draft, conditions()).fits


def test_models_toml_names_drafts_for_a_target_that_it_knows_by_name(folder: Path, hub: Hub, tmp_path: Path):
    known = tmp_path / "Llama-3.1-8B-Instruct.gguf"
    known.symlink_to(folder / "Big-7B-Q8_0.gguf")
    looked: list[str] = []
    found = find_drafts(
        resolve(str(known)), conditions(), registry=load_registry(tmp_path / "none"), hub=hub, on_look=looked.append
    )
    option = found.options[0]
    assert (option.place, option.reported is not None, option.fits) == (Place.REGISTRY, True, True)
    assert "llama-3.2-1b" in looked
    assert any("llama-3.2-3b" in note for note in found.notes), "what the Hub does not have is said"


def test_a_hub_that_is_away_costs_a_note(folder: Path, tmp_path: Path):
    away = Hub(endpoint="http://127.0.0.1:9", offline=True, cache_dir=tmp_path / "cache")
    found = find_drafts(
        here(folder, "Big-7B-Q8_0"), conditions(), registry=load_registry(tmp_path / "none"), hub=away, search=True
    )
    assert not found.options
    assert found.notes


def test_quantizations_are_told_apart_by_size_and_eight_bits_are_enough(folder: Path, hub: Hub):
    target, draft = here(folder, "Big-7B-Q8_0"), resolve("bartowski/Llama-3.2-1B-Instruct-GGUF:Q8_0", hub)
    options = quantization_options(target, draft, hub.models("bartowski/Llama-3.2-1B-Instruct-GGUF"), conditions())
    labels = [option.model.remote.quantization for option in options if option.model.remote]
    assert labels == ["F16", "Q8_0", "Q4_K_M"]
    weights = [option.model.n_weight_bytes for option in options]
    assert weights == sorted(weights, reverse=True)
    assert weights[0] == pytest.approx(4e8, rel=0.01)
    best = best_quantization(options)
    assert best is options[1]
    fits_and_best = set()
    for more in range(20, 100):  # in 64ths of a GiB: from no room for any to room for all
        size = conditions().margin.gpu_bytes + target.n_weight_bytes + more * GIB // 64
        of_card = quantization_options(
            target, draft, hub.models("bartowski/Llama-3.2-1B-Instruct-GGUF"), conditions(size / GIB)
        )
        best = best_quantization(of_card)
        fits_and_best.add((tuple(option.fits for option in of_card), of_card.index(best) if best else None))
    assert {((False, False, True), 2), ((False, True, True), 1), ((True, True, True), 1)} <= fits_and_best
    assert ((False, False, False), None) in fits_and_best
