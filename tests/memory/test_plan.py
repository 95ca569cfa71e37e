"""The rules of the planner, on machines that are made up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from localspec.errors import UsageError
from localspec.memory.choice import Choice, Margin, ModelChoice
from localspec.memory.devices import Machine, MemoryDevice
from localspec.memory.estimate import ContextShape, Footprint
from localspec.memory.plan import Change, Plan, plan
from localspec.models.gguf import read_header
from localspec.models.header import GgufHeader
from tests.memory.shape_models import SHAPES
from tests.memory.shapes import write_shape

GIB = 1 << 30


def machine(host: float, *gpus: float, unified: bool = False) -> Machine:
    def device(name: str, size: float) -> MemoryDevice:
        return MemoryDevice(name, int(size * GIB), int(size * GIB))

    return Machine(
        device("system memory", host), tuple(device(f"card {i}", size) for i, size in enumerate(gpus)), unified, ""
    )


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> GgufHeader:
    """4.2 GiB of weights, of which 3.9 GiB go to a card, and 1 GiB of F16 cache for 8192 tokens."""
    path = tmp_path_factory.mktemp("target") / "llama-3.1-8b-q4_K.gguf"
    return read_header(write_shape(path, SHAPES["llama-3.1-8b"](), "q4_K"))


@pytest.fixture(scope="module")
def headers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, GgufHeader]:
    """Shapes as Q4_K whose layers are alike, partly recurrent, and with one cache for keys and values."""
    folder = tmp_path_factory.mktemp("headers")
    names = ("llama-3.1-8b", "qwen3.5-0.8b", "glm-4.7-flash")
    return {name: read_header(write_shape(folder / f"{name}.gguf", SHAPES[name](), "q4_K")) for name in names}


@pytest.fixture(scope="module")
def drafts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, GgufHeader]:
    """One draft model as Q4_0, Q8_0 and F16: 1.0, 1.5 and 2.6 GiB on a card, with a cache for 8192 tokens."""
    folder = tmp_path_factory.mktemp("drafts")
    shape = SHAPES["llama-3.2-1b"]()
    return {kind: read_header(write_shape(folder / f"{kind}.gguf", shape, kind)) for kind in ("q4_0", "q8_0", "f16")}


def changes(made: Plan, change: Change) -> list[Choice]:
    return [each.choice for each in made.alternatives if each.change is change]


# --- the draft --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "fitting"), [(24, ["q4_0", "q8_0", "f16"]), (8, ["q4_0", "q8_0"]), (7.2, ["q4_0"]), (6, [])]
)
def test_a_draft_that_leaves_the_target_whole(
    target: GgufHeader, drafts: dict[str, GgufHeader], size: float, fitting: list[str]
) -> None:
    for name, draft in drafts.items():
        made = plan(target, draft, machine(32, size), n_ctx=8192)
        assert made.fits
        assert made.choice.is_target_whole_on_gpu
        assert made.choice.target.kv_type == "f16"
        assert (made.choice.draft is not None) == (name in fitting)
        # One that has no room is listed with what it takes, and why it was left out is said.
        assert [each.fits for each in changes(made, Change.DRAFT)] == ([] if name in fitting else [False])
        assert len(changes(made, Change.NO_DRAFT)) == (name in fitting)
        assert any("lacks" in reason for reason in made.reasons) == (name not in fitting)


def test_a_draft_cache_is_narrowed_before_the_draft_is_left_out(
    target: GgufHeader, drafts: dict[str, GgufHeader]
) -> None:
    size = next(
        fortieths / 40
        for fortieths in range(240, 400)
        if plan(target, drafts["q8_0"], machine(32, fortieths / 40), n_ctx=8192).choice.draft is not None
    )
    choice = plan(target, drafts["q8_0"], machine(32, size), n_ctx=8192).choice
    assert choice.draft is not None
    assert choice.draft.kv_type == "q8_0"
    assert choice.target.kv_type == "f16"
    assert plan(target, drafts["q8_0"], machine(32, size), n_ctx=8192, draft_kv_type="f16").choice.draft is None


def test_a_smaller_cache_of_the_target_makes_room_for_a_draft_and_is_only_offered(
    target: GgufHeader, drafts: dict[str, GgufHeader]
) -> None:
    made = plan(target, drafts["q4_0"], machine(32, 6.5), n_ctx=8192)
    assert (made.choice.target.kv_type, made.choice.draft) == ("f16", None)
    offer = changes(made, Change.KV_TYPE)[0]
    assert offer.fits
    assert (offer.target.kv_type, offer.draft is not None) == ("q8_0", True)


def test_a_target_that_is_not_whole_gets_no_draft(target: GgufHeader, drafts: dict[str, GgufHeader]) -> None:
    made = plan(target, drafts["q4_0"], machine(32, 4), n_ctx=8192)
    assert made.fits
    assert 0 < made.choice.target.memory.n_gpu_layers < 33
    assert made.choice.draft is None
    (offer,) = changes(made, Change.FEWER_LAYERS)
    assert offer.fits
    assert offer.target.memory.n_gpu_layers < made.choice.target.memory.n_gpu_layers


# --- cache and context ------------------------------------------------------------------------------------------------


def test_a_narrower_cache_keeps_the_target_whole(target: GgufHeader) -> None:
    made = plan(target, None, machine(32, 10), n_ctx=32768)
    assert made.choice.is_target_whole_on_gpu
    assert made.choice.target.kv_type == "f16"
    made = plan(target, None, machine(32, 8), n_ctx=32768)
    assert made.choice.is_target_whole_on_gpu
    assert made.choice.target.kv_type == "q8_0"
    assert any("q8_0" in reason for reason in made.reasons)


def test_a_cache_type_that_was_asked_for_is_kept(target: GgufHeader) -> None:
    made = plan(target, None, machine(32, 8), n_ctx=32768, kv_type="f16")
    assert made.choice.target.kv_type == "f16"
    assert not made.choice.is_target_whole_on_gpu
    assert changes(made, Change.KV_TYPE) == []


def test_an_impossible_cache_type_is_refused(target: GgufHeader, tmp_path: Path) -> None:
    header = read_header(write_shape(tmp_path / "x.gguf", SHAPES["exaone-3.5-2.4b"]()))
    with pytest.raises(UsageError, match="q8_0"):
        plan(header, None, machine(32), n_ctx=4096, kv_type="q8_0")
    assert plan(header, None, machine(2), n_ctx=4096).choice.target.kv_type == "f16"
    with pytest.raises(UsageError, match="q4_0"):
        plan(target, header, machine(32), n_ctx=4096, draft_kv_type="q4_0")


def test_the_context_never_shrinks(target: GgufHeader, drafts: dict[str, GgufHeader]) -> None:
    made = plan(target, drafts["q8_0"], machine(8), n_ctx=131072)
    assert not made.fits
    assert made.choice.n_ctx == 131072
    assert made.choice.missing_bytes > 0
    (offer,) = changes(made, Change.SMALLER_CTX)
    assert offer.fits
    assert 0 < offer.n_ctx < 131072


def test_a_smaller_context_that_makes_the_target_whole_is_offered(target: GgufHeader) -> None:
    made = plan(target, None, machine(64, 8), n_ctx=131072)
    assert made.choice.n_ctx == 131072
    (offer,) = changes(made, Change.SMALLER_CTX)
    assert offer.is_target_whole_on_gpu
    assert offer.fits


def test_a_larger_context_that_fits_as_well_is_offered(target: GgufHeader, drafts: dict[str, GgufHeader]) -> None:
    made = plan(target, drafts["f16"], machine(32, 24), n_ctx=8192)
    (offer,) = changes(made, Change.LARGER_CTX)
    assert offer.fits
    assert 8192 < offer.n_ctx <= 131072
    assert offer.draft is not None


# --- machines ---------------------------------------------------------------------------------------------------------


def test_without_a_card_all_is_in_system_memory(target: GgufHeader, drafts: dict[str, GgufHeader]) -> None:
    made = plan(target, drafts["f16"], machine(32), n_ctx=8192)
    assert made.fits
    assert made.choice.draft is not None
    assert made.choice.target.memory.gpus == made.choice.draft.memory.gpus == ()
    assert plan(target, drafts["f16"], machine(8), n_ctx=8192).choice.draft is None
    assert plan(target, drafts["q8_0"], machine(8), n_ctx=8192).choice.draft is not None


def test_too_little_of_everything(target: GgufHeader, drafts: dict[str, GgufHeader]) -> None:
    made = plan(target, drafts["q4_0"], machine(2, 1), n_ctx=8192)
    assert not made.fits
    assert made.choice.draft is None
    assert not any(each.choice.fits for each in made.alternatives)


def test_a_card_that_is_too_small_to_help_can_be_hidden(target: GgufHeader) -> None:
    made = plan(target, None, machine(32, 0.5), n_ctx=8192)
    assert not made.fits
    (offer,) = changes(made, Change.NO_GPU)
    assert offer.fits
    assert offer.machine.gpus == ()


def test_several_cards_together_hold_what_one_does_not(target: GgufHeader) -> None:
    assert not plan(target, None, machine(32, 4), n_ctx=8192).choice.is_target_whole_on_gpu
    made = plan(target, None, machine(32, 4, 4), n_ctx=8192)
    assert made.choice.is_target_whole_on_gpu
    assert all(gpu.weights_bytes for gpu in made.choice.target.memory.gpus)


def test_a_small_card_that_is_in_the_way_can_be_hidden(target: GgufHeader) -> None:
    made = plan(target, None, machine(32, 0.9, 24), n_ctx=8192)
    assert not made.choice.is_target_whole_on_gpu or not made.fits
    (offer,) = changes(made, Change.FEWER_GPUS)
    assert offer.fits
    assert offer.is_target_whole_on_gpu
    assert [gpu.name for gpu in offer.machine.gpus] == ["card 1"]
    (text,) = [each.text for each in made.alternatives if each.change is Change.FEWER_GPUS]
    assert "card 0 (922 MiB free)" in text
    assert changes(plan(target, None, machine(32, 12, 12), n_ctx=8192), Change.FEWER_GPUS) == []


CARDS = st.lists(st.sampled_from([0.3, 0.9, 1.02, 1.09, 1.5, 2.5, 4.0, 11.05, 12.97]), min_size=1, max_size=3)


@settings(deadline=None, max_examples=60)
@given(shape=st.sampled_from(["llama-3.1-8b", "qwen3.5-0.8b", "glm-4.7-flash"]), host=st.floats(0.5, 40), sizes=CARDS)
@example(shape="qwen3.5-0.8b", host=64, sizes=[1.09, 50])
@example(shape="glm-4.7-flash", host=64, sizes=[12.97, 1.02, 11.05])
def test_no_other_number_of_layers_would_be_more(
    headers: dict[str, GgufHeader], shape: str, host: float, sizes: list[float]
) -> None:
    """By trying every one, with every cache type that may be chosen."""
    here, header = machine(host, *sizes), headers[shape]
    n_ctx = 131_072 if shape == "qwen3.5-0.8b" else 8192
    made = plan(header, None, here, n_ctx=n_ctx)
    footprint, free_bytes = Footprint(header), [gpu.free_bytes for gpu in here.gpus]

    def loaded(kv_type: str, n: int) -> Choice:
        memory = footprint.memory(ContextShape(n_ctx, kv_type), n_gpu_layers=n, gpu_free_bytes=free_bytes)
        return Choice(here, Margin(), n_ctx, ModelChoice(header.path, kv_type, memory))

    n_layers = made.choice.target.memory.n_layers
    every = [loaded(kv_type, n) for kv_type in ("f16", "q8_0") for n in range(n_layers, -1, -1)]
    # Whole before anything else, then by the type of the cache, then by layers: the order in which they were made.
    fitting = sorted((each for each in every if each.fits), key=lambda each: not each.is_target_whole_on_gpu)
    assert made.fits == bool(fitting)
    if fitting:
        assert made.choice.target == fitting[0].target


def test_shared_memory_is_counted_once(target: GgufHeader, drafts: dict[str, GgufHeader]) -> None:
    made = plan(target, drafts["q4_0"], machine(8, 6, unified=True), n_ctx=8192)
    assert made.fits
    assert made.choice.is_target_whole_on_gpu
    assert made.choice.total_bytes <= 8 * GIB
    assert plan(target, None, machine(5, 6), n_ctx=8192).choice.target.kv_type == "f16"
    assert plan(target, None, machine(5, 6, unified=True), n_ctx=8192).choice.target.kv_type == "q8_0"


def test_layers_as_asked_for(target: GgufHeader, drafts: dict[str, GgufHeader]) -> None:
    made = plan(target, drafts["f16"], machine(32, 24), n_ctx=8192, n_gpu_layers=10)
    assert made.choice.target.memory.n_gpu_layers == 10
    assert made.choice.draft is not None
    assert not plan(target, None, machine(32, 3), n_ctx=8192, n_gpu_layers=-1).fits


def test_the_margin_stays_free(target: GgufHeader) -> None:
    tight = plan(target, None, machine(32, 5.2), n_ctx=8192, margin=Margin(0, 0))
    assert tight.choice.is_target_whole_on_gpu
    assert tight.choice.target.kv_type == "f16"
    assert tight.choice != plan(target, None, machine(32, 5.2), n_ctx=8192).choice


sizes = st.lists(st.floats(0.5, 26), max_size=3)


class Offered:
    """A target and its drafts, with nothing that hypothesis would print."""

    def __init__(self, target: GgufHeader, drafts: dict[str, GgufHeader]) -> None:
        self.target, self.drafts = target, drafts


@pytest.fixture(scope="module")
def offered(target: GgufHeader, drafts: dict[str, GgufHeader]) -> Offered:
    return Offered(target, drafts)


@given(
    st.sampled_from([None, "q4_0", "q8_0", "f16"]),
    st.floats(1, 40),
    sizes,
    st.integers(512, 140_000),
    st.booleans(),
)
def test_laws(
    offered: Offered, kind: str | None, host: float, gpus: Sequence[float], n_ctx: int, unified: bool
) -> None:
    target, draft = offered.target, offered.drafts[kind] if kind else None
    here = machine(host, *gpus[:1] if unified else gpus, unified=unified and bool(gpus))
    made = plan(target, draft, here, n_ctx=n_ctx)
    choice = made.choice
    assert choice.n_ctx == n_ctx
    assert choice.fits == (choice.missing_bytes == 0)
    if choice.fits:
        for load in choice.loads:
            assert load.used_bytes == 0 or load.used_bytes + load.margin_bytes <= load.device.free_bytes
    if choice.draft is not None:
        assert choice.fits
        assert choice.is_target_whole_on_gpu or not here.gpus
        # Spending on the draft took nothing from the target.
        alone = plan(target, None, here, n_ctx=n_ctx).choice
        assert choice.target == alone.target
    if not choice.fits:
        # A q4_0 cache costs precision that shows, and hiding a card is a user's own doing: offered, never chosen.
        others = [
            each
            for each in made.alternatives
            if each.change not in {Change.NO_GPU, Change.FEWER_GPUS} and each.choice.target.kv_type != "q4_0"
        ]
        assert not any(each.choice.fits and each.choice.n_ctx >= n_ctx for each in others)
    for offer in changes(made, Change.SMALLER_CTX) + changes(made, Change.LARGER_CTX):
        assert offer.fits
