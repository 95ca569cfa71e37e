"""Sizes from names: near what files of that kind really are."""

from __future__ import annotations

import pytest

from localspec.pairing.sizes import active_share, guessed_bytes, guessed_parameters


@pytest.mark.parametrize(
    ("title", "n_parameters"),
    [
        ("Llama-3.1-8B-Instruct", 8_000_000_000),
        ("Qwen3-30B-A3B-Instruct-2507", 30_000_000_000),
        ("gemma-3-4b-it", 4_000_000_000),
        ("Mistral-Small-3.1-DRAFT-0.5B by alamios", 500_000_000),
        ("gpt-oss-20b", 20_000_000_000),
        ("GLM-4.7-Flash", None),
    ],
)
def test_the_weights_are_in_the_name(title: str, n_parameters: int | None) -> None:
    assert guessed_parameters(title) == n_parameters


def test_experts_are_read_in_part() -> None:
    assert active_share("Qwen3-30B-A3B-Instruct-2507") == pytest.approx(0.1)
    assert active_share("Qwen3-8B") == active_share("GLM-4.7-Flash") == 1.0


@pytest.mark.parametrize(
    ("n_parameters", "quantization", "n_bytes"),
    [
        (8_030_261_312, "Q4_K_M", 4_920_739_232),  # files of Meta-Llama-3.1-8B-Instruct-GGUF
        (8_030_261_312, "Q8_0", 8_540_775_840),
        (8_030_261_312, "", 4_920_739_232),
        (8_030_261_312, "BF16", 16_060_000_000),
    ],
)
def test_sizes_are_near_those_of_real_files(n_parameters: int, quantization: str, n_bytes: int) -> None:
    assert guessed_bytes(n_parameters, quantization) == pytest.approx(n_bytes, rel=0.03)
