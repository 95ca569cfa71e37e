"""Questions to a loaded model, through the engine's process."""

from __future__ import annotations

import os
import queue
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.engine.client import EngineClient
from localspec.engine.events import Finished
from localspec.engine.questions import (
    Answer,
    AnswerEvent,
    AskUsage,
    Detokenize,
    Embed,
    EngineUsage,
    Refusal,
    Render,
    Tokenize,
)
from localspec.engine.requests import ChatPrompt, GenerateRequest, Message, MixedPrompt, RawPrompt, SamplingParams
from localspec.errors import EngineDiedError, LocalspecError, UnsupportedModelError, UsageError
from tests.engine.conftest import end_of, pair_spec, raw
from tests.native_fixtures import TinyModels
from tests.tiny_models import write_tiny_model

pytestmark = pytest.mark.native


@pytest.fixture(scope="module")
def engine(tiny_models: TinyModels) -> Iterator[EngineClient]:
    with EngineClient() as client:
        client.load_and_wait(replace(pair_spec(tiny_models.target, tiny_models.draft, n_ctx=512), n_slots=3))
        yield client


@pytest.mark.parametrize("text", ["", "Hello", "naïve 日本 \N{PILE OF POO}", "<|end|> and \0"])
def test_tokens_and_back(engine: EngineClient, text: str):
    tokens = engine.ask_and_wait(Tokenize(text))
    assert isinstance(tokens, tuple)
    assert engine.ask_and_wait(Detokenize(tokens)) == text.encode()


def test_special_tokens_count_when_asked_for(engine: EngineClient):
    assert len(engine.ask_and_wait(Tokenize("<|end|>"))) == 1
    assert len(engine.ask_and_wait(Tokenize("<|end|>", parse_special=False))) == 7


def test_a_template_is_rendered(engine: EngineClient):
    prompt = ChatPrompt((Message("user", "Hi"),))
    assert engine.ask_and_wait(Render(prompt)) == "<|start|>user\nHi<|end|>\n<|start|>assistant\n"


@pytest.mark.parametrize("token", [-1, 10_000])
def test_a_token_that_does_not_exist_is_refused(engine: EngineClient, token: int):
    with pytest.raises(UsageError, match=str(token)):
        engine.ask_and_wait(Detokenize((token,)))


def test_a_model_for_text_does_not_embed(engine: EngineClient):
    with pytest.raises(UnsupportedModelError):
        engine.ask_and_wait(Embed((RawPrompt("a"),)))


def test_embeddings_by_a_model_that_was_made_for_them(tmp_path: Path):
    path = write_tiny_model(tmp_path / "embed.gguf", pooling=3)
    with EngineClient() as client:
        about = client.load_and_wait(replace(pair_spec(path), may_embed=True)).about
        assert about is not None
        assert about.embeds
        first, second, again = client.ask_and_wait(Embed((RawPrompt("one"), RawPrompt("two"), MixedPrompt(("one",)))))
        assert first.n_tokens == 3
        assert sum(value * value for value in first.values) == pytest.approx(1.0, abs=1e-5)
        assert first.values != second.values
        assert first.values == pytest.approx(again.values)


def test_usage_while_replies_run(engine: EngineClient):
    """Answers come between steps, and tell who runs and who waits."""
    events: queue.SimpleQueue[object] = queue.SimpleQueue()
    requests = [raw(f"Number {i}", max_tokens=100, ignores_end=True) for i in range(5)]
    for request in requests:
        engine.submit(request, events.put)
    usage = engine.ask_and_wait(AskUsage())
    assert isinstance(usage, EngineUsage)
    assert usage.n_ctx == 512
    assert len(usage.slots) == 3
    assert {slot.request_id for slot in usage.slots if slot.request_id} <= {each.request_id for each in requests}
    n_finished = 0
    while n_finished < len(requests):
        n_finished += isinstance(events.get(timeout=60), Finished)
    usage = engine.ask_and_wait(AskUsage())
    assert isinstance(usage, EngineUsage)
    assert usage.n_waiting == 0
    assert all(slot.request_id is None for slot in usage.slots)
    assert 0 < sum(slot.n_cells for slot in usage.slots) <= 512


def test_nobody_waits_for_a_dead_engine(tiny_models: TinyModels):
    with EngineClient() as client:
        client.load_and_wait(pair_spec(tiny_models.target))
        answers: queue.SimpleQueue[AnswerEvent] = queue.SimpleQueue()
        assert client.process_id is not None
        os.kill(client.process_id, signal.SIGSTOP)
        client.ask(Tokenize("a"), answers.put)
        os.kill(client.process_id, signal.SIGKILL)
        refusal = answers.get(timeout=30)
        assert isinstance(refusal, Refusal)
        assert isinstance(refusal.error, EngineDiedError)
        # The next question finds a new process with the same pair.
        assert client.ask_and_wait(Tokenize("a")) != ()


def test_before_a_pair_is_loaded(tmp_path: Path):
    with EngineClient() as client:
        with pytest.raises(LocalspecError):
            client.load_and_wait(pair_spec(tmp_path / "missing.gguf"))
        answers: queue.SimpleQueue[AnswerEvent] = queue.SimpleQueue()
        client.ask(Tokenize("a"), answers.put)
        assert isinstance(answers.get(timeout=30), Refusal)


def test_an_answer_is_a_value(engine: EngineClient):
    answers: queue.SimpleQueue[AnswerEvent] = queue.SimpleQueue()
    engine.ask(Tokenize("a"), answers.put)
    assert isinstance(answers.get(timeout=30), Answer)


def test_several_replies_through_the_process(engine: EngineClient):
    events: queue.SimpleQueue[object] = queue.SimpleQueue()
    requests = [
        GenerateRequest(RawPrompt(text), sampling=SamplingParams(temperature=0.0), max_tokens=20)
        for text in ("abc", "def", "ghi", "jkl")
    ]
    for request in requests:
        engine.submit(request, events.put)
    got: dict[str, list[object]] = {request.request_id: [] for request in requests}
    while not all(each and isinstance(each[-1], Finished) for each in got.values()):
        event = events.get(timeout=60)
        got[event.request_id].append(event)  # type: ignore[attr-defined]
    assert all(isinstance(end_of(each), Finished) for each in got.values())  # type: ignore[arg-type]
