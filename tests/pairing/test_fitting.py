"""What chat and the other commands load on a machine with cards: as asked for where it fits, else by the plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.engine.requests import KvType, ModelSpec, PairSpec
from localspec.memory.devices import Machine, MemoryDevice
from localspec.models.gguf import read_header
from localspec.pairing.fitting import fitted
from tests.memory.shape_models import dense
from tests.memory.shapes import write_shape

GIB = 1 << 30


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> PairSpec:
    folder = tmp_path_factory.mktemp("models")
    target = write_shape(
        folder / "big.gguf", dense("llama", 28, 3584, 28, 8, 128, 18944, 3000, 32768), "q8_0", tokens=True
    )
    draft = write_shape(
        folder / "small.gguf", dense("llama", 12, 1024, 8, 2, 128, 2048, 3000, 32768), "q8_0", tokens=True
    )
    return PairSpec("pair", ModelSpec(target), ModelSpec(draft), n_ctx=16384)


def machine(*gpus_gib: float, host_gib: float = 64) -> Machine:
    cards = tuple(MemoryDevice(f"card {i}", int(size * GIB), int(size * GIB)) for i, size in enumerate(gpus_gib))
    return Machine(MemoryDevice("system memory", int(host_gib * GIB), int(host_gib * GIB)), cards, False, "")


def weights_gib(spec: PairSpec) -> float:
    return sum(tensor.n_bytes for tensor in read_header(spec.target.path).tensors) / GIB


def test_what_fits_is_loaded_as_asked_for(spec: PairSpec):
    assert fitted(spec, machine(24), ()) == (spec, "")


def test_without_a_card_nothing_is_planned(spec: PairSpec):
    assert fitted(spec, machine(), ()) == (spec, "")


def test_the_draft_gives_way_first_and_is_missed_in_words(spec: PairSpec):
    fitting, said = fitted(spec, machine(weights_gib(spec) + 2.8), {"kv_type"})
    assert fitting.draft is None
    assert fitting.target.n_gpu_layers == -1
    assert "small.gguf" in said


def test_then_the_precision_of_the_cache_then_layers_never_the_context(spec: PairSpec):
    fitting, said = fitted(spec, machine(weights_gib(spec) + 2.0), ())
    assert fitting.target.kv_type is KvType.Q8_0
    assert "q8_0" in said.lower()
    fitting, said = fitted(spec, machine(4), ())
    assert 0 < fitting.target.n_gpu_layers < 28
    assert fitting.draft is None
    assert fitting.n_ctx == 16384
    assert said


@pytest.mark.parametrize("given", [{"gpu_layers"}, {"draft_gpu_layers"}])
def test_who_sets_layers_is_obeyed(spec: PairSpec, given: set[str]):
    assert fitted(spec, machine(2), given) == (spec, "")


def test_a_cache_type_that_was_set_stays(spec: PairSpec):
    fitting, _ = fitted(spec, machine(4), {"kv_type"})
    assert fitting.target.kv_type is KvType.F16


def test_where_nothing_fits_the_pair_stays_with_a_word(spec: PairSpec):
    fitting, said = fitted(spec, machine(0.1, host_gib=1), ())
    assert fitting == spec
    assert "does not fit" in said
    assert "localspec plan" in said


def test_what_is_no_model_is_for_the_loader_to_refuse(spec: PairSpec):
    vocab = next((Path(__file__).parents[1] / "data" / "vocab").glob("*.gguf"))
    asked = PairSpec("vocab", ModelSpec(vocab))
    assert fitted(asked, machine(8), ()) == (asked, "")
