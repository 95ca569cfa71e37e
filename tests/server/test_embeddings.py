"""/v1/embeddings through the real client, on an engine that embeds by rote."""

from __future__ import annotations

import base64
import struct
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import openai
import pytest
from openai import AsyncOpenAI

from localspec.engine.client import EngineClient
from localspec.engine.events import ModelFacts
from localspec.engine.questions import AnswerValue, Embed, Embedding, Question
from localspec.engine.requests import MixedPrompt, ModelSpec, PairSpec, RawPrompt
from localspec.errors import ContextFullError
from localspec.llama.embedder import Embedder
from localspec.llama.model import Model
from localspec.server.app import create_app
from localspec.server.service import EngineService
from localspec.server.settings import ServerSettings
from tests.server.conftest import Served
from tests.server.scripted_engine import FACTS, LOADED, PAIR, ScriptedEngine
from tests.tiny_models import N_EMBD, write_tiny_model

N_CTX = 8


def vector_of(prompt: RawPrompt | MixedPrompt) -> tuple[float, ...]:
    """Another one for each prompt; not exact in 32 bits."""
    number = len(prompt.text) if isinstance(prompt, RawPrompt) else sum(map(int, prompt.parts))
    return (0.1 * number, 0.2, -0.3)


def embed(question: Question) -> AnswerValue:
    """Two tokens for each text, and a bound on its characters."""
    assert isinstance(question, Embed)
    for prompt in question.prompts:
        n_tokens = len(prompt.text) if isinstance(prompt, RawPrompt) else len(prompt.parts)
        if n_tokens > N_CTX:
            raise ContextFullError(f"The text has {n_tokens} tokens.", n_tokens=n_tokens, n_ctx=N_CTX, hint="Cut.")
    return tuple(Embedding(vector_of(each), 2) for each in question.prompts)


@pytest.fixture
def facts(request: pytest.FixtureRequest) -> ModelFacts | None:
    """Of the model; None: the engine tells none."""
    return getattr(request, "param", replace(FACTS, n_embd=3, embeds=True))


@pytest.fixture
def engine(facts: ModelFacts | None) -> Iterator[ScriptedEngine]:
    scripted = ScriptedEngine(load_events=(replace(LOADED, about=facts),), answers=embed)
    yield scripted
    scripted.close()


@pytest.fixture
async def client(engine: ScriptedEngine) -> AsyncIterator[AsyncOpenAI]:
    settings = ServerSettings(model_alias="tiny-alias")
    service = EngineService(engine)
    await service.start(PAIR)
    transport = httpx2.ASGITransport(create_app(service, settings))
    async with httpx2.AsyncClient(transport=transport) as http:
        yield AsyncOpenAI(api_key="none", base_url="http://test/v1", http_client=http, max_retries=0)
    await service.stop(0)


@pytest.mark.parametrize(
    ("given", "prompts"),
    [
        ("abc", [RawPrompt("abc", parse_special=True)]),
        (["abc", "de"], [RawPrompt("abc", parse_special=True), RawPrompt("de", parse_special=True)]),
        ([5, 6], [MixedPrompt((5, 6))]),
        ([[5, 6], [7]], [MixedPrompt((5, 6)), MixedPrompt((7,))]),
    ],
)
@pytest.mark.parametrize("encoding", ["float", "base64", None])
async def test_every_form_of_input_in_every_encoding(
    client: AsyncOpenAI, engine: ScriptedEngine, given: Any, prompts: list[Any], encoding: str | None
) -> None:
    more = {} if encoding is None else {"encoding_format": encoding}
    answer = await client.embeddings.create(model="any", input=given, **more)
    assert [question.prompts for question in engine.questions] == [(prompt,) for prompt in prompts]  # type: ignore[union-attr]
    assert [item.index for item in answer.data] == list(range(len(prompts)))
    for item, prompt in zip(answer.data, prompts, strict=True):
        values = item.embedding
        if isinstance(values, str):
            values = struct.unpack("<3f", base64.b64decode(values))
        assert list(values) == pytest.approx(vector_of(prompt), rel=1e-6)
    assert answer.model == "tiny-alias"
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (2 * len(prompts), 2 * len(prompts))


async def refused(client: AsyncOpenAI, **fields: Any) -> openai.APIStatusError:
    with pytest.raises(openai.APIStatusError) as caught:
        await client.embeddings.create(**{"model": "any", "input": "a", **fields})
    return caught.value


@pytest.mark.parametrize("facts", [None, FACTS], indirect=True)
async def test_a_model_that_was_made_for_something_else_says_so(client: AsyncOpenAI, engine: ScriptedEngine) -> None:
    error = await refused(client)
    assert error.status_code == 400
    assert error.type == "not_supported_error"
    assert error.code == "embeddings_not_supported"
    assert "tiny-alias was not made for embeddings" in error.message
    assert "Qwen3-Embedding" in error.message
    assert not engine.questions


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"input": ""}, "input", "at least 1"),
        ({"input": []}, "input", "at least 1"),
        ({"input": ["a", ""]}, "input.1", "at least 1"),
        ({"input": ["a", 5]}, "input.1", "valid string"),
        ({"input": [5, "a"]}, "input.1", "valid integer"),
        ({"input": [5, -1]}, "input.1", "greater than or equal to 0"),
        ({"input": [[5], []]}, "input.1", "at least 1"),
        ({"input": ["a"] * 2049}, "input", "2048"),
        ({"dimensions": 2}, "dimensions", "this model has 3"),
        ({"encoding_format": "int8"}, "encoding_format", "'base64'"),
        ({"input": "a" * (N_CTX + 1)}, "input", "9 tokens"),
        ({"input": ["a", "a" * (N_CTX + 1)]}, "input.1", "9 tokens"),
        ({"extra_body": {"truncate": True}}, "truncate", "not supported"),
    ],
)
async def test_what_cannot_be_embedded_is_refused_by_name(
    client: AsyncOpenAI, fields: dict[str, Any], param: str, words: str
) -> None:
    error = await refused(client, **fields)
    assert error.status_code == 400
    assert error.param == param
    assert words in error.message


async def test_the_models_own_dimensions_may_be_named(client: AsyncOpenAI) -> None:
    answer = await client.embeddings.create(model="any", input="a", dimensions=3)
    assert len(answer.data[0].embedding) == 3


def serve_tiny(path: Path, *, add_eos: bool) -> Served:
    """A tiny model for embeddings behind a real endpoint; the last token stands for a text."""
    write_tiny_model(path, pooling=3, add_eos=add_eos)
    pair = PairSpec("tiny", ModelSpec(path), n_ctx=128, n_threads=1, n_slots=2, may_embed=True)
    return Served(ServerSettings(shutdown_s=1.0), EngineClient(), pair)


def by_hand(path: Path, texts: list[str]) -> tuple[list[Any], int]:
    """The vectors of texts, and how many tokens they have together."""
    with Model(path) as model, Embedder(model, n_ctx=128, n_threads=1) as embedder:
        tokens = [embedder.tokenize(text) for text in texts]
        return [embedder.embed(each) for each in tokens], sum(map(len, tokens))


@pytest.mark.native
def test_a_real_model_gives_what_its_embedder_gives(tmp_path: Path) -> None:
    texts = ["def add(a, b):", "A completely different text", "x"]
    served = serve_tiny(tmp_path / "tiny.gguf", add_eos=False)
    try:
        with openai.OpenAI(base_url=f"{served.url}/v1", api_key="any", max_retries=0) as real:
            answer = real.embeddings.create(model="tiny", input=texts)
            with pytest.raises(openai.BadRequestError, match="tokens") as caught:
                real.embeddings.create(model="tiny", input=["a", "long " * 200])
            # And it writes, like every decoder.
            written = real.completions.create(model="tiny", prompt="Once", max_tokens=3)
    finally:
        served.stop()
    assert (caught.value.param, caught.value.code) == ("input.1", "context_length_exceeded")
    assert written.usage is not None
    assert written.usage.completion_tokens > 0
    vectors, n_tokens = by_hand(served.pair.target.path, texts)
    assert answer.usage.prompt_tokens == n_tokens
    for item, vector in zip(answer.data, vectors, strict=True):
        assert len(item.embedding) == N_EMBD
        np.testing.assert_allclose(item.embedding, vector, atol=1e-6)


@pytest.mark.native
def test_a_text_is_closed_as_its_tokenizer_says(tmp_path: Path) -> None:
    """Where the last token stands for a text, that is the EOS: without it the vector is another one."""
    served = serve_tiny(tmp_path / "tiny.gguf", add_eos=True)
    try:
        with openai.OpenAI(base_url=f"{served.url}/v1", api_key="any", max_retries=0) as real:
            answer = real.embeddings.create(model="tiny", input="a text")
    finally:
        served.stop()
    (vector,), n_tokens = by_hand(served.pair.target.path, ["a text"])
    assert answer.usage.prompt_tokens == n_tokens
    np.testing.assert_allclose(answer.data[0].embedding, vector, atol=1e-6)
