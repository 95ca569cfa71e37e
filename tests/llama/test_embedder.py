"""Embeddings against what llama.cpp itself gives for a whole text at once, and the laws that they keep."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from pathlib import Path

import llama_cpp
import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.errors import ContextFullError, EngineError, UnsupportedModelError, UsageError
from localspec.llama.embedder import Embedder
from localspec.llama.model import Model, Pooling
from tests.tiny_models import N_EMBD, write_tiny_model

pytestmark = pytest.mark.native

TEXTS = ("def add(a, b):", "A completely different text", "x")
N_CTX = 700  # more than one batch of each kind
LONG = "The quick brown fox jumps over the lazy dog. " * 14


@pytest.fixture(scope="module", params=[Pooling.MEAN, Pooling.LAST], ids=lambda pooling: pooling.name.lower())
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    path = tmp_path_factory.mktemp("embeds") / "tiny.gguf"
    write_tiny_model(path, pooling=request.param, n_ctx_train=1024, add_eos=request.param is Pooling.LAST)
    with Model(path) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def embedder(model: Model) -> Iterator[Embedder]:
    with Embedder(model, n_ctx=N_CTX, n_threads=1) as embedder:
        yield embedder


def by_llama(model: Model, tokens: Sequence[int]) -> NDArray[np.float32]:
    """The whole text in one batch, pooled by llama.cpp, and normalised."""
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 1024
    params.embeddings = True
    params.n_threads = params.n_threads_batch = 1
    context = llama_cpp.llama_init_from_model(model.handle, params)
    try:
        array = (llama_cpp.llama_token * len(tokens))(*tokens)
        assert llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(array, len(tokens))) == 0
        pointer = llama_cpp.llama_get_embeddings_seq(context, 0)
        vector = np.array((ctypes.c_float * N_EMBD).from_address(ctypes.addressof(pointer.contents)))
        return vector / np.linalg.norm(vector)
    finally:
        llama_cpp.llama_free(context)


@pytest.mark.parametrize("text", [*TEXTS, LONG])
def test_it_is_what_llama_cpp_gives_for_the_text_in_one_piece(model: Model, embedder: Embedder, text: str) -> None:
    tokens = embedder.tokenize(text)
    assert text is not LONG or len(tokens) > 512
    vector = embedder.embed(tokens)
    assert vector.dtype == np.float32
    assert vector.shape == (N_EMBD,)
    assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_allclose(vector, by_llama(model, tokens), atol=2e-3)  # f16 in the cache, other kernels


def test_texts_differ_and_neither_order_nor_company_matters(embedder: Embedder) -> None:
    alone = {text: embedder.embed(embedder.tokenize(text)) for text in TEXTS}
    for text in (*reversed(TEXTS), LONG, *TEXTS):
        if text in alone:
            np.testing.assert_array_equal(embedder.embed(embedder.tokenize(text)), alone[text])
        else:
            embedder.embed(embedder.tokenize(text))
    assert alone[TEXTS[0]] @ alone[TEXTS[1]] < 0.99


def test_a_text_is_closed_as_its_tokenizer_says(model: Model, embedder: Embedder) -> None:
    tokens = embedder.tokenize("text")
    assert (tokens[-1] == model.eos) == (model.pools is Pooling.LAST)
    assert embedder.tokenize("<|end|>")[:1] == [model.eos]
    assert len(embedder.tokenize("<|end|>", parse_special=False)) > 2


def test_the_whole_context_can_be_used_and_no_more(embedder: Embedder) -> None:
    embedder.embed([65] * N_CTX)
    with pytest.raises(ContextFullError, match=f"{N_CTX + 1} tokens.*at most {N_CTX}") as caught:
        embedder.embed([65] * (N_CTX + 1))
    assert (caught.value.n_tokens, caught.value.n_ctx) == (N_CTX + 1, N_CTX)


def test_what_cannot_be_embedded_is_refused(model: Model, embedder: Embedder) -> None:
    with pytest.raises(UsageError, match="empty"):
        embedder.embed([])
    for token in (-1, model.n_vocab):
        with pytest.raises(UsageError, match=f"Token {token} "):
            embedder.embed([65, token])
    assert np.isfinite(embedder.embed([65])).all()  # and it goes on


def test_a_closed_embedder_says_so(model: Model) -> None:
    embedder = Embedder(model, n_ctx=64, n_threads=1)
    embedder.close()
    embedder.close()
    with pytest.raises(EngineError, match="closed"):
        embedder.embed([65])


def test_the_context_is_the_models_own_where_nobody_says(model: Model) -> None:
    with Embedder(model, n_threads=1) as embedder:
        assert embedder.n_ctx == 1024


@pytest.mark.parametrize(
    ("pooling", "causal", "pools"),
    [(None, None, None), (0, None, None), (2, None, Pooling.FIRST), (4, None, None), (1, False, Pooling.MEAN)],
)
def test_only_models_made_for_it_embed(
    tmp_path: Path, pooling: int | None, causal: bool | None, pools: Pooling | None
) -> None:
    with Model(write_tiny_model(tmp_path / "tiny.gguf", pooling=pooling, causal=causal)) as model:
        assert model.pools is pools
        assert not model.embeds
        with pytest.raises(UnsupportedModelError, match="not made for embeddings") as caught:
            Embedder(model)
        assert caught.value.hint


def test_a_model_whose_metadata_hides_that_it_reads_both_ways_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Model, "embeds", True)  # llama.cpp would end the process where such a text has two parts
    with (
        Model(write_tiny_model(tmp_path / "both.gguf", pooling=1, causal=False)) as model,
        pytest.raises(UnsupportedModelError, match="both directions"),
    ):
        Embedder(model)


def test_weights_that_are_no_numbers_are_an_error_not_a_vector(tmp_path: Path) -> None:
    with (
        Model(write_tiny_model(tmp_path / "broken.gguf", pooling=1, broken=True)) as model,
        Embedder(model, n_threads=1) as embedder,
        pytest.raises(EngineError, match="length nan"),
    ):
        embedder.embed([65, 66])
