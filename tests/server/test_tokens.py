"""POST /tokenize and /detokenize over a scripted engine, whose tokens are characters."""

from __future__ import annotations

from typing import Any

import pytest

from localspec.engine.questions import AnswerValue, Detokenize, Question, Tokenize
from localspec.errors import EngineError
from tests.server.native_endpoint import native_endpoint


async def test_tokens_of_a_text() -> None:
    async with native_endpoint() as endpoint:
        exchange = await endpoint.post("/tokenize", {"content": "Hi"})
    assert exchange.json == {"tokens": [72, 105]}
    assert endpoint.engine.questions == [Tokenize("Hi", add_special=False, parse_special=True)]


async def test_flags_reach_the_tokenizer() -> None:
    async with native_endpoint() as endpoint:
        body = {"content": "Hi", "add_special": True, "parse_special": False, "with_pieces": None, "model": "any"}
        await endpoint.post("/tokenize", body)
    assert endpoint.engine.questions == [Tokenize("Hi", add_special=True, parse_special=False)]


async def test_token_ids_stay_and_only_a_first_text_gets_what_belongs_around_it() -> None:
    async with native_endpoint() as endpoint:
        exchange = await endpoint.post("/tokenize", {"content": ["a", 7, "b"], "add_special": True})
        assert exchange.json == {"tokens": [97, 7, 98]}
        assert [question.add_special for question in _texts(endpoint.engine.questions)] == [True, False]
        endpoint.engine.questions.clear()
        await endpoint.post("/tokenize", {"content": [7, "b"], "add_special": True})
        assert [question.add_special for question in _texts(endpoint.engine.questions)] == [False]


def _texts(questions: list[Question]) -> list[Tokenize]:
    return [question for question in questions if isinstance(question, Tokenize)]


async def test_nothing_has_no_tokens() -> None:
    async with native_endpoint() as endpoint:
        for content in ("", []):
            assert (await endpoint.post("/tokenize", {"content": content})).json == {"tokens": []}


async def test_pieces_are_text_or_bytes_and_each_token_is_asked_for_once() -> None:
    bytes_of = {1: b"\xc3", 2: b"\xa1", 3: b" you"}

    def answer(question: Question) -> AnswerValue:
        if isinstance(question, Tokenize):
            return (3, 1, 2, 3)
        assert isinstance(question, Detokenize)
        return b"".join(bytes_of[token] for token in question.tokens)

    async with native_endpoint(answers=answer) as endpoint:
        exchange = await endpoint.post("/tokenize", {"content": " youá you", "with_pieces": True})
    assert exchange.json == {
        "tokens": [
            {"id": 3, "piece": " you"},
            {"id": 1, "piece": [0xC3]},
            {"id": 2, "piece": [0xA1]},
            {"id": 3, "piece": " you"},
        ]
    }
    assert len(endpoint.engine.questions) == 4


async def test_pieces_of_a_long_text_do_not_overrun_the_engine() -> None:
    text = "".join(map(chr, range(1000, 2000)))
    async with native_endpoint() as endpoint:
        exchange = await endpoint.post("/tokenize", {"content": text, "with_pieces": True})
    assert exchange.status == 200
    assert "".join(token["piece"] for token in exchange.json["tokens"]) == text


async def test_text_of_tokens() -> None:
    async with native_endpoint() as endpoint:
        assert (await endpoint.post("/detokenize", {"tokens": [72, 105]})).json == {"content": "Hi"}
        assert (await endpoint.post("/detokenize", {"tokens": []})).json == {"content": ""}


async def test_bytes_that_are_no_text_are_replaced() -> None:
    async with native_endpoint(answers=lambda _: b"a\xc3") as endpoint:
        assert (await endpoint.post("/detokenize", {"tokens": [1, 2]})).json == {"content": "a�"}


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "content"),
        ("/tokenize", {"content": 5}, "content"),
        ("/tokenize", {"content": [None]}, "content"),
        ("/tokenize", {"content": [49152]}, "content"),
        ("/tokenize", {"content": "a" * ((1 << 20) + 1)}, "content"),
        ("/tokenize", {"content": ["a"] * 257}, "content"),
        ("/tokenize", {"content": "a", "with_pieces": 1}, "with_pieces"),
        ("/tokenize", {"content": "a", "nope": 1}, "nope"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": "a"}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens.0"),
        ("/detokenize", {"tokens": [1, 49152]}, "tokens"),
        ("/detokenize", {"tokens": [True]}, "tokens.0"),
        ("/detokenize", {"tokens": [10**30]}, "tokens.0"),
    ],
)
async def test_what_is_no_text_and_no_token_is_refused(path: str, body: dict[str, Any], param: str) -> None:
    async with native_endpoint() as endpoint:
        exchange = await endpoint.post(path, body)
    assert exchange.status == 400
    assert exchange.error["param"] == param
    assert not endpoint.engine.questions


async def test_an_engine_that_fails_says_nothing_of_its_inside() -> None:
    def fail(_: Question) -> AnswerValue:
        raise EngineError("/secret/folder/model.gguf: out of memory")

    async with native_endpoint(answers=fail) as endpoint:
        exchange = await endpoint.post("/tokenize", {"content": "a"})
    assert exchange.status == 500
    assert "secret" not in exchange.body.decode()


async def test_before_a_model_is_loaded() -> None:
    async with native_endpoint(is_loading=True) as endpoint:
        for path, body in (("/tokenize", {"content": "a"}), ("/detokenize", {"tokens": [1]})):
            exchange = await endpoint.post(path, body)
            assert (exchange.status, exchange.error["code"]) == (503, "loading")
