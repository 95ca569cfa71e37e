"""Whether a target fits: every list says what the plan says, and a guess from a size is a good one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.memory.devices import Machine, MemoryDevice
from localspec.memory.plan import plan
from localspec.models.bare_header import pack
from localspec.models.gguf import read_header
from localspec.models.header_cache import summarize
from localspec.models.library import LocalModel
from localspec.models.model_folders import Place as Folder
from localspec.models.registry import load_registry
from localspec.pairing.drafts import Conditions
from localspec.pairing.fit import Fit, choice_of, fit_here, fit_of, guessed_fit, usual_header
from localspec.pairing.suggestions import suggestions
from localspec.pairing.targets import local_entries, registered_entries
from tests.memory.shape_models import SHAPES, dense
from tests.memory.shapes import write_shape

GIB = 1 << 30
ORDER = [Fit.FITS, Fit.PARTLY, Fit.TOO_LARGE]


def machine(host_gib: float, *gpus_gib: float, unified: bool = False) -> Machine:
    cards = tuple(MemoryDevice(f"card {i}", int(size * GIB), int(size * GIB)) for i, size in enumerate(gpus_gib))
    return Machine(MemoryDevice("system memory", int(host_gib * GIB), int(host_gib * GIB)), cards, unified, "")


def on(here: Machine, n_ctx: int = 8192) -> Conditions:
    return Conditions(here, n_ctx)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[LocalModel]:
    """Of many architectures, as a list of files on this machine has them."""
    root = tmp_path_factory.mktemp("models")
    paths = [write_shape(root / f"{name}.gguf", SHAPES[name](), "q8_0", tokens=True) for name in SHAPES]
    return [LocalModel(path.stem, Folder.OWN, (path,), path.stat().st_size, summarize(path)) for path in paths]


@pytest.mark.parametrize("unified", [False, True])
def test_the_list_of_models_here_says_what_their_plans_say(models: list[LocalModel], unified: bool) -> None:
    """At and around the sizes where each of them begins to fit, where guesses are wrong first."""
    seen = set()
    for model in models:
        assert model.path is not None
        header = read_header(model.path)
        for gib in (0.6, 1.2, 2.5, 5, 9, 17, 33, 66, 130):
            here = machine(gib * 1.5, gib, unified=unified) if unified else machine(gib / 2, gib)
            for each in (here, machine(gib)):
                made = plan(header, None, each, n_ctx=8192)
                (entry,) = local_entries([model], lambda _, each=each: on(each), None)
                seen.add(entry.fit)
                assert (entry.fit is not Fit.TOO_LARGE) == made.fits, (model.name, gib)
                is_whole = not each.gpus or made.choice.is_target_whole_on_gpu
                assert (entry.fit is Fit.FITS) == (made.fits and is_whole), (model.name, gib)
                assert entry.fit is fit_here(model, on(each)) is fit_of(header, on(each))
    assert seen == set(ORDER)


def test_suggestions_are_what_the_list_of_models_toml_calls_fitting() -> None:
    registry = load_registry()
    for here in (machine(4), machine(16), machine(32, 8), machine(32, 24), machine(128, 24, 24)):
        entries = {entry.text: entry for entry in registered_entries(registry, [], lambda _, here=here: on(here))}
        offered = suggestions(registry, [], lambda _, here=here: on(here))
        assert {entries[each.name].fit for each in offered if each.name in entries} <= {Fit.FITS}
        assert {each.n_bytes for each in offered} == {entries[each.name].n_bytes for each in offered}


def test_a_suggestion_that_is_here_is_judged_by_its_file(tmp_path: Path) -> None:
    registry = load_registry()
    everything = suggestions(registry, [], lambda _: on(machine(64)))
    name = everything[-1].name
    model = registry.models[name]
    path = write_shape(tmp_path / "m.gguf", dense("llama", 28, 3584, 28, 28, 128, 18944, 3000, 32768), tokens=True)
    kept = summarize(path)
    assert kept.description is not None
    quantization = kept.description.quantization
    registry.models[name] = model.model_copy(update={"quantization": quantization})
    here = LocalModel("m", Folder.OWN, (path,), path.stat().st_size, kept, model.repo, "m.gguf")
    small = machine(8)
    assert name not in {each.name for each in suggestions(registry, [here], lambda _: on(small))}
    assert next(each for each in suggestions(registry, [here], lambda _: on(machine(64))) if each.name == name).is_here


# --- guesses ----------------------------------------------------------------------------------------------------------


@given(
    st.integers(1, 1 << 42), st.integers(1, 1 << 42), st.sampled_from([machine(16), machine(32, 12), machine(8, 24)])
)
def test_a_larger_file_never_fits_better(one: int, other: int, here: Machine) -> None:
    small, large = sorted([one, other])
    # Layers come in whole numbers, so the memory of two files of almost the same size may differ the other way round.
    if large > 1.1 * small:
        assert ORDER.index(guessed_fit(small, on(here))) <= ORDER.index(guessed_fit(large, on(here)))


@pytest.mark.parametrize(
    ("layers", "embd", "heads", "width", "vocab"),
    [
        (16, 2048, 32, 8192, 128_256),
        (32, 4096, 32, 14336, 128_256),
        (64, 5120, 40, 25600, 151_936),
        (80, 8192, 64, 28672, 128_256),
    ],
)
def test_a_guess_is_near_the_plan_of_a_usual_model(
    tmp_path: Path, layers: int, embd: int, heads: int, width: int, vocab: int
) -> None:
    shape = dense("llama", layers, embd, heads, 8, embd // heads, width, vocab, 131_072)
    header = read_header(write_shape(tmp_path / "m.gguf", shape, "q4_0"))
    for here in (machine(256), machine(256, 128)):
        exact, guess = (choice_of(each, on(here)).total_bytes for each in (header, usual_header(header.file_size)))
        assert 0.9 < guess / exact < 1.3


def test_nothing_known_is_unknown() -> None:
    assert guessed_fit(None, on(machine(16))) is Fit.UNKNOWN
    assert fit_of(None, on(machine(16))) is Fit.UNKNOWN
    assert pack(usual_header(10**10)) != ""
