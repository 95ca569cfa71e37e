"""What a pass over one token reads, and how fast: dense and tied models, experts, and layers on several memories."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from localspec.memory import bandwidth
from localspec.memory.devices import Machine, MemoryDevice
from localspec.memory.plan import plan
from localspec.models.gguf import read_header
from localspec.models.header import GgufHeader
from localspec.pairing.prediction import ModelTraffic
from localspec.pairing.traffic import Bandwidths, measured_bandwidths, traffic_of
from tests.memory.shape_models import SHAPES, dense
from tests.memory.shapes import Shape, write_shape

GIB = 1 << 30
HOST, CARD = 40e9, 400e9
N_CTX = 8192

Write = Callable[..., GgufHeader]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(shape: Shape, kind: str = "q8_0") -> GgufHeader:
        return read_header(write_shape(tmp_path / f"{len(list(tmp_path.iterdir()))}.gguf", shape, kind))

    return written


def small(*, tied: bool = False) -> Shape:
    return dense("llama", 8, 1024, 8, 2, 128, 2048, 8000, 32768, tied=tied)


def machine(*cards_gib: float, unified: bool = False) -> Machine:
    cards = tuple(MemoryDevice(f"card {i}", int(size * GIB), int(size * GIB)) for i, size in enumerate(cards_gib))
    return Machine(MemoryDevice("system memory", 200 * GIB, 200 * GIB), cards, unified, "")


def traffic(
    header: GgufHeader,
    here: Machine | None = None,
    *,
    n_ctx: int = N_CTX,
    n_gpu_layers: int | None = None,
    bandwidths: Bandwidths | None = None,
) -> ModelTraffic:
    here = here or machine()
    choice = plan(header, None, here, n_ctx=n_ctx, n_gpu_layers=n_gpu_layers).choice
    assert choice.fits
    return traffic_of(header, choice.target, n_ctx, bandwidths or Bandwidths(HOST, (CARD,) * len(here.gpus)))


def n_bytes(header: GgufHeader, pattern: str = "") -> int:
    """Of all tensors whose names match from the start."""
    return sum(tensor.n_bytes for tensor in header.tensors if re.match(pattern, tensor.name))


# --- what is read -----------------------------------------------------------------------------------------------------


def test_of_a_dense_model_all_is_read_but_the_embeddings(write: Write) -> None:
    header = write(small())
    found = traffic(header)
    assert found.dense_bytes == n_bytes(header) - n_bytes(header, "token_embd")
    assert (found.expert_bytes, found.n_experts) == (0, 0)
    assert found.n_parameters == sum(tensor.n_elements for tensor in header.tensors)
    assert (found.bandwidth, found.on_gpu) == (HOST, False)


def test_embeddings_that_are_the_output_too_are_read(write: Write) -> None:
    header = write(small(tied=True))
    for here in (machine(), machine(8)):
        assert traffic(header, here).dense_bytes == n_bytes(header)


def test_embeddings_of_each_layer_are_looked_up(write: Write) -> None:
    header = write(SHAPES["gemma-4-e2b"]())
    of_layers = n_bytes(header, "per_layer_token_embd")
    assert of_layers > n_bytes(header) / 3
    for n_gpu_layers in (0, 1, None):
        found = traffic(header, machine(24), n_gpu_layers=n_gpu_layers)
        assert found.dense_bytes == n_bytes(header) - of_layers
    # On the card, only the output: what is left in system memory are the layers.
    output = n_bytes(header, "token_embd")
    layers = n_bytes(header) - of_layers - output
    one = traffic(header, machine(24), n_gpu_layers=1).bandwidth
    assert one == pytest.approx((layers + output) / (layers / HOST + output / CARD), rel=0.02)


def test_a_token_reads_the_experts_that_it_is_sent_to(write: Write) -> None:
    header = write(SHAPES["qwen3-30b-a3b"]())
    found = traffic(header)
    assert found.expert_bytes == n_bytes(header, r".*_exps\.") > n_bytes(header) * 0.9
    assert found.dense_bytes == n_bytes(header) - found.expert_bytes - n_bytes(header, "token_embd")
    assert (found.n_experts, found.n_experts_used) == (128, 8)
    read = found.dense_bytes + found.kv_bytes + found.expert_bytes * 8 / 128
    assert found.pass_s(1) == pytest.approx(read / HOST, rel=0.02)


def test_the_cache_is_that_of_a_chat_of_some_length(write: Write) -> None:
    header = write(small())
    of_token = 8 * 2 * 2 * 128 * 2
    assert traffic(header, n_ctx=N_CTX).kv_bytes == traffic(header, n_ctx=4 * N_CTX).kv_bytes == 2048 * of_token
    assert traffic(header, n_ctx=1024).kv_bytes == 1024 * of_token


@pytest.mark.parametrize(("kind", "is_quantized"), [("q8_0", True), ("q4_K", True), ("f16", False), ("f32", False)])
def test_whether_weights_are_unpacked_first(write: Write, kind: str, is_quantized: bool) -> None:
    assert traffic(write(small(), kind)).is_quantized == is_quantized


# --- how fast ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [False, True])
def test_a_model_that_is_whole_on_a_card_is_as_fast_as_the_card(write: Write, tied: bool) -> None:
    found = traffic(write(small(tied=tied)), machine(8))
    assert found.on_gpu
    assert found.bandwidth == pytest.approx(CARD)


@pytest.mark.parametrize("tied", [False, True])
def test_each_layer_more_on_the_card_helps(write: Write, tied: bool) -> None:
    header = write(small(tied=tied))
    layers, output = n_bytes(header, "blk"), n_bytes(header, "token_embd" if tied else "output.weight")
    found = [traffic(header, machine(8), n_gpu_layers=n) for n in range(10)]
    for n, each in enumerate(found):  # the output goes to the card first
        on_host = layers * (8 - max(0, n - 1)) / 8 + (0 if n else output)
        on_card = layers + output - on_host
        assert each.bandwidth == pytest.approx((on_host + on_card) / (on_host / HOST + on_card / CARD), rel=0.001)
        assert each.on_gpu == (n == 9)
    assert [each.bandwidth for each in found] == sorted(each.bandwidth for each in found)
    assert {each.dense_bytes for each in found} == {found[0].dense_bytes}


def test_cards_take_turns(write: Write) -> None:
    header = write(small())
    found = traffic(header, machine(8, 8), bandwidths=Bandwidths(HOST, (CARD, CARD / 4)))
    assert found.on_gpu
    assert CARD / 4 < found.bandwidth < CARD
    choice = plan(header, None, machine(8, 8), n_ctx=N_CTX).choice
    first, second = (gpu.weights_bytes for gpu in choice.target.memory.gpus)
    assert found.bandwidth == pytest.approx((first + second) / (first / CARD + second / (CARD / 4)))


# --- the machine ------------------------------------------------------------------------------------------------------


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """What the driver says of the cards; system memory reads at `HOST`."""
    cards: list[float | None] = []
    monkeypatch.setattr(bandwidth, "measured_host_bandwidth", lambda: HOST)
    monkeypatch.setattr(bandwidth, "gpu_bandwidths", lambda: tuple(cards))
    return cards


def test_cards_of_an_unknown_speed_are_taken_for_usual_ones_of_their_size(told: list[float | None]) -> None:
    told += [CARD, None]
    known, unknown = measured_bandwidths(machine(8, 8)).gpus
    assert known == CARD
    assert HOST < unknown < CARD
    assert measured_bandwidths(machine(8, 8, 8)).gpus == (CARD, unknown, unknown)
    not_here = measured_bandwidths(machine(8, 8, 24), is_here=False).gpus
    assert not_here[:2] == (unknown, unknown)
    assert not_here[2] > unknown
    assert measured_bandwidths(machine()) == Bandwidths(HOST, ())


@pytest.mark.parametrize("cards", [[], [None]])
def test_where_the_card_shares_the_systems_memory_it_reads_it_as_fast(
    write: Write, told: list[float | None], cards: list[float | None]
) -> None:
    told += cards
    here = machine(150, unified=True)
    bandwidths = measured_bandwidths(here)
    assert bandwidths == Bandwidths(HOST, (HOST,))
    header = write(small())
    found = traffic(header, here, bandwidths=bandwidths)
    assert found.on_gpu
    assert found.bandwidth == pytest.approx(HOST)
    assert found.dense_bytes == n_bytes(header) - n_bytes(header, "token_embd")
