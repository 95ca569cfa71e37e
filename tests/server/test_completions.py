"""POST /v1/completions: prompts in all forms, the older shape of replies, and filling gaps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from localspec.engine.events import TokenLogprobs
from localspec.engine.requests import GenerateRequest, InfillPrompt, MixedPrompt, RawPrompt
from localspec.server.app import create_app
from localspec.server.service import EngineService
from localspec.server.settings import ServerSettings
from tests.server.http_client import Exchange, HttpClient
from tests.server.scripted_engine import FACTS, LOADED, PAIR, ScriptedEngine, begun, chance, complete, finished, step

URL = "/v1/completions"


async def ask(client: HttpClient, engine: ScriptedEngine, *pieces: str, **fields: Any) -> Exchange:
    engine.replies.append(complete(*(pieces or (" upon",))))
    exchange = await client.post(URL, {"prompt": "Once", **fields})
    assert exchange.status == 200, exchange.body
    return exchange


async def asked(client: HttpClient, engine: ScriptedEngine, **fields: Any) -> GenerateRequest:
    """The engine's request."""
    await ask(client, engine, **fields)
    return engine.requests[-1]


async def test_a_whole_reply(client: HttpClient, engine: ScriptedEngine) -> None:
    reply = (await ask(client, engine, " upon", " a time")).json
    assert reply["id"].startswith("cmpl-")
    assert (reply["object"], reply["model"]) == ("text_completion", LOADED.target_name)
    assert reply["choices"] == [{"text": " upon a time", "index": 0, "logprobs": None, "finish_reason": "stop"}]
    assert reply["usage"]["total_tokens"] == 52
    assert reply["timings"]["draft_n_accepted"] == 6
    assert reply["metrics"]["speculative_decoding"]["num_spec_steps"] == 3


async def test_a_stream(client: HttpClient, engine: ScriptedEngine) -> None:
    exchange = await ask(client, engine, " upon", "", " a time", stream=True)
    *chunks, done = exchange.data
    assert done == "[DONE]"
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert [chunk["choices"][0]["text"] for chunk in chunks] == [" upon", " a time", ""]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, "stop"]
    assert ["timings" in chunk for chunk in chunks] == [False, False, True]
    assert not any("usage" in chunk for chunk in chunks)


async def test_a_stream_with_usage(client: HttpClient, engine: ScriptedEngine) -> None:
    *chunks, last, _ = (await ask(client, engine, stream=True, stream_options={"include_usage": True})).data
    assert all(chunk["usage"] is None for chunk in chunks)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 10
    assert "timings" in last


async def test_sixteen_tokens_unless_somebody_says(service: EngineService, engine: ScriptedEngine) -> None:
    client = HttpClient(create_app(service, ServerSettings()))
    assert (await asked(client, engine)).max_tokens == 16
    assert (await asked(client, engine, max_tokens=-1)).max_tokens is None
    limited = HttpClient(create_app(service, ServerSettings(max_tokens=50)))
    assert (await asked(limited, engine)).max_tokens == 50


class TestPrompts:
    async def test_text_with_special_tokens(self, client: HttpClient, engine: ScriptedEngine) -> None:
        assert (await asked(client, engine)).prompt == RawPrompt("Once", parse_special=True)

    async def test_tokens(self, client: HttpClient, engine: ScriptedEngine) -> None:
        assert (await asked(client, engine, prompt=[1, 2, 3])).prompt == MixedPrompt((1, 2, 3))

    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            (["a", "b"], [RawPrompt("a", parse_special=True), RawPrompt("b", parse_special=True)]),
            ([[1], [2, 3]], [MixedPrompt((1,)), MixedPrompt((2, 3))]),
        ],
    )
    async def test_several(
        self, client: HttpClient, engine: ScriptedEngine, given: list[Any], expected: list[Any]
    ) -> None:
        engine.replies.extend(complete(text) for text in "wxyz")
        reply = (await client.post(URL, {"prompt": given, "n": 2, "seed": 3})).json
        assert [(choice["index"], choice["text"]) for choice in reply["choices"]] == list(enumerate("wxyz"))
        assert [request.prompt for request in engine.requests] == [each for each in expected for _ in range(2)]
        seeds = [request.sampling.seed for request in engine.requests]
        assert seeds[:2] == seeds[2:]
        assert len(set(seeds)) == 2
        assert reply["usage"]["prompt_tokens"] == 2 * 42  # each prompt once
        assert reply["usage"]["completion_tokens"] == 4 * 10

    @pytest.mark.parametrize(
        ("prompt", "param"),
        [
            (None, "prompt"),
            ([], "prompt"),
            ([[]], "prompt.0"),
            (["a", 1], "prompt.1"),
            ([1, "a"], "prompt.1"),
            ([[1], "a"], "prompt.1"),
            ([-1], "prompt.0"),
            ([1.5], "prompt.0"),
            ([True], "prompt.0"),
            ({"a": 1}, "prompt"),
            ([49152], "prompt"),
        ],
    )
    async def test_what_is_no_prompt(self, client: HttpClient, prompt: Any, param: str) -> None:
        refused = await client.post(URL, {"prompt": prompt})
        assert (refused.status, refused.error["param"]) == (400, param), refused.body

    async def test_echo(self, client: HttpClient, engine: ScriptedEngine) -> None:
        assert (await ask(client, engine, echo=True)).json["choices"][0]["text"] == "Once upon"
        reply = (await ask(client, engine, echo=True, prompt=[79, 78])).json
        assert reply["choices"][0]["text"] == "ON upon"
        chunks = (await ask(client, engine, echo=True, stream=True)).data[:-1]
        assert [chunk["choices"][0]["text"] for chunk in chunks] == ["Once", " upon", ""]


class TestSuffix:
    @pytest.fixture
    async def coder(self, engine: ScriptedEngine) -> HttpClient:
        engine.load_events = (replace(LOADED, about=replace(FACTS, fills_in=True)),)
        service = EngineService(engine)
        await service.start(PAIR)
        return HttpClient(create_app(service, ServerSettings()))

    async def test_a_gap_is_filled(self, coder: HttpClient, engine: ScriptedEngine) -> None:
        assert (await asked(coder, engine, suffix="time")).prompt == InfillPrompt("Once", "time")
        assert (await asked(coder, engine, suffix="")).prompt == RawPrompt("Once", parse_special=True)

    async def test_tokens_have_no_suffix(self, coder: HttpClient) -> None:
        refused = await coder.post(URL, {"prompt": [1], "suffix": "time"})
        assert (refused.status, refused.error["param"]) == (400, "suffix")

    async def test_a_model_without_the_tokens_says_so(self, client: HttpClient) -> None:
        refused = await client.post(URL, {"prompt": "Once", "suffix": "time"})
        assert (refused.status, refused.error["param"]) == (400, "suffix")
        assert "fill-in-the-middle" in refused.error["message"]


class TestLogprobs:
    STEPS = (
        step("Hö", logprobs=[TokenLogprobs(chance("H", -0.5), (chance("H", -0.5), chance("J", -1.5)))]),
        step("!", logprobs=[TokenLogprobs(chance("ö", -1.0), ()), TokenLogprobs(chance("!", -2.0), ())]),
    )

    async def test_four_lists(self, client: HttpClient, engine: ScriptedEngine) -> None:
        engine.replies.append([*begun(), *self.STEPS, finished()])
        reply = (await client.post(URL, {"prompt": "Once", "logprobs": 2})).json
        assert reply["choices"][0]["logprobs"] == {
            "tokens": ["H", "ö", "!"],
            "token_logprobs": [-0.5, -1.0, -2.0],
            "top_logprobs": [{"H": -0.5, "J": -1.5}, {}, {}],
            "text_offset": [0, 1, 2],
        }
        assert engine.requests[-1].n_logprobs == 2

    async def test_offsets_go_on_in_a_stream(self, client: HttpClient, engine: ScriptedEngine) -> None:
        engine.replies.append([*begun(), *self.STEPS, finished()])
        exchange = await client.post(URL, {"prompt": "Once", "logprobs": 0, "stream": True})
        told = [chunk["choices"][0]["logprobs"]["text_offset"] for chunk in exchange.data[:-1]]
        assert told == [[0], [1, 2], []]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"best_of": 3}, "best_of"),
        ({"n": 2, "best_of": 1}, "best_of"),
        ({"echo": True, "logprobs": 1}, "echo"),
        ({"logprobs": 21}, "logprobs"),
        ({"n": 129}, "n"),
        ({"prompt": ["a"] * 65, "n": 2}, "n"),
        ({"messages": []}, "messages"),
        ({"top_logprobs": 1}, "top_logprobs"),
    ],
)
async def test_refused_by_name(client: HttpClient, fields: dict[str, Any], param: str) -> None:
    refused = await client.post(URL, {"prompt": "Once", **fields})
    assert (refused.status, refused.error["param"]) == (400, param)


async def test_the_best_of_as_many_as_are_told(client: HttpClient, engine: ScriptedEngine) -> None:
    assert (await ask(client, engine, best_of=1)).status == 200
