"""POST /completion over a scripted engine: what of a request reaches the engine, and what comes back."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from localspec.engine.events import Failed, FinishReason, Prefilling, TokenLogprobs
from localspec.engine.requests import LineLimits, MixedPrompt, Mode, RawPrompt, SamplingParams
from localspec.errors import ContextFullError
from localspec.server.settings import ServerSettings
from tests.server.native_endpoint import native_endpoint
from tests.server.scripted_engine import begun, chance, complete, finished, step


async def test_the_shape_of_a_whole_answer() -> None:
    async with native_endpoint() as endpoint:
        endpoint.engine.replies.append(complete(" Paris", ".\n"))
        exchange = await endpoint.post("/completion", {"prompt": "The capital of France is", "n_predict": 10})
    answer = exchange.json
    assert exchange.status == 200
    # The names that llama-server's own answer has, in its order.
    assert list(answer) == [
        "index",
        "content",
        "tokens",
        "id_slot",
        "stop",
        "model",
        "tokens_predicted",
        "tokens_evaluated",
        "generation_settings",
        "prompt",
        "has_new_line",
        "truncated",
        "stop_type",
        "stopping_word",
        "tokens_cached",
        "timings",
    ]
    assert answer["content"] == " Paris.\n"
    assert answer["prompt"] == "The capital of France is"
    assert answer["model"] == "SmolLM2-135M-Instruct F32"
    assert answer["generation_settings"]["n_predict"] == 10
    assert answer["generation_settings"]["samplers"][-1] == "temperature"
    assert {"prompt_n", "prompt_ms", "predicted_n", "predicted_per_second", "draft_n", "draft_n_accepted"} <= set(
        answer["timings"]
    )


async def test_a_stream_ends_with_the_answer_and_without_done() -> None:
    async with native_endpoint() as endpoint:
        endpoint.engine.replies.append([*begun(), step(" Pa", "ris"), step("."), finished(text="!")])
        exchange = await endpoint.post("/completion", {"prompt": "x", "stream": True})
    assert exchange.headers["content-type"].startswith("text/event-stream")
    *chunks, last = exchange.data
    assert [chunk["content"] for chunk in chunks] == [" Paris", ".", "!"]
    assert not any(chunk["stop"] for chunk in chunks)
    assert last["stop"] is True
    assert last["content"] == ""
    assert last["stop_type"] == "eos"
    assert last["generation_settings"]["stream"] is True


async def test_everything_that_llama_cpp_can_be_asked_for_reaches_the_engine() -> None:
    body = {
        "prompt": [12, "a"],
        "n_predict": 7,
        "temperature": 0.5,
        "dynatemp_range": 0.1,
        "dynatemp_exponent": 1.5,
        "top_k": 30,
        "top_p": 0.8,
        "min_p": 0.1,
        "typical_p": 0.9,
        "top_n_sigma": 2.0,
        "xtc_probability": 0.2,
        "xtc_threshold": 0.3,
        "repeat_penalty": 1.1,
        "repeat_last_n": 32,
        "presence_penalty": 0.3,
        "frequency_penalty": 0.4,
        "dry_multiplier": 0.5,
        "dry_base": 1.9,
        "dry_allowed_length": 3,
        "dry_penalty_last_n": 99,
        "dry_sequence_breakers": ["x"],
        "logit_bias": [[5, 1.5], [6, False]],
        "grammar": 'root ::= "a"',
        "seed": 42,
        "stop": ["\n\n", "END"],
        "n_probs": 3,
        "cache_prompt": False,
        "ignore_eos": True,
        "n_indent": 4,
        "t_max_predict_ms": 1500,
        "localspec": {"mode": "lookup", "num_speculative_tokens": 5},
    }
    async with native_endpoint() as endpoint:
        endpoint.engine.replies.append(complete("a"))
        exchange = await endpoint.post("/completion", body)
    assert exchange.status == 200, exchange.json
    asked = endpoint.asked
    assert asked.prompt == MixedPrompt((12, "a"))
    assert asked.sampling == SamplingParams(
        temperature=0.5,
        dynatemp_range=0.1,
        dynatemp_exponent=1.5,
        top_k=30,
        top_p=0.8,
        min_p=0.1,
        typical_p=0.9,
        top_n_sigma=2.0,
        xtc_probability=0.2,
        xtc_threshold=0.3,
        repeat_penalty=1.1,
        repeat_last_n=32,
        presence_penalty=0.3,
        frequency_penalty=0.4,
        dry_multiplier=0.5,
        dry_base=1.9,
        dry_allowed_length=3,
        dry_penalty_last_n=99,
        dry_sequence_breakers=("x",),
        logit_bias=((5, 1.5), (6, float("-inf"))),
        grammar='root ::= "a"',
        seed=42,
    )
    assert (asked.mode, asked.num_speculative_tokens) == (Mode.LOOKUP, 5)
    assert (asked.max_tokens, asked.stop, asked.n_logprobs) == (7, ("\n\n", "END"), 3)
    assert asked.line_limits == LineLimits(4, 1.5)
    assert asked.ignores_end
    assert not asked.reuses_cache
    told = exchange.json["generation_settings"]
    for name in set(body) - {"prompt", "logit_bias", "localspec", "seed"}:
        assert told[name] == body[name], name
    assert told["localspec"] == body["localspec"]


@pytest.mark.parametrize(
    ("fields", "max_tokens"),
    [
        ({}, 99),
        ({"n_predict": -1}, None),
        ({"n_predict": 0}, 0),
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 6, "max_tokens": 5}, 6),
        ({"n_predict": 7, "max_tokens": 5}, 7),
        ({"n_predict": None, "max_tokens": 5}, 5),
    ],
)
async def test_how_long_a_reply_may_be(fields: dict[str, Any], max_tokens: int | None) -> None:
    async with native_endpoint(settings=ServerSettings(max_tokens=99)) as endpoint:
        endpoint.engine.replies.append(complete("a"))
        assert (await endpoint.post("/completion", {"prompt": "x", **fields})).status == 200
    assert endpoint.asked.max_tokens == max_tokens


async def test_what_is_not_given_is_the_endpoints_setting_and_no_limits() -> None:
    settings = ServerSettings(sampling=SamplingParams(temperature=0.3, top_k=7), mode=Mode.LOOKUP)
    async with native_endpoint(settings=settings) as endpoint:
        endpoint.engine.replies.append(complete("a"))
        await endpoint.post("/completion", {"prompt": "x", "n_probs": 0, "n_indent": 0, "t_max_predict_ms": -1})
    asked = endpoint.asked
    assert asked.prompt == RawPrompt("x", parse_special=True)
    assert asked.sampling == replace(settings.sampling)
    assert asked.mode is Mode.LOOKUP
    assert (asked.max_tokens, asked.n_logprobs, asked.line_limits) == (None, None, None)
    assert asked.reuses_cache


async def test_samplers_that_are_not_named_are_off() -> None:
    async with native_endpoint() as endpoint:
        endpoint.engine.replies.append(complete("a"))
        body = {"prompt": "x", "top_k": 40, "top_p": 0.9, "temperature": 0.1, "samplers": ["top_k", "top_p", "infill"]}
        exchange = await endpoint.post("/completion", body)
    assert endpoint.asked.sampling == SamplingParams(
        top_k=40, top_p=0.9, temperature=1.0, min_p=0.0, dry_multiplier=0.0, repeat_penalty=1.0
    )
    assert exchange.json["generation_settings"]["samplers"] == ["top_k", "top_p"]


async def test_several_prompts_and_several_results_of_each_are_an_array() -> None:
    async with native_endpoint() as endpoint:
        endpoint.engine.replies.extend(complete(text) for text in ("a", "b", "c", "d"))
        exchange = await endpoint.post("/completion", {"prompt": ["x", [72, 105]], "n_cmpl": 2, "seed": 1})
    assert [answer["content"] for answer in exchange.json] == ["a", "b", "c", "d"]
    assert [answer["index"] for answer in exchange.json] == [0, 1, 2, 3]
    assert [answer["prompt"] for answer in exchange.json] == ["x", "x", "Hi", "Hi"]
    seeds = [request.sampling.seed for request in endpoint.engine.requests]
    assert seeds[0] == 1
    assert seeds[:2] == seeds[2:]
    assert len(set(seeds)) == 2


async def test_a_stream_of_several_results_tells_which_is_which() -> None:
    async with native_endpoint() as endpoint:
        exchange = endpoint.client.start("POST", "/completion", {"prompt": ["x", "y"], "stream": True})
        while len(endpoint.engine.requests) < 2:
            await asyncio.sleep(0.001)
        endpoint.engine.play([*begun(), step("b")], request=1)
        endpoint.engine.play([*begun(), step("a"), finished()], request=0)
        endpoint.engine.play([step("bb"), finished()], request=1)
        await exchange.finish()
    told = [(data["index"], data["content"], data["stop"]) for data in exchange.data]
    assert told == [(1, "b", False), (0, "a", False), (0, "", True), (1, "bb", False), (1, "", True)]


async def test_probabilities_are_told_where_they_were_asked_for() -> None:
    probable = TokenLogprobs(chance("a", -0.25), (chance("a", -0.25), chance("b", -2.0, 8)))
    for streams in (False, True):
        async with native_endpoint() as endpoint:
            endpoint.engine.replies.append([*begun(), step("a", logprobs=[probable]), finished()])
            exchange = await endpoint.post("/completion", {"prompt": "x", "n_probs": 2, "stream": streams})
        assert endpoint.asked.n_logprobs == 2
        answer = exchange.data[0] if streams else exchange.json
        [told] = answer["completion_probabilities"]
        assert told["logprob"] == -0.25
        assert [(top["id"], top["token"], top["bytes"]) for top in told["top_logprobs"]] == [
            (7, "a", [97]),
            (8, "b", [98]),
        ]


async def test_only_the_fields_that_were_asked_for() -> None:
    async with native_endpoint() as endpoint:
        endpoint.engine.replies.append(complete("a", reason=FinishReason.LENGTH))
        fields = ["content", "generation_settings/n_predict", "stop_type", "nope"]
        exchange = await endpoint.post("/completion", {"prompt": "x", "n_predict": 3, "response_fields": fields})
    assert exchange.json == {"content": "a", "generation_settings/n_predict": 3, "stop_type": "limit"}


async def test_progress_of_a_long_prompt() -> None:
    async with native_endpoint() as endpoint:
        reading = [*begun(), Prefilling("", 42, 42, 30), step("a"), finished()]
        endpoint.engine.replies.append(reading)
        body = {"prompt": "x", "stream": True, "return_progress": True, "timings_per_token": True}
        exchange = await endpoint.post("/completion", body)
    progress = [data["prompt_progress"] for data in exchange.data if "prompt_progress" in data]
    assert [(each["processed"], each["cache"], each["total"]) for each in progress] == [(30, 30, 42), (42, 30, 42)]
    assert exchange.data[2]["timings"]["predicted_n"] == 10


# What a request may hold beside what counts: values that say "off", wishes, and what llama-server does not read either.
HARMLESS: dict[str, Any] = {
    "model": "any",
    "id_slot": 0,
    "n_keep": -1,
    "n_discard": 5,
    "t_max_prompt_ms": 500,
    "mirostat": 0,
    "mirostat_tau": 5.0,
    "mirostat_eta": 0.1,
    "adaptive_target": -1.0,
    "adaptive_decay": 0.9,
    "min_keep": 0,
    "n_cache_reuse": 0,
    "post_sampling_probs": False,
    "backend_sampling": False,
    "verbose": False,
    "lora": [],
    "sse_ping_interval": -1,
    "grammar": "",
    "stop": [],
    "top_k": None,
    "response_fields": None,
}


@pytest.mark.parametrize("streams", [False, True])
async def test_harmless_fields_are_taken(streams: bool) -> None:
    async with native_endpoint() as endpoint:
        endpoint.engine.replies.append(complete("a"))
        exchange = await endpoint.post("/completion", {"prompt": "x", "stream": streams, **HARMLESS})
    assert exchange.status == 200, exchange.json


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": []}, "prompt"),
        ({"prompt": [1.5]}, "prompt"),
        ({"prompt": [49152]}, "prompt"),
        ({"prompt": {"prompt_string": "a", "multimodal_data": []}}, "prompt"),
        ({"n_predict": -2}, "n_predict"),
        ({"n_predict": "10"}, "n_predict"),
        ({"n_probs": 101}, "n_probs"),
        ({"n_cmpl": 0}, "n_cmpl"),
        ({"prompt": ["x"] * 64, "n_cmpl": 3}, "n_cmpl"),
        ({"id_slot": -2}, "id_slot"),
        ({"mirostat": 2}, "mirostat"),
        ({"adaptive_target": 0.5}, "adaptive_target"),
        ({"min_keep": 1}, "min_keep"),
        ({"n_cache_reuse": 256}, "n_cache_reuse"),
        ({"post_sampling_probs": True}, "post_sampling_probs"),
        ({"backend_sampling": True}, "backend_sampling"),
        ({"samplers": ["top_p", "top_k"]}, "samplers"),
        ({"samplers": ["mirostat"]}, "samplers"),
        ({"stop": [""]}, "stop"),
        ({"stop": ["a"] * 65}, "stop"),
        ({"response_fields": "content"}, "response_fields"),
        ({"temperature": float("1e9")}, "temperature"),
        ({"penalize_nl": True}, "penalize_nl"),
        ({"logit_bias": [[49152, 1.0]]}, "logit_bias"),
        ({"n_indent": -1}, "n_indent"),
        ({"t_max_predict_ms": -2}, "t_max_predict_ms"),
        ({"localspec": {"mode": "fast"}}, "localspec.mode"),
    ],
)
async def test_what_cannot_be_done_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    async with native_endpoint() as endpoint:
        exchange = await endpoint.post("/completion", {"prompt": "x", **fields})
    assert exchange.status == 400
    assert exchange.error["param"] == param
    assert exchange.error["type"] == "invalid_request_error"
    assert param.split(".")[0] in exchange.error["message"]
    assert not endpoint.engine.requests


async def test_lora_adapters_are_refused_as_not_supported() -> None:
    async with native_endpoint() as endpoint:
        exchange = await endpoint.post("/completion", {"prompt": "x", "lora": [{"id": 0, "scale": 0.5}]})
    assert exchange.status == 400
    assert (exchange.error["type"], exchange.error["param"]) == ("not_supported_error", "lora")


async def test_a_prompt_is_needed() -> None:
    async with native_endpoint() as endpoint:
        for body in ({}, {"prompt": None}):
            exchange = await endpoint.post("/completion", body)
            assert exchange.status == 400
            assert exchange.error["param"] == "prompt"


@pytest.mark.parametrize("streams", [False, True])
async def test_a_prompt_that_does_not_fit_has_a_status_of_its_own(streams: bool) -> None:
    async with native_endpoint() as endpoint:
        endpoint.engine.replies.append([begun()[0], Failed("", ContextFullError.for_prompt(5000, 2048))])
        exchange = await endpoint.post("/completion", {"prompt": "x", "stream": streams})
    assert exchange.status == 400
    assert exchange.error["code"] == "context_length_exceeded"
    assert "5000" in exchange.error["message"]


async def test_an_error_in_the_middle_of_a_stream_is_its_last_event() -> None:
    async with native_endpoint() as endpoint:
        exchange = endpoint.client.start("POST", "/completion", {"prompt": "x", "stream": True})
        while not endpoint.engine.requests:
            await asyncio.sleep(0.001)
        endpoint.engine.play([*begun(), step("a")])
        await exchange.until(b'"content":"a"')
        endpoint.engine.play([Failed("", ContextFullError.for_prompt(5000, 2048))])
        await exchange.finish()
    assert exchange.status == 200
    assert exchange.data[0]["content"] == "a"
    assert exchange.data[-1]["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize("streams", [False, True])
async def test_a_client_that_leaves_frees_all_its_replies(streams: bool) -> None:
    async with native_endpoint() as endpoint:
        exchange = endpoint.client.start("POST", "/completion", {"prompt": ["x", "y"], "stream": streams})
        while len(endpoint.engine.requests) < 2:
            await asyncio.sleep(0.001)
        endpoint.engine.play([*begun(), step("a")], request=0)
        if streams:
            await exchange.until(b'"content":"a"')
        exchange.leave()
        await exchange.finish()
        while endpoint.service.open_requests:
            await asyncio.sleep(0.001)
        assert endpoint.engine.n_open == 0


async def test_a_full_queue_takes_all_results_or_none() -> None:
    async with native_endpoint(settings=ServerSettings(n_parallel=1, n_queue=1)) as endpoint:
        running = endpoint.client.start("POST", "/completion", {"prompt": "x"})
        while not endpoint.engine.requests:
            await asyncio.sleep(0.001)
        exchange = await endpoint.post("/completion", {"prompt": "y", "n_cmpl": 2})
        assert exchange.status == 429
        assert int(exchange.headers["retry-after"]) >= 1
        assert len(endpoint.engine.requests) == 1
        running.leave()
        await running.finish()
