from pathlib import Path

import pytest

from localspec.models.description import describe
from localspec.models.gguf import read_header
from localspec.models.header import GgufHeader
from localspec.models.quantization import (
    FILE_TYPES,
    main_tensor_type,
    n_bits,
    quantization_in_name,
    quantization_of,
    without_quantization,
)
from localspec.models.tensor_types import TENSOR_TYPES
from tests.models.gguf_bytes import F32, entry, gguf, name, number, strings, tensor, write
from tests.models.small_models import model
from tests.models.vocabularies import VOCABULARIES
from tests.tiny_models import write_tiny_model


def header(folder: Path, *entries: bytes, kind: int = 0, file: str = "model.gguf", n_weights: int = 256) -> GgufHeader:
    table = [tensor("token_embd.weight", (n_weights,), kind)]
    return read_header(write(folder / file, gguf(list(entries), table, b"\0" * 4 * n_weights)))


# --- quantization -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "label"),
    [
        ("Llama-3.2-1B-Instruct-Q4_K_M.gguf", "Q4_K_M"),
        ("qwen2.5-7b-instruct-q8_0-00001-of-00003.gguf", "Q8_0"),
        ("Qwen3-8B-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        ("Meta-Llama-3.1-8B-Instruct.Q4_K_M.gguf", "Q4_K_M"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        ("Llama-3.2-1B-Instruct-f16.gguf", "F16"),
        ("model-fp16.gguf", "F16"),
        ("gemma-4-E2B_q4_0-it.gguf", "Q4_0"),
        ("a-BF16.gguf", "BF16"),
        ("Mistral-IQ4_XS.gguf", "IQ4_XS"),
        ("BitNet-TQ1_0.gguf", "TQ1_0"),
        ("Q8_0/Qwen3-Coder-Next-00001-of-00003.gguf", "Q8_0"),
        ("UD-Q6_K/Next-UD-Q6_K-00001-of-00003.gguf", "UD-Q6_K"),
        ("Llama-3.2-1B.gguf", None),
        ("phi-4-16k.gguf", None),
        ("Qwen3-Q.gguf", None),
        ("gemma-3-270m-it-qat.gguf", None),
    ],
)
def test_quantization_in_the_name_of_a_file(file: str, label: str | None) -> None:
    assert quantization_in_name(file) == label


@pytest.mark.parametrize(
    ("file_type", "kind", "file", "label"),
    [
        (15, 12, "a.gguf", "Q4_K_M"),
        (15, 12, "a-Q4_K_L.gguf", "Q4_K_L"),
        (15, 12, "a-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        (15, 12, "a-Q8_0.gguf", "Q4_K_M"),  # a name that lies
        (7, 8, "a-UD-Q8_K_XL.gguf", "UD-Q8_K_XL"),
        (38, 39, "a-MXFP4_MOE.gguf", "MXFP4_MOE"),
        (29, 22, "a-UD-IQ2_M.gguf", "UD-IQ2_M"),
        (15, 12, "a-Q4_0.gguf", "Q4_K_M"),
        (7, 8, "a-q8_0.gguf", "Q8_0"),
        (1 + 1024, 1, "a.gguf", "F16"),  # marked as guessed
        (999, 8, "a.gguf", "Q8_0"),
        (None, 12, "a.gguf", "Q4_K"),
        (None, 12, "a-Q4_K_S.gguf", "Q4_K_S"),
        (None, 22, "a-IQ2_M.gguf", "IQ2_M"),
        (None, 22, "a-IQ2_XXS.gguf", "IQ2_S"),
        (None, 0, "a.gguf", "F32"),
    ],
)
def test_quantization_of_a_header(tmp_path: Path, file_type: int | None, kind: int, file: str, label: str) -> None:
    entries = [] if file_type is None else [number("general.file_type", file_type)]
    assert quantization_of(header(tmp_path, *entries, kind=kind, file=file)) == label


def test_no_weights_no_quantization() -> None:
    assert quantization_of(read_header(VOCABULARIES["phi-3"])) == ""


@pytest.mark.parametrize(
    ("label", "bits"),
    [("Q4_K_M", 4), ("UD-IQ2_XXS", 2), ("MXFP4", 4), ("BF16", 16), ("F32", 32), ("TQ1_0", 1), ("Q8_0", 8), ("", None)],
)
def test_bits_of_a_label(label: str, bits: int | None) -> None:
    assert n_bits(label) == bits


# As llama.cpp's quantizer has it, where it is not the label itself.
MAIN_TYPES = {
    **dict.fromkeys(["Q2_K_S", "Q2_K_L", "UD-Q2_K_XL"], "q2_K"),
    **dict.fromkeys(["Q3_K_S", "Q3_K_M", "Q3_K_L", "UD-Q3_K_XL"], "q3_K"),
    **dict.fromkeys(["Q4_K_S", "Q4_K_M", "Q4_K_L", "UD-Q4_K_XL"], "q4_K"),
    **dict.fromkeys(["Q5_K_S", "Q5_K_M", "Q5_K_L", "UD-Q5_K_XL"], "q5_K"),
    **dict.fromkeys(["Q6_K_L", "UD-Q6_K", "UD-Q6_K_XL"], "q6_K"),
    "UD-Q8_K_XL": "q8_0",
    "Q4_0_4_4": "q4_0",
    "IQ2_S": "iq2_xs",
    **dict.fromkeys(["IQ2_M", "UD-IQ2_M"], "iq2_s"),
    **dict.fromkeys(["IQ3_XS", "IQ3_M", "UD-IQ3_S"], "iq3_s"),
    "UD-IQ1_S": "iq1_s",
    "UD-IQ1_M": "iq1_m",
    "UD-IQ2_XXS": "iq2_xxs",
    "UD-IQ3_XXS": "iq3_xxs",
    "UD-IQ4_XS": "iq4_xs",
    "UD-IQ4_NL_XL": "iq4_nl",
    "UD-TQ1_0": "tq1_0",
    "MXFP4_MOE": "mxfp4",
}


@pytest.mark.parametrize("label", dict.fromkeys([*FILE_TYPES.values(), *MAIN_TYPES]))
def test_the_type_of_most_weights_of_every_label(label: str) -> None:
    found = main_tensor_type(label)
    assert found in {name for name, _, _ in TENSOR_TYPES.values()}
    assert found == MAIN_TYPES.get(label, found)
    assert label in MAIN_TYPES or found.upper() == label
    assert n_bits(label) == n_bits(found.upper())
    assert quantization_in_name(f"a-{label}.gguf") == label


@pytest.mark.parametrize("label", ["", "UD-", "IQ4_KSS", "a_b"])
def test_a_label_that_says_no_type(label: str) -> None:
    assert main_tensor_type(label) == ""


def test_a_name_without_its_quantization() -> None:
    assert without_quantization("Qwen3-8B-UD-Q4_K_XL.gguf") == "Qwen3-8B.gguf"


# --- descriptions -----------------------------------------------------------------------------------------------------


def test_a_written_model(tmp_path: Path) -> None:
    found = describe(read_header(write_tiny_model(tmp_path / "tiny.gguf", name="Tiny 3.1 8B Instruct")))
    assert (found.name, found.architecture, found.family) == ("Tiny 3.1 8B Instruct", "llama", "tiny-3.1")
    assert (found.quantization, found.bits_per_weight) == ("F32", 32.0)
    assert found.n_parameters == found.n_active_parameters == found.n_weight_bytes // 4 > 10_000
    assert (found.n_ctx_train, found.n_vocab, found.tokenizer) == (512, 259, "gpt2/default")
    assert found.has_chat_template
    assert (found.n_experts, found.licence) == (0, "")


def test_a_vocabulary_alone() -> None:
    found = describe(read_header(VOCABULARIES["llama-spm"]))
    assert (found.n_parameters, found.bits_per_weight, found.quantization) == (0, 0.0, "")
    assert found.n_vocab == 32_000


def test_experts_that_do_not_work_are_not_active(tmp_path: Path) -> None:
    table = [tensor("blk.0.ffn_up_exps.weight", (800,)), tensor("output.weight", (200,), offset=3200)]
    entries = [
        name("general.architecture", "qwen3moe"),
        number("qwen3moe.expert_count", 8),
        number("qwen3moe.expert_used_count", 2),
    ]
    found = describe(read_header(write(tmp_path / "moe.gguf", gguf(entries, table, b"\0" * 4000))))
    assert (found.n_parameters, found.n_active_parameters) == (1000, 400)
    assert (found.n_experts, found.n_experts_used) == (8, 2)


def test_what_is_missing_or_of_the_wrong_type_is_left_out(tmp_path: Path) -> None:
    found = describe(
        model(
            tmp_path,
            number("general.name", 7),
            strings("general.license", ["mit", "apache-2.0"]),
            entry("llama.context_length", F32, b"\0\0\0\0"),
            number("tokenizer.chat_template", 1),
        )
    )
    assert (found.name, found.family, found.licence, found.n_ctx_train) == ("0", "", "", 0)
    assert not found.has_chat_template


def test_a_whole_licence_is_cut(tmp_path: Path) -> None:
    assert len(describe(model(tmp_path, name("general.license", "word " * 9_999))).licence) == 120


@pytest.mark.parametrize(
    ("given", "family"),
    [
        ("Meta Llama 3.1 8B Instruct", "llama-3.1"),
        ("Llama-3.2-1B-Instruct", "llama-3.2"),
        ("Qwen2.5 Coder 32B Instruct", "qwen2.5-coder"),
        ("Qwen_Qwen3-0.6B", "qwen3"),
        ("Qwen 2.5 7B", "qwen-2.5"),
        ("Qwen3-30B-A3B-Instruct-2507", "qwen3"),
        ("DeepSeek R1 Distill Qwen 1.5B", "r1-distill-qwen"),
        ("gemma-3-270m-it-qat-Q4_0", "gemma-3"),
        ("Gemma 4 E2B It", "gemma-4"),
        ("Mistral Small 3.1 24B Instruct 2503", "mistral-small-3.1"),
        ("Mistral Small 3.1 DRAFT 0.5B", "mistral-small-3.1"),
        ("Mixtral 8x7B Instruct v0.1", "mixtral"),
        ("phi-4", "phi-4"),
        ("7B", "7b"),
    ],
)
def test_families(tmp_path: Path, given: str, family: str) -> None:
    assert describe(model(tmp_path, name("general.name", given))).family == family
