"""Which models a repository has, by the names of its files."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.hub.quantizations import file_sets, pick, set_of
from localspec.models.split import part_names

UNSLOTH = [
    "BF16/Model-BF16-00001-of-00002.gguf",
    "BF16/Model-BF16-00002-of-00002.gguf",
    "Model-Q4_K_M.gguf",
    "Model-Q8_0.gguf",
    "Model-UD-Q4_K_XL.gguf",
    "README.md",
    "UD-IQ1_M/Model-UD-IQ1_M-00001-of-00001.gguf",
    "imatrix_unsloth.dat",
    "mmproj-F16.gguf",
]


def labels(names: list[str]) -> list[str]:
    return [each.quantization for each in file_sets(names)]


def picked(names: list[str], quantization: str | None = None) -> str | None:
    found = pick(file_sets(names), quantization)
    return None if found is None else found.names[0]


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("Llama-3.2-1B-Instruct-Q4_K_M.gguf", "Q4_K_M"),
        ("llama-2-7b.Q5_0.gguf", "Q5_0"),
        ("qwen2.5-7b-instruct-q4_k_m-00001-of-00001.gguf", "Q4_K_M"),
        ("gemma-4-E2B_q4_0-it.gguf", "Q4_0"),
        ("Phi-3-Q4_0_4_4.gguf", "Q4_0_4_4"),
        ("Qwen3-0.6B-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        ("UD-IQ2_XXS/R1-UD-IQ2_XXS.gguf", "UD-IQ2_XXS"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        ("phi-4-f16.gguf", "F16"),
        ("model-bf16.gguf", "BF16"),
        ("Q8_0/model.gguf", "Q8_0"),
        ("gemma-2b-it.gguf", ""),
    ],
)
def test_a_label_is_found_wherever_publishers_put_it(name: str, label: str) -> None:
    assert labels([name]) == [label]


def test_parts_count_as_one_model_and_companions_as_none() -> None:
    assert labels(UNSLOTH) == ["BF16", "Q4_K_M", "Q8_0", "UD-Q4_K_XL", "UD-IQ1_M"]
    assert file_sets(UNSLOTH)[0].names == tuple(UNSLOTH[:2])


@pytest.mark.parametrize(
    "name",
    [
        "mmproj-model-f16.gguf",
        "Model.mmproj-Q8_0.gguf",
        "Model-imatrix.gguf",
        "mtp-Model-Q8_0.gguf",
        "MTP/mtp-Model.gguf",
        "Model-eagle3-Q8_0.gguf",
        "Model-DFlash.Q8_0.gguf",
        "dspark-Model.gguf",
        "models/ggml-vocab-qwen2.gguf",
        "model.safetensors",
    ],
)
def test_what_only_accompanies_a_model_is_none(name: str) -> None:
    assert file_sets([name, "Model-MTP-Q8_0.gguf"])[0].names == ("Model-MTP-Q8_0.gguf",)


@given(st.permutations(range(1, 5)), st.sets(st.integers(1, 4)))
def test_a_set_is_whole_or_not_there(order: list[int], lost: set[int]) -> None:
    parts = [f"a/M-Q8_0-{number:05}-of-00004.gguf" for number in order if number not in lost]
    whole = [f"a/M-Q8_0-{number:05}-of-00004.gguf" for number in range(1, 5)]
    assert [list(each.names) for each in file_sets(parts)] == ([] if lost else [whole])


def test_a_part_names_its_whole_set() -> None:
    found = set_of(UNSLOTH[1], UNSLOTH)
    assert found is not None
    assert found.names == tuple(UNSLOTH[:2])
    assert set_of("absent.gguf", UNSLOTH) is None
    assert set_of(UNSLOTH[0], UNSLOTH[:1]) is None


@pytest.mark.parametrize(
    ("quantization", "name"),
    [
        (None, "Model-Q4_K_M.gguf"),
        ("q8_0", "Model-Q8_0.gguf"),
        ("UD-Q4_K_XL", "Model-UD-Q4_K_XL.gguf"),
        ("Q4_K_XL", "Model-UD-Q4_K_XL.gguf"),
        ("IQ1_M", "UD-IQ1_M/Model-UD-IQ1_M-00001-of-00001.gguf"),
        ("BF16", "BF16/Model-BF16-00001-of-00002.gguf"),
        ("Q5_K_M", None),
        ("Q4_K", None),
        (".", None),
    ],
)
def test_a_reference_means_what_it_means_in_llama_cpp(quantization: str | None, name: str | None) -> None:
    assert picked(UNSLOTH, quantization) == name


def test_an_exact_label_wins_over_one_that_contains_it() -> None:
    both = ["A-UD-Q4_K_M.gguf", "B-Q4_K_M.gguf"]
    assert picked(both, "Q4_K_M") == "B-Q4_K_M.gguf"
    assert picked(both[:1], "Q4_K_M") == "A-UD-Q4_K_M.gguf"


def test_without_a_usual_quantization_the_first_is_taken() -> None:
    assert picked(["M-Q2_K.gguf", "M-Q6_K.gguf"]) == "M-Q2_K.gguf"
    assert picked(["M-Q2_K.gguf", "M-Q8_0.gguf"]) == "M-Q8_0.gguf"
    assert picked(["README.md"]) is None


def test_any_text_that_llama_cpp_would_find_is_found() -> None:
    assert picked(["M-fp16.gguf"], "fp16") == "M-fp16.gguf"
    assert picked(["M-experimental.gguf"], "experimental") == "M-experimental.gguf"


def test_names_that_promise_a_thousand_parts_cost_little() -> None:
    started = time.process_time()
    assert file_sets(f"x{number}-00001-of-01000.gguf" for number in range(20_000)) == []
    whole = part_names("x-00001-of-01000.gguf")
    assert file_sets(whole)[0].names == tuple(whole)
    assert time.process_time() - started < 5  # 0.2 s; by their product, 40 s
