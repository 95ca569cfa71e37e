"""From a header to the repository that the model was made of."""

from __future__ import annotations

from pathlib import PurePath

import pytest

from localspec.errors import ModelFileError
from localspec.models.header import GgufHeader
from localspec.models.origin import Origin, origin_of

QWEN = "https://huggingface.co/Qwen/"


def header(**metadata: object) -> GgufHeader:
    named = {name.replace("__", "."): value for name, value in metadata.items()}
    return GgufHeader(PurePath("x.gguf"), 3, {f"general.{name}": value for name, value in named.items()}, (), 0, 0)  # type: ignore[dict-item]


def base(url: str) -> dict[str, object]:
    return {"base_model__0__repo_url": url}


@pytest.mark.parametrize(
    ("found", "origin"),
    [
        (header(name="Qwen2.5 7B Instruct", **base(QWEN + "Qwen2.5-7B-Instruct")), "Qwen/Qwen2.5-7B-Instruct"),
        (header(name="Qwen3-8B", source__repo_url=QWEN + "Qwen3-8B/"), "Qwen/Qwen3-8B"),
        (header(name="Qwen3-8B", repo_url="https://hf.co/Qwen/Qwen3-8B"), "Qwen/Qwen3-8B"),
    ],
)
def test_a_repository_of_the_models_own_name_is_it(found: GgufHeader, origin: str) -> None:
    assert origin_of(found) == Origin(origin, origin)


def test_what_it_was_trained_from_is_another_model() -> None:
    """A header names the base of an instruction-tuned model, too, and that must not be served in its place."""
    found = header(name="Qwen2.5 7B Instruct", **base(QWEN + "Qwen2.5-7B"))
    assert origin_of(found) == Origin(None, "Qwen/Qwen2.5-7B")


@pytest.mark.parametrize(
    "found",
    [
        header(),
        header(name="Qwen3-8B"),
        header(name="unsloth", repo_url="https://huggingface.co/unsloth"),
        header(name="x", url="https://example.org/a/x"),
        header(name="x", url="https://huggingface.co.evil.example/a/x"),
        header(name="x", url="https://huggingface.co/a/x?y=1"),
        header(name="Qwen3-8B-GGUF", repo_url=QWEN + "Qwen3-8B-GGUF"),
        header(name="; rm", url="https://huggingface.co/a/$(rm)"),
    ],
)
def test_nothing_is_guessed(found: GgufHeader) -> None:
    assert origin_of(found) == Origin(None, None)


def test_names_without_letters_are_not_equal() -> None:
    assert origin_of(header(name="日本", **base("https://huggingface.co/a/___"))).repository is None


def test_a_value_of_another_type_is_refused() -> None:
    with pytest.raises(ModelFileError, match="repo_url"):
        origin_of(header(repo_url=5))
