from pathlib import Path

import pytest

from localspec.errors import UnsupportedModelError
from localspec.models.generative import not_generative, refuse_unless_generative
from tests.models.gguf_bytes import flag, name, number
from tests.models.small_models import model


@pytest.mark.parametrize(
    ("architecture", "words"),
    [
        ("bert", "embedding model"),
        ("nomic-bert", "embedding model"),
        ("jina-bert-v2", "embedding model"),
        ("gemma-embedding", "embedding model"),
        ("t5encoder", "embedding model"),
        ("t5", "encoder-decoder"),
        ("clip", "image encoder"),
        ("eagle3", "draft head"),
        ("llada", "diffusion"),
        ("wavtokenizer-dec", "speech"),
        (None, "names no architecture"),
    ],
)
def test_architectures_that_do_not_write(tmp_path: Path, architecture: str | None, words: str) -> None:
    header = model(tmp_path, architecture=architecture)
    with pytest.raises(UnsupportedModelError, match=words) as caught:
        refuse_unless_generative(header)
    assert caught.value.message.startswith(f"{header.path} ")
    assert caught.value.hint


@pytest.mark.parametrize(
    ("extra", "options", "words"),
    [
        ([flag("llama.attention.causal", False)], {}, "embedding model"),
        ([number("llama.pooling_type", 3)], {}, "embedding model"),
        ([name("general.type", "adapter")], {}, "LoRA adapter"),
        ([name("general.type", "imatrix")], {"architecture": None}, "importance matrix"),
        ([name("general.type", "mmproj")], {}, "image encoder"),
        ([number("split.no", 2), number("split.count", 5)], {"architecture": None, "tokens": None}, "part 3 of 5"),
        ([], {"tensors": False}, "vocabulary only"),
        ([], {"tokens": None}, "no tokenizer"),
        ([], {"tokenizer": None}, "no tokenizer"),
        ([], {"tokens": []}, "no tokenizer"),
    ],
)
def test_files_that_hold_no_writer(tmp_path: Path, extra: list[bytes], options: dict, words: str) -> None:
    with pytest.raises(UnsupportedModelError, match=words) as caught:
        refuse_unless_generative(model(tmp_path, *extra, **options))
    assert caught.value.hint


@pytest.mark.parametrize(
    ("extra", "options"),
    [
        ([], {"architecture": "never-heard-of"}),
        ([number("llama.pooling_type", 0), flag("llama.attention.causal", True), name("general.type", "model")], {}),
        ([number("split.no", 0), number("split.count", 3)], {"tensors": False}),
    ],
)
def test_files_that_may_write_pass(tmp_path: Path, extra: list[bytes], options: dict) -> None:
    header = model(tmp_path, *extra, **options)
    refuse_unless_generative(header)
    assert not_generative(header) is None


@pytest.mark.parametrize(
    ("architecture", "options", "is_incomplete"),
    [
        ("llama", {"tensors": False}, True),
        ("llama", {"tokens": None}, True),
        ("bert", {"tensors": False}, True),  # its vocabulary can be compared like any other
        ("bert", {"tokens": None}, False),
        ("bert", {}, False),
        (None, {}, False),
    ],
)
def test_what_is_only_incomplete_can_be_let_pass(
    tmp_path: Path, architecture: str | None, options: dict, is_incomplete: bool
) -> None:
    header = model(tmp_path, architecture=architecture, **options)
    problem = not_generative(header)
    assert problem is not None
    assert problem.is_incomplete == is_incomplete
    if is_incomplete:
        refuse_unless_generative(header, incomplete_ok=True)
    with pytest.raises(UnsupportedModelError, match=problem.what):
        refuse_unless_generative(header, incomplete_ok=False)
    if not is_incomplete:
        with pytest.raises(UnsupportedModelError, match=problem.what):
            refuse_unless_generative(header, incomplete_ok=True)


@pytest.mark.parametrize(("pooling", "runs"), [(1, True), (2, False), (3, True), (4, False)])
def test_a_decoder_for_embeddings_can_be_let_pass(tmp_path: Path, pooling: int, runs: bool) -> None:
    header = model(tmp_path, number("llama.pooling_type", pooling))
    with pytest.raises(UnsupportedModelError, match="embedding model"):
        refuse_unless_generative(header)
    if runs:
        refuse_unless_generative(header, embedding_ok=True)
    else:
        with pytest.raises(UnsupportedModelError, match="embedding model"):
            refuse_unless_generative(header, embedding_ok=True)


@pytest.mark.parametrize(
    ("extra", "options"),
    [
        ([flag("llama.attention.causal", False), number("llama.pooling_type", 3)], {}),
        ([number("llama.pooling_type", 3)], {"tokens": None}),
        ([number("llama.pooling_type", 3)], {"tensors": False}),
        ([number("nomic-bert.pooling_type", 1)], {"architecture": "nomic-bert"}),
    ],
)
def test_encoders_and_halves_of_models_do_not_pass_for_embeddings(
    tmp_path: Path, extra: list[bytes], options: dict
) -> None:
    with pytest.raises(UnsupportedModelError):
        refuse_unless_generative(model(tmp_path, *extra, **options), embedding_ok=True)
