"""The service behind the pair screen, against a Hub of the test's own and models in its own folders."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localspec.config import load_settings
from localspec.engine.requests import KvType, ModelSpec, PairSpec
from localspec.errors import ModelError, OfflineError, UsageError
from localspec.hub.client import Hub
from localspec.llama import inspection
from localspec.llama.inspection import Build
from localspec.memory.devices import Machine, MemoryDevice
from localspec.models.registry import load_registry, registry_file
from localspec.pairing import service as service_module
from localspec.pairing import surroundings
from localspec.pairing.chosen import ChosenPair
from localspec.pairing.downloads import DownloadState
from localspec.pairing.drafts import DraftOption, Place, judge
from localspec.pairing.fit import Fit
from localspec.pairing.service import PairService
from localspec.pairing.targets import TargetEntry
from localspec.pairing.traffic import Bandwidths
from tests.hub.server import FakeHub, Fault, Padded
from tests.memory.shape_models import dense
from tests.memory.shapes import write_shape
from tests.models.small_models import write_model

GIB = 2**30
ON_CPU = Machine(MemoryDevice("system memory", 32 * GIB, 24 * GIB), (), unified=False, note="")
ON_GPU = replace(ON_CPU, gpus=(MemoryDevice("a card", 12 * GIB, 11 * GIB),))

BIG = dense("llama", 28, 3584, 28, 4, 128, 18944, 3000, 32768)
SMALL = dense("llama", 12, 1024, 8, 2, 128, 2048, 3000, 32768)
TINY = dense("llama", 4, 512, 8, 2, 64, 1024, 3000, 32768)  # small enough for real checksums
STRANGER = dense("llama", 12, 1024, 8, 2, 128, 2048, 2000, 32768)


class World:
    """Folders, a Hub, a machine; `service` makes a service in it."""

    def __init__(self, root: Path, server: FakeHub) -> None:
        self.root = root
        self.models = root / "models"
        self.models.mkdir()
        self.server = server
        self.machine = ON_CPU
        self.build = Build("1", "1", True, {}, None, ())
        self.config = root / "config.toml"

    def service(self, *, offline: bool = False, **settings: Any) -> PairService:
        hub = Hub(endpoint=self.server.endpoint, cache_dir=self.root / "cache", offline=offline)
        made = load_settings(None, {}, {"models_dir": self.models, **settings})
        return PairService(made, self.config, hub=hub)

    def put(self, name: str, shape: Any = BIG) -> Path:
        path = self.models / f"{name}.gguf"
        write_shape(path, shape, "q8_0", tokens=True)
        return path

    def publish(self, name: str, shape: Any, *quantizations: str) -> None:
        """On the Hub, each as large as the first, whose header alone is real."""
        path = self.root / "published.gguf"
        write_shape(path, shape, "q8_0", tokens=True)
        with path.open("rb") as file:
            head = file.read(1 << 20)
        sizes = [path.stat().st_size // (number + 1) for number in range(len(quantizations))]
        files: dict[str, Any] = {
            f"{name}-{label}.gguf": Padded(head, size) for label, size in zip(quantizations, sizes, strict=True)
        }
        self.server.add_files(f"acme/{name}-GGUF", files)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    for name in ("HF_HOME", "LOCALSPEC_HOME", "LLAMA_CACHE", "OLLAMA_MODELS", "HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    for each in (service_module, surroundings):
        monkeypatch.setattr(each, "demo_files", _no_demo)
    with FakeHub().running() as server:
        made = World(tmp_path, server)
        monkeypatch.setattr(surroundings, "machine_without", lambda _: made.machine)
        monkeypatch.setattr(
            surroundings, "measured_bandwidths", lambda here: Bandwidths(40e9, (400e9,) * len(here.gpus))
        )
        monkeypatch.setattr(inspection, "inspect_build", lambda: made.build)
        yield made


def _no_demo() -> Any:
    raise UsageError("There is no demo here.")


def entry_of(entries: tuple[TargetEntry, ...], name: str) -> TargetEntry:
    return next(each for each in entries if each.name == name)


def drafts(service: PairService, target: Any) -> tuple[list[DraftOption], list[str]]:
    found: list[DraftOption] = []
    notes = service.find_drafts(target, found.append, lambda _: None)
    return found, list(notes)


# --- lists ------------------------------------------------------------------------------------------------------------


def test_what_is_here_is_listed_the_loaded_target_first(world: World) -> None:
    big, small = world.put("big"), world.put("small", SMALL)
    (world.models / "broken.gguf").write_bytes(b"GGUF")
    listing = world.service().local(PairSpec("pair", ModelSpec(small), ModelSpec(big)))
    assert [(each.name, each.loaded_as) for each in listing.entries] == [("small", "target"), ("big", "draft")]
    assert listing.entries[1].n_bytes == big.stat().st_size
    assert listing.entries[1].fit is Fit.FITS
    assert listing.notes == ("One file here cannot be read; `localspec models` says why.",)


def test_a_loaded_file_outside_of_every_folder_is_listed_too(world: World, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.gguf"
    write_shape(elsewhere, SMALL, "q8_0", tokens=True)
    listing = world.service().local(PairSpec("pair", ModelSpec(elsewhere)))
    assert [(each.name, each.loaded_as) for each in listing.entries] == [("elsewhere", "target")]
    assert world.service().local(None).entries == ()


def test_an_empty_machine_says_what_to_do(world: World) -> None:
    (note,) = world.service().local(None).notes
    assert "no model on this machine" in note


def test_a_card_that_the_build_cannot_use_does_not_count(world: World) -> None:
    world.put("big")
    world.machine = replace(ON_GPU, host=replace(ON_GPU.host, free_bytes=GIB))
    assert world.service().local(None).entries[0].fit is Fit.FITS
    world.build = replace(world.build, supports_gpu=False)
    listing = world.service().local(None)
    assert listing.entries[0].fit is Fit.TOO_LARGE
    assert listing.notes == ("This llama.cpp is built for the CPU, so the graphics card is left out.",)


def test_models_toml_offers_its_targets_those_that_fit_first(world: World) -> None:
    entries = world.service().registered().entries
    known = load_registry(registry_file())
    assert {each.text for each in entries} == {name for name, model in known.models.items() if model.is_target}
    fits = [each.fit is Fit.TOO_LARGE for each in entries]
    assert fits == sorted(fits)
    assert entries[0].tokens_per_s is not None
    assert entries[0].tokens_per_s >= 5
    assert entry_of(entries, "Llama-3.1-70B-Instruct").fit is Fit.TOO_LARGE


def test_a_search_lists_what_the_hub_has(world: World) -> None:
    facts = {"downloads": 5, "gguf": {"total": 8_000_000_000, "architecture": "llama", "context_length": 4096}}
    world.server.found = [{"id": "acme/Big-GGUF", **facts}, {"id": "acme/Gated-GGUF", "gated": "auto"}]
    big, gated = world.service().search("big").entries
    assert (big.name, big.n_parameters, big.n_ctx_train, big.fit, big.is_guess) == (
        "acme/Big-GGUF",
        8_000_000_000,
        4096,
        Fit.FITS,
        True,
    )
    assert big.n_bytes is not None
    assert 4.5e9 < big.n_bytes < 5.2e9
    assert (gated.is_gated, gated.fit) == (True, Fit.UNKNOWN)
    world.server.found = []
    assert "no GGUF repository named like 'nothing'" in world.service().search("nothing").notes[0]


def test_offline_a_search_is_refused_and_drafts_are_those_here(world: World) -> None:
    world.put("big")
    world.put("small", SMALL)
    service = world.service(offline=True)
    with pytest.raises(OfflineError):
        service.search("big")
    target = service.choose(entry_of(service.local(None).entries, "big"), None, None)
    found, notes = drafts(service, target)
    assert [each.model.name for each in found] == ["small.gguf"]
    assert notes[0] == "Offline mode: only drafts on this machine were looked at."
    assert world.server.seen == []


# --- choosing ---------------------------------------------------------------------------------------------------------


def test_a_target_is_planned_and_its_drafts_are_judged(world: World) -> None:
    world.put("big")
    world.put("small", SMALL)
    world.put("stranger", STRANGER)
    service = world.service()
    target = service.choose(entry_of(service.local(None).entries, "big"), None, None)
    assert target.plan is not None
    assert target.plan.fits
    assert target.conditions.n_ctx == 8192
    found, notes = drafts(service, target)
    assert [(each.model.name, each.fits) for each in found] == [("small.gguf", True)]
    assert found[0].prediction is not None
    assert any("another vocabulary" in note for note in notes)


def test_the_draft_that_is_loaded_is_among_them_even_if_nobody_would_look_for_it(world: World) -> None:
    big = world.put("big")
    twin = world.put("twin")  # as large as the target
    loaded = PairSpec("pair", ModelSpec(big, kv_type=KvType.Q8_0), ModelSpec(twin), n_ctx=4096)
    service = world.service()
    target = service.choose(entry_of(service.local(loaded).entries, "big"), None, loaded)
    assert target.loaded == loaded
    assert (target.conditions.n_ctx, target.conditions.kv_type) == (4096, "q8_0")
    found, _ = drafts(service, target)
    assert [each.model.name for each in found] == ["twin.gguf"]


def test_a_file_that_writes_no_text_is_refused(world: World) -> None:
    path = write_model(world.models / "encoder.gguf", architecture="bert")
    entry = replace(entry_of(_with(world, "big"), "big"), reference=_file(path), text=str(path))
    with pytest.raises(ModelError, match=r"encoder\.gguf"):
        world.service().choose(entry, None, None)


def _with(world: World, name: str) -> tuple[TargetEntry, ...]:
    world.put(name)
    return world.service().local(None).entries


def _file(path: Path) -> Any:
    from localspec.models.references import FileReference

    return FileReference(path)


def test_of_a_repository_the_usual_quantization_that_fits_is_the_best(world: World) -> None:
    world.publish("Big", BIG, "Q8_0", "Q4_K_M", "Q2_K")
    entry = _hub_entry(world, "Big")
    service = world.service()
    forms = service.quantizations(entry)
    assert [(form.remote.quantization, form.is_best) for form in forms] == [
        ("Q8_0", False),
        ("Q4_K_M", True),
        ("Q2_K", False),
    ]
    world.machine = replace(ON_CPU, host=replace(ON_CPU.host, free_bytes=forms[1].remote.n_bytes))
    assert [form.is_best for form in service.quantizations(entry)] == [False, False, True]
    world.machine = replace(ON_CPU, host=replace(ON_CPU.host, free_bytes=0))
    assert not any(form.is_best for form in service.quantizations(entry))


def _hub_entry(world: World, name: str) -> TargetEntry:
    world.server.found = [{"id": f"acme/{name}-GGUF"}]
    return world.service().search(name).entries[0]


def test_a_remote_target_is_planned_from_its_header_alone_and_loaded_when_it_was_fetched(world: World) -> None:
    world.publish("Big", TINY, "Q8_0")
    service = world.service()
    entry = _hub_entry(world, "Big")
    (form,) = service.quantizations(entry)
    target = service.choose(entry, form.remote, None)
    chosen = ChosenPair(target, None)
    assert target.plan is not None
    assert [each.reference for each in chosen.missing] == ["acme/Big-GGUF:Q8_0"]
    assert sum(world.server.n_sent.values()) < 2 << 20
    service.downloads.start(form.remote)
    path = _fetched(service, "acme/Big-GGUF:Q8_0")
    spec = service.ready(chosen, {"acme/Big-GGUF:Q8_0": path}).spec
    assert spec.target == ModelSpec(path)
    assert spec.n_ctx == 8192
    again = service.choose(entry, form.remote, spec)
    assert again.model.path == path
    assert again.loaded == spec
    service.close()


def _fetched(service: PairService, reference: str) -> Path:
    deadline = time.monotonic() + 60
    while True:
        row = next(each for each in service.downloads.rows if each.reference == reference)
        if row.path is not None:
            return row.path
        assert row.state in {DownloadState.RUNNING, DownloadState.WAITING}, row
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_download_that_is_cut_off_by_the_end_of_the_program_goes_on_later(world: World) -> None:
    world.publish("Big", TINY, "Q8_0")
    entry = _hub_entry(world, "Big")
    service = world.service()
    (form,) = service.quantizations(entry)
    world.server.faults["storage"] = [Fault(stall_after=3 << 20)]
    service.downloads.start(form.remote)
    deadline = time.monotonic() + 60
    while service.downloads.rows[0].n_done_bytes < 2 << 20:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    service.close()
    world.server.go_on.set()
    later = world.service()
    later.downloads.start(form.remote)
    path = _fetched(later, "acme/Big-GGUF:Q8_0")
    assert path.stat().st_size == form.remote.n_bytes
    first = int(world.server.asked("storage")[-1].headers["range"].removeprefix("bytes=").split("-")[0])
    assert first >= 2 << 20
    later.close()


def test_a_draft_comes_in_quantizations_that_are_judged_beside_the_target(world: World) -> None:
    world.put("big")
    world.publish("Small", SMALL, "Q8_0", "Q4_0")
    service = world.service()
    target = service.choose(entry_of(service.local(None).entries, "big"), None, None)
    entry = _hub_entry(world, "Small")
    option = judge(target.model, service.choose(entry, None, None).model, target.conditions, place=Place.HUB)
    forms = service.draft_quantizations(target, option)
    assert [(form.remote.quantization, form.is_best) for form in forms] == [("Q8_0", True), ("Q4_0", False)]
    assert all(form.draft is not None and form.draft.fits for form in forms)


# --- loading and saving -----------------------------------------------------------------------------------------------


def test_a_target_that_fits_the_card_in_part_is_loaded_and_saved_with_its_layers(world: World) -> None:
    world.put("big")
    world.machine = replace(ON_GPU, gpus=(replace(ON_GPU.gpus[0], free_bytes=4 * GIB),))
    service = world.service()
    (entry,) = service.local(None).entries
    assert entry.fit is Fit.PARTLY
    chosen = ChosenPair(service.choose(entry, None, None), None)
    spec = service.ready(chosen, {}).spec
    assert 0 < spec.target.n_gpu_layers < 29
    service.save("mine", chosen, replace_existing=False)
    saved = load_settings(world.config, {}, {}).pairs["mine"]
    assert saved.gpu_layers == spec.target.n_gpu_layers
    assert saved.target == world.models / "big.gguf"
    assert load_settings(world.config, {}, {}).pair == "mine"


def test_what_the_user_has_set_goes_before_the_plan(world: World) -> None:
    world.put("big")
    service = world.service(ctx=2048, kv_type="q8_0", threads=3)
    spec = service.ready(ChosenPair(service.choose(service.local(None).entries[0], None, None), None), {}).spec
    assert (spec.n_ctx, spec.target.kv_type, spec.n_threads) == (2048, KvType.Q8_0, 3)


def test_for_the_loaded_target_only_the_draft_changes(world: World) -> None:
    big, small = world.put("big"), world.put("small", SMALL)
    loaded = PairSpec("pair", ModelSpec(big, n_gpu_layers=7), None, n_ctx=512, n_threads=2)
    service = world.service()
    target = service.choose(entry_of(service.local(loaded).entries, "big"), None, loaded)
    found, _ = drafts(service, target)
    spec = service.ready(ChosenPair(target, found[0]), {}).spec
    assert spec == replace(loaded, name="big", draft=ModelSpec(small))


def test_saving_refuses_a_taken_name_and_what_has_no_short_name(world: World) -> None:
    world.put("big")
    world.put("small", SMALL)
    service = world.service()
    entries = service.local(None).entries
    first, second = (ChosenPair(service.choose(each, None, None), None) for each in entries)
    service.save("mine", first, replace_existing=False)
    with pytest.raises(UsageError, match="mine"):
        service.save("mine", second, replace_existing=False)
    service.save("mine", second, replace_existing=True)
    world.publish("Odd", SMALL, "Q8_0")
    world.server.add_files(
        "acme/Odd-GGUF", dict(world.server.repos["acme/Odd-GGUF"].files, **{"a/x.gguf": _plain(world)})
    )
    form = next(each for each in service.quantizations(_hub_entry(world, "Odd")) if not each.remote.quantization)
    with pytest.raises(UsageError, match="not here yet"):
        service.save(
            "odd", ChosenPair(service.choose(_hub_entry(world, "Odd"), form.remote, None), None), replace_existing=False
        )


def _plain(world: World) -> Any:
    return world.server.repos["acme/Odd-GGUF"].files["Odd-Q8_0.gguf"]
