"""Laws of the estimate: nothing is lost between devices, more context costs more, and no header breaks it."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from localspec.engine.requests import KvType
from localspec.errors import ModelFileError
from localspec.memory.context_shape import ContextShape
from localspec.memory.estimate import Footprint, ModelMemory, least_kv_bytes
from localspec.memory.kv_cache import KV_BLOCKS, kv_type_problem
from localspec.models.gguf import read_header
from localspec.models.header import GgufHeader, TensorInfo
from tests.memory.shape_models import SHAPES
from tests.memory.shapes import write_shape

GIB = 1 << 30


@pytest.fixture(scope="module")
def headers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, GgufHeader]:
    folder = tmp_path_factory.mktemp("shapes")
    return {name: read_header(write_shape(folder / f"{name}.gguf", make())) for name, make in SHAPES.items()}


@pytest.fixture(scope="module")
def footprints(headers: dict[str, GgufHeader]) -> dict[str, Footprint]:
    return {name: Footprint(header) for name, header in headers.items()}


names = st.sampled_from(sorted(SHAPES))
contexts = st.integers(16, 200_000)


def parts(memory: ModelMemory, part: str) -> list[int]:
    return [getattr(each, part) for each in (memory.host, *memory.gpus)]


@given(names, contexts, st.integers(0, 80), st.lists(st.integers(1, 48), min_size=1, max_size=4))
def test_layers_move_and_nothing_is_lost(
    footprints: dict[str, Footprint], name: str, n_ctx: int, n_layers: int, sizes: list[int]
) -> None:
    footprint, context = footprints[name], ContextShape(n_ctx)
    alone = footprint.memory(context)
    moved = footprint.memory(context, n_gpu_layers=n_layers, gpu_free_bytes=[size * GIB for size in sizes])
    assert sum(parts(moved, "kv_bytes")) == alone.host.kv_bytes
    # Embeddings that are the output too are copied to a card, once.
    copied = footprint.weights.tied_bytes if n_layers else 0
    assert sum(parts(moved, "weights_bytes")) == footprint.weights.total_bytes + copied
    assert all(each >= 0 for part in ("weights_bytes", "kv_bytes", "compute_bytes") for each in parts(moved, part))


@given(names, contexts, contexts, st.sampled_from(["f16", "q8_0"]))
def test_more_context_never_costs_less(
    footprints: dict[str, Footprint], name: str, some: int, more: int, kv_type: str
) -> None:
    low, high = sorted((some, more))
    sizes = [footprints[name].memory(ContextShape(n, kv_type)).total_bytes for n in (low, high)]
    assert sizes[0] <= sizes[1]


def test_every_cache_type_that_can_be_asked_for_has_a_size() -> None:
    assert KV_BLOCKS.keys() == {kv_type.value for kv_type in KvType}


@given(names, contexts)
def test_narrower_cache_types_cost_less(footprints: dict[str, Footprint], name: str, n_ctx: int) -> None:
    by_type = {kv_type: sum(footprints[name].kv_bytes(ContextShape(n_ctx, kv_type))) for kv_type in KV_BLOCKS}
    assert by_type["f32"] > by_type["f16"] == by_type["bf16"] > by_type["q8_0"] > by_type["q5_1"] > by_type["q4_0"]


def test_a_window_cache_is_smaller_and_ends_growing(footprints: dict[str, Footprint]) -> None:
    footprint = footprints["gemma-3-27b"]
    sliding = [layer.is_sliding for layer in footprint.shape.layers]

    def of_window(n_ctx: int, *, whole: bool) -> int:
        sizes = footprint.kv_bytes(ContextShape(n_ctx, whole_window_cache=whole))
        return sum(size for size, slides in zip(sizes, sliding, strict=True) if slides)

    assert of_window(8192, whole=False) == of_window(131072, whole=False) < of_window(8192, whole=True)


def test_snapshots_of_a_state_are_kept_where_they_help(footprints: dict[str, Footprint]) -> None:
    for name, times in (("qwen3.5-0.8b", 9), ("qwen3-next-80b-a3b", 1), ("granite-4.0-h-small", 1), ("lfm2-350m", 9)):
        footprint = footprints[name]
        recurs = next(i for i, layer in enumerate(footprint.shape.layers) if layer.is_recurrent)
        one, all_of_them = (footprint.kv_bytes(ContextShape(256, n_snapshots=n))[recurs] for n in (0, 8))
        assert all_of_them == times * one


def test_the_output_goes_to_the_card_first_and_the_input_never(footprints: dict[str, Footprint]) -> None:
    footprint = footprints["llama-3.1-8b"]
    memory = footprint.memory(ContextShape(4096), n_gpu_layers=1, gpu_free_bytes=[24 * GIB])
    assert memory.gpus[0].weights_bytes == footprint.weights.output_bytes
    assert memory.gpus[0].kv_bytes == 0
    whole = footprint.memory(ContextShape(4096), gpu_free_bytes=[24 * GIB])
    assert whole.is_whole_on_gpu
    assert (whole.n_gpu_layers, whole.n_layers) == (33, 33)
    assert whole.host.weights_bytes == footprint.weights.input_bytes


def test_a_layer_for_multi_token_prediction_counts_and_is_not_loaded(footprints: dict[str, Footprint]) -> None:
    footprint = footprints["glm-4.7-flash"]
    memory = footprint.memory(ContextShape(4096), n_gpu_layers=2, gpu_free_bytes=[24 * GIB])
    assert memory.n_layers == 49
    assert memory.gpus[0].weights_bytes == footprint.weights.output_bytes
    assert memory.gpus[0].kv_bytes == 0


def test_cards_share_by_their_free_memory(footprints: dict[str, Footprint]) -> None:
    memory = footprints["qwen3-32b"].memory(ContextShape(4096), gpu_free_bytes=[30 * GIB, 10 * GIB])
    first, second = (gpu.weights_bytes for gpu in memory.gpus)
    assert 2.5 < first / second < 3.5


def test_heads_without_a_kernel_cost_their_scores(footprints: dict[str, Footprint], tmp_path: Path) -> None:
    from tests.memory.shape_models import dense

    path = write_shape(tmp_path / "x.gguf", dense("llama", 4, 1024, 32, 32, 32, 2048, 1000, 65536))
    footprint = Footprint(read_header(path))
    gpu = footprint.memory(ContextShape(32768), gpu_free_bytes=[24 * GIB]).gpus[0]
    assert gpu.compute_bytes > 32 * 32768 * 512 * 4
    assert footprint.memory(ContextShape(32768)).host.compute_bytes < gpu.compute_bytes / 10


@pytest.mark.parametrize("name", ["exaone-3.5-2.4b"])
def test_heads_that_no_block_divides(footprints: dict[str, Footprint], name: str) -> None:
    assert "80" in kv_type_problem(footprints[name].shape, "q8_0")
    assert kv_type_problem(footprints[name].shape, "f16") == ""


# --- the bound that refuses -------------------------------------------------------------------------------------------


@given(names, contexts, st.sampled_from(sorted(KV_BLOCKS)))
def test_the_least_cache_is_never_more_than_the_cache(
    headers: dict[str, GgufHeader], footprints: dict[str, Footprint], name: str, n_ctx: int, kv_type: str
) -> None:
    least = least_kv_bytes(headers[name], n_ctx, kv_type)
    assert 0 < least <= sum(footprints[name].kv_bytes(ContextShape(n_ctx, kv_type)))


def made_up(architecture: str, values: dict[str, Any], tensors: tuple[TensorInfo, ...] = ()) -> GgufHeader:
    metadata = {"general.architecture": architecture, **{f"{architecture}.{key}": v for key, v in values.items()}}
    return GgufHeader(PurePosixPath("model.gguf"), 3, metadata, tensors, 0, 0)


PLAIN = {"block_count": 2, "embedding_length": 64, "attention.head_count": 4, "vocab_size": 100}


def test_what_is_not_certain_refuses_nobody() -> None:
    assert least_kv_bytes(made_up("llama9", PLAIN), 4096, "f16") == 0
    assert least_kv_bytes(made_up("deepseek4", PLAIN), 4096, "f16") == 0
    assert least_kv_bytes(made_up("llama", {"block_count": 2}), 4096, "f16") == 0
    assert least_kv_bytes(made_up("llama", PLAIN), 4096, "f16") == 2 * 2 * 64 * 2 * 4096


def test_an_unknown_architecture_is_estimated_and_says_so() -> None:
    memory = Footprint(made_up("llama9", PLAIN)).memory(ContextShape(4096))
    assert not memory.is_exact
    assert memory.host.kv_bytes == 2 * 2 * 64 * 2 * 4096


tensor_names = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["token_embd.weight", "output.weight", "blk.0.attn_q.weight", "blk.1.ffn_down_exps.weight"]),
    st.builds("blk.{}.{}.weight".format, st.text("0123456789", max_size=6), st.sampled_from(["ffn_up", "ssm_in"])),
    st.just("blk." + "9" * 5000 + ".attn_q.weight"),
)
tensors = st.builds(
    TensorInfo,
    tensor_names,
    st.lists(st.integers(0, 2**40), max_size=4).map(tuple),
    st.sampled_from(["f16", "q4_0", "nothing"]),
    st.just(0),
    st.integers(0, 2**60),
)


@given(
    st.sampled_from(["llama", "qwen35", "granitehybrid", "deepseek2", "rwkv7", "llama9"]),
    st.lists(tensors, max_size=6),
    st.integers(0, 5),
)
@example("qwen35", [TensorInfo("blk.0.ssm_in.weight", (64,), "f16", 0, 128)], 0)
def test_no_tensor_table_breaks_it(architecture: str, table: list[TensorInfo], n_gpu_layers: int) -> None:
    header = made_up(architecture, PLAIN, tuple(table))
    try:
        memory = Footprint(header).memory(ContextShape(4096), n_gpu_layers=n_gpu_layers, gpu_free_bytes=[0, GIB])
    except ModelFileError:
        return
    assert memory.total_bytes >= 0
