"""GET /health, /props and /slots, and what is refused by name."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from localspec.engine.events import LoadFailed, Loading
from localspec.engine.questions import AnswerValue, EngineUsage, Question, SlotUsage
from localspec.engine.requests import Mode, SamplingParams
from localspec.errors import ModelFileError
from localspec.server.settings import ServerSettings
from tests.server.native_endpoint import NativeEndpoint, native_endpoint
from tests.server.scripted_engine import FACTS, LOADED, PAIR, begun, finished, step


@pytest.mark.parametrize("path", ["/health", "/v1/health"])
async def test_health_once_the_model_is_loaded(path: str) -> None:
    async with native_endpoint() as endpoint:
        exchange = await endpoint.get(path)
    assert (exchange.status, exchange.json) == (200, {"status": "ok"})


async def test_health_while_the_model_loads() -> None:
    async with native_endpoint(is_loading=True) as endpoint:
        exchange = await endpoint.get("/health")
        assert exchange.status == 503
        assert exchange.error["type"] == "unavailable_error"
        assert "retry-after" in exchange.headers
        starting = asyncio.ensure_future(endpoint.service.start(PAIR))
        await asyncio.sleep(0)
        endpoint.engine.report_load(Loading("Loading the target", 0.25))
        while endpoint.service.loading is None:
            await asyncio.sleep(0.001)
        assert "Loading the target, 25%" in (await endpoint.get("/health")).error["message"]
        endpoint.engine.report_load(LOADED)
        await starting
        assert (await endpoint.get("/health")).status == 200
        # An engine that died loads its pair again: what was loaded once does not count.
        endpoint.engine.report_load(Loading("Loading the target", 0.5))
        while endpoint.service.loading is None:
            await asyncio.sleep(0.001)
        assert (await endpoint.get("/health")).status == 503


async def test_health_when_the_model_cannot_be_loaded_says_why_without_a_path() -> None:
    async with native_endpoint(is_loading=True) as endpoint:
        starting = asyncio.ensure_future(endpoint.service.start(PAIR))
        await asyncio.sleep(0)
        endpoint.engine.report_load(LoadFailed(ModelFileError("/secret/folder/model.gguf is empty.")))
        with pytest.raises(ModelFileError):
            await starting
        exchange = await endpoint.get("/health")
    assert exchange.status == 503
    assert exchange.error["message"]
    assert "secret" not in exchange.body.decode()


async def test_health_at_the_end() -> None:
    async with native_endpoint() as endpoint:
        await endpoint.service.stop(0)
        exchange = await endpoint.get("/health")
    assert (exchange.status, exchange.error["code"]) == (503, "shutting_down")


async def test_props_tell_the_model_and_the_defaults() -> None:
    loaded = replace(LOADED, about=replace(FACTS, chat_template="{{ tools }}{{ messages }}"))
    settings = ServerSettings(
        n_parallel=3, model_alias="mine", sampling=SamplingParams(temperature=0.3), mode=Mode.LOOKUP, max_tokens=77
    )
    async with native_endpoint(loaded, settings=settings) as endpoint:
        exchange = await endpoint.get("/props")
        assert "/secret" not in exchange.body.decode()
        props = exchange.json
    assert props["default_generation_settings"]["n_ctx"] == 2048
    params = props["default_generation_settings"]["params"]
    assert (params["temperature"], params["n_predict"], params["localspec"]["mode"]) == (0.3, 77, "lookup")
    assert props["total_slots"] == 3
    assert props["model_alias"] == "mine"
    assert props["model_path"] == "model.gguf"
    assert props["chat_template"] == "{{ tools }}{{ messages }}"
    assert props["chat_template_caps"]["supports_tools"] is True
    assert (props["bos_token"], props["eos_token"]) == ("<|im_start|>", "<|im_end|>")
    assert props["build_info"].startswith("localspec")


async def test_props_of_a_model_that_says_nothing_of_itself() -> None:
    async with native_endpoint(replace(LOADED, about=None)) as endpoint:
        props = (await endpoint.get("/props")).json
    assert props["model_path"] == LOADED.target_name
    assert (props["chat_template"], props["bos_token"]) == ("", "")
    assert props["chat_template_caps"]["supports_tools"] is False


def used(endpoint_requests: list[str | None]) -> AnswerValue:
    return EngineUsage(tuple(SlotUsage(100 + n, each) for n, each in enumerate(endpoint_requests)), 0, 2048)


async def test_slots_tell_what_runs_and_no_text() -> None:
    running: list[str | None] = [None, None]

    def answer(_: Question) -> AnswerValue:
        return used(running)

    async with native_endpoint(answers=answer) as endpoint:
        body = {"prompt": "a secret prompt", "n_predict": 50, "temperature": 0.25}
        exchange = endpoint.client.start("POST", "/completion", body)
        while not endpoint.engine.requests:
            await asyncio.sleep(0.001)
        endpoint.engine.play([*begun(), step("a secret reply")])
        running[1] = endpoint.asked.request_id
        while endpoint.service.open_requests[0].metrics is None:
            await asyncio.sleep(0.001)
        told = await endpoint.get("/slots")
        assert "secret" not in told.body.decode()
        idle, busy = told.json
        assert idle == {"id": 0, "n_ctx": 2048, "speculative": True, "is_processing": False, "n_cached": 100}
        assert (busy["id"], busy["is_processing"], busy["n_cached"]) == (1, True, 101)
        assert busy["params"]["temperature"] == 0.25
        assert busy["n_prompt_tokens"] == 42
        assert busy["next_token"] == [{"has_next_token": True, "n_remain": 40, "n_decoded": 10}]
        assert await _fails_without_a_slot(endpoint) == 200
        running[0] = "another"
        assert await _fails_without_a_slot(endpoint) == 503
        endpoint.engine.play([finished()])
        await exchange.finish()


async def _fails_without_a_slot(endpoint: NativeEndpoint) -> int | None:
    return (await endpoint.get("/slots?fail_on_no_slot=1")).status


async def test_slots_do_not_start_an_engine_that_has_died() -> None:
    async with native_endpoint(process_id=None) as endpoint:
        slots = (await endpoint.get("/slots")).json
    assert [slot["is_processing"] for slot in slots] == [False] * 4
    assert not endpoint.engine.questions


@pytest.mark.parametrize("path", ["/props", "/lora-adapters", "/slots/0?action=save", "/slots/0?action=erase"])
async def test_what_llama_server_can_be_switched_on_to_do_is_refused(path: str) -> None:
    async with native_endpoint() as endpoint:
        exchange = await endpoint.post(path, {"filename": "x"})
    assert exchange.status == 400
    assert exchange.error["type"] == "not_supported_error"


async def test_there_are_no_lora_adapters() -> None:
    async with native_endpoint() as endpoint:
        assert (await endpoint.get("/lora-adapters")).json == []


async def test_before_a_model_is_loaded() -> None:
    async with native_endpoint(is_loading=True) as endpoint:
        for path in ("/props", "/slots"):
            exchange = await endpoint.get(path)
            assert (exchange.status, exchange.error["code"]) == (503, "loading")
