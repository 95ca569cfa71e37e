"""A model's shape from its header: the rules of each architecture, and headers that lie."""

from __future__ import annotations

import struct
from array import array
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import ModelFileError
from localspec.models import layer_kinds
from localspec.models.gguf import read_header
from localspec.models.header import GgufHeader
from localspec.models.hyperparameters import MAX_LAYERS, hyperparameters
from tests.memory.shape_models import SHAPES
from tests.memory.shapes import write_shape
from tests.models import gguf_bytes as g


def header_of(architecture: str, values: dict[str, Any]) -> GgufHeader:
    metadata = {"general.architecture": architecture}
    metadata |= {f"{architecture}.{key}": value for key, value in values.items()}
    return GgufHeader(PurePosixPath("model.gguf"), 3, metadata, (), 0, 0)


BASE: dict[str, Any] = {
    "block_count": 4,
    "embedding_length": 64,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "feed_forward_length": 256,
    "context_length": 4096,
    "vocab_size": 100,
}


def sliding(architecture: str, n_layers: int = 8, **values: Any) -> list[bool]:
    given = BASE | {"block_count": n_layers} | {key.replace("__", "."): value for key, value in values.items()}
    return [layer.is_sliding for layer in hyperparameters(header_of(architecture, given)).layers]


def test_defaults_of_a_plain_model() -> None:
    shape = hyperparameters(header_of("llama", BASE))
    assert shape.is_exact
    assert (shape.n_embd, shape.n_ctx_train, shape.n_vocab, shape.n_layers_all) == (64, 4096, 100, 4)
    assert len(shape.layers) == 4
    layer = shape.layers[0]
    assert (layer.n_heads, layer.n_heads_kv, layer.key_length, layer.value_length) == (4, 2, 16, 16)
    assert layer.has_cache
    assert not layer.is_sliding
    assert not layer.is_recurrent
    assert shape.recurrent is None
    assert not shape.is_mla


def test_as_many_heads_for_keys_as_for_queries_where_the_file_says_nothing() -> None:
    values = {key: value for key, value in BASE.items() if key != "attention.head_count_kv"}
    values["attention.head_count"] = array("i", [4, 8, 4, 8])
    shape = hyperparameters(header_of("llama", values))
    assert [layer.n_heads_kv for layer in shape.layers] == [4, 8, 4, 8]


def test_heads_may_differ_between_layers() -> None:
    values = BASE | {"attention.head_count_kv": array("I", [1, 2, 0, 4])}
    assert [layer.n_heads_kv for layer in hyperparameters(header_of("deci", values)).layers] == [1, 2, 0, 4]


@pytest.mark.parametrize(
    ("architecture", "full"),
    [
        ("gemma2", [1, 3, 5, 7]),
        ("gemma3", [5]),
        ("gemma3n", [4]),
        ("gpt-oss", [1, 3, 5, 7]),
        ("cohere2", [3, 7]),
        ("laguna", [0, 4]),
        ("plamo3", [7]),
    ],
)
def test_which_layers_slide(architecture: str, full: list[int]) -> None:
    slides = sliding(architecture, attention__sliding_window=128)
    assert [i for i, each in enumerate(slides) if not each] == full


def test_a_listed_pattern_goes_before_the_rule_and_may_be_short() -> None:
    listed = array("B", [0, 1])
    assert sliding("gemma3", 4, attention__sliding_window=64, attention__sliding_window_pattern=listed) == [
        False,
        True,
        False,
        False,
    ]


def test_a_period_in_the_file_goes_before_the_rule() -> None:
    slides = sliding("gemma3", 4, attention__sliding_window=64, attention__sliding_window_pattern=2)
    assert slides == [True, False, True, False]


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "phi3", "mistral3"])
def test_a_window_that_llama_cpp_ignores(architecture: str) -> None:
    assert not any(sliding(architecture, attention__sliding_window=128))


def test_exaone4_slides_in_its_large_size_only() -> None:
    assert not any(sliding("exaone4", 30, attention__sliding_window=4096))
    assert any(sliding("exaone4", 64))


def test_llama4_slides_unless_the_file_says_0() -> None:
    assert any(sliding("llama4"))
    assert not any(sliding("llama4", attention__sliding_window=0))
    given = hyperparameters(header_of("llama4", BASE | {"attention.sliding_window": 1024}))
    assert given.sliding_window == 8192


@pytest.mark.parametrize("architecture", layer_kinds.BY_INTERVAL)
def test_all_but_every_nth_layer_recur(architecture: str) -> None:
    n = layer_kinds.BY_INTERVAL[architecture]
    layers = hyperparameters(header_of(architecture, BASE | {"block_count": 2 * n})).layers
    assert [i for i, layer in enumerate(layers) if not layer.is_recurrent] == [n - 1, 2 * n - 1]
    assert all(layer.has_cache != layer.is_recurrent for layer in layers)


def test_every_layer_of_falcon_h1_has_both() -> None:
    assert all(each.has_cache and each.is_recurrent for each in hyperparameters(header_of("falcon-h1", BASE)).layers)


def test_a_layer_of_nemotron_h_is_one_of_three() -> None:
    values = BASE | {
        "attention.head_count_kv": array("I", [0, 2, 0, 2]),
        "feed_forward_length": array("I", [0, 0, 512, 0]),
    }
    layers = hyperparameters(header_of("nemotron_h", values)).layers
    assert [layer.is_recurrent for layer in layers] == [True, False, False, False]
    assert [layer.has_cache for layer in layers] == [False, True, False, True]


def test_layers_for_multi_token_prediction_are_apart() -> None:
    shape = hyperparameters(header_of("qwen35", BASE | {"block_count": 9, "nextn_predict_layers": 1}))
    assert len(shape.layers) == 8
    assert (shape.n_layers_ahead, shape.n_layers_all) == (1, 9)


def test_gemma4_shares_caches_at_the_end() -> None:
    values = BASE | {"attention.shared_kv_layers": 3, "attention.sliding_window_pattern": array("B", [1, 1, 0, 1])}
    values["attention.sliding_window"] = 512
    layers = hyperparameters(header_of("gemma4", values)).layers
    assert [layer.has_cache for layer in layers] == [True, False, False, False]


def test_sliding_layers_may_have_heads_of_their_own_length() -> None:
    values = BASE | {"attention.key_length": 512, "attention.value_length": 512, "attention.sliding_window": 64}
    values |= {"attention.key_length_swa": 256, "attention.value_length_swa": 256}
    values["attention.sliding_window_pattern"] = array("B", [1, 0, 1, 0])
    layers = hyperparameters(header_of("gemma4", values)).layers
    assert [layer.key_length for layer in layers] == [256, 512, 256, 512]


def test_an_unknown_architecture_is_read_by_the_general_keys() -> None:
    shape = hyperparameters(header_of("llama9", BASE))
    assert not shape.is_exact
    assert len(shape.layers) == 4


def test_known_and_approximate_architectures_are_apart() -> None:
    assert not layer_kinds.KNOWN & layer_kinds.APPROXIMATE


# --- headers that lie -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("block_count", 0),
        ("block_count", MAX_LAYERS + 1),
        ("block_count", -1),
        ("block_count", "32"),
        ("block_count", True),
        ("embedding_length", -64),
        ("embedding_length", 2**40),
        ("nextn_predict_layers", 4),
        ("attention.head_count_kv", array("i", [1, 2])),
        ("attention.head_count_kv", array("i", [1, 2, 3, -4])),
        ("attention.head_count_kv", array("f", [1, 2, 3, 4])),
        ("attention.key_length", 2**33),
        ("attention.head_count", 1.5),
    ],
)
def test_an_impossible_number_is_named(key: str, value: Any) -> None:
    with pytest.raises(ModelFileError, match=key):
        hyperparameters(header_of("llama", BASE | {key: value}))


def test_only_a_number_that_counts_is_refused() -> None:
    values = BASE | {"feed_forward_length": 1.5, "rope.freq_base": "ten thousand", "expert_count": -1}
    assert hyperparameters(header_of("llama", values)) == hyperparameters(header_of("llama", BASE))
    with pytest.raises(ModelFileError, match="feed_forward_length"):
        hyperparameters(header_of("nemotron_h", values))


def test_a_missing_number_is_named() -> None:
    with pytest.raises(ModelFileError, match=r"has no llama\.block_count"):
        hyperparameters(header_of("llama", {"embedding_length": 64}))


def test_an_interval_of_0_divides_nothing() -> None:
    with pytest.raises(ModelFileError, match="full_attention_interval"):
        hyperparameters(header_of("qwen35", BASE | {"full_attention_interval": 0}))


NUMBERS = st.integers(-(2**63), 2**64 - 1)
KEYS = st.sampled_from(
    [
        *BASE,
        "nextn_predict_layers",
        "expert_used_count",
        "attention.key_length",
        "attention.value_length_swa",
        "attention.sliding_window",
        "attention.sliding_window_pattern",
        "attention.recurrent_layers",
        "attention.shared_kv_layers",
        "full_attention_interval",
        "ssm.conv_kernel",
        "ssm.inner_size",
        "wkv.head_size",
        "shortconv.l_cache",
        "kda.head_dim",
    ]
)
VALUES = st.one_of(
    NUMBERS,
    st.integers(0, 600),
    st.booleans(),
    st.text(max_size=4),
    st.floats(),
    st.lists(st.integers(0, 255), max_size=9).map(lambda each: array("B", each)),
    st.lists(st.integers(-(2**31), 2**31 - 1), max_size=9).map(lambda each: array("i", each)),
    st.lists(st.floats(width=32), max_size=4).map(lambda each: array("f", each)),
)


@given(
    st.sampled_from(sorted(layer_kinds.KNOWN | layer_kinds.APPROXIMATE | {"", "llama9"})),
    st.dictionaries(KEYS, VALUES, max_size=6),
)
def test_whatever_the_numbers_it_is_a_shape_or_a_refusal(architecture: str, values: dict[str, Any]) -> None:
    try:
        shape = hyperparameters(header_of(architecture, BASE | values))
    except ModelFileError:
        return
    assert 0 < len(shape.layers) <= MAX_LAYERS
    assert all(layer.key_length >= 0 and layer.n_heads_kv >= 0 for layer in shape.layers)


# --- whole files ------------------------------------------------------------------------------------------------------


def test_the_vocabulary_counts_before_a_number_of_tokens(tmp_path: Path) -> None:
    tokens = g.strings("tokenizer.ggml.tokens", ["a", "b", "c"])
    entries = [g.entry("general.architecture", g.STRING, g.text("llama")), tokens]
    entries += [g.entry(f"llama.{key}", g.U32, struct.pack("<I", value)) for key, value in BASE.items()]
    header = read_header(g.write(tmp_path / "x.gguf", g.gguf(entries)))
    assert hyperparameters(header).n_vocab == 3


def test_a_file_of_a_real_shape(tmp_path: Path) -> None:
    shape = hyperparameters(read_header(write_shape(tmp_path / "x.gguf", SHAPES["glm-4.7-flash"]())))
    assert shape.is_mla
    assert (shape.kv_rank, shape.mla_key_length) == (512, 256)
    assert shape.layers[1].n_experts_used == 4
