"""POST /v1/responses over a scripted engine, through the real client: what is asked, whole replies, and streams."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx2
import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response
from pydantic import BaseModel

from localspec.engine.events import Failed, FinishReason, StepDecoded, TokenLogprobs
from localspec.engine.requests import ChatPrompt, GenerateRequest, Mode
from localspec.errors import ContextFullError, EngineDiedError, EngineError
from localspec.server.app import create_app
from localspec.server.service import EngineService
from localspec.server.settings import ServerSettings
from tests.server.http_client import HttpClient
from tests.server.scripted_engine import FACTS, LOADED, PAIR, ScriptedEngine, begun, chance, complete, finished, step

URL = "/v1/responses"
WEATHER = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": True,
}
# A template that teaches tool calls as Hermes and Qwen write them, and reasoning.
TEMPLATE = "{% if tools %}<tool_call>{% endif %}<think></think>"
CALLING = (
    "<think>",
    "Hm.",
    "</think>",
    "Look",
    '<tool_call>\n{"name": "weather", ',
    '"arguments": {"city": "Rome"}}\n',
)
CALLING = (*CALLING, "</tool_call>")


@pytest.fixture
async def openai_client(engine: ScriptedEngine, settings: ServerSettings) -> AsyncIterator[AsyncOpenAI]:
    """Of an endpoint whose model's template knows tools and reasoning."""
    engine.load_events = (replace(LOADED, about=replace(FACTS, chat_template=TEMPLATE)),)
    service = EngineService(engine)
    await service.start(PAIR)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(create_app(service, settings))) as http:
        yield AsyncOpenAI(api_key="any", base_url="http://test/v1", http_client=http, max_retries=0)
    await service.stop(0)


async def respond(client: AsyncOpenAI, engine: ScriptedEngine, *pieces: str, **fields: Any) -> Any:
    engine.replies.append(complete(*(pieces or ("Hi",))))
    return await client.responses.create(**{"model": "any", "input": "Hello", **fields})


async def asked(client: AsyncOpenAI, engine: ScriptedEngine, **fields: Any) -> GenerateRequest:
    """The engine's request."""
    await respond(client, engine, **fields)
    return engine.requests[-1]


class TestWhole:
    async def test_a_text(self, openai_client: AsyncOpenAI, engine: ScriptedEngine) -> None:
        response = await respond(openai_client, engine, "Hi", " there", metadata={"a": "b"}, instructions="Be brief.")
        assert response.output_text == "Hi there"
        assert [item.type for item in response.output] == ["message"]
        assert (response.status, response.error, response.incomplete_details) == ("completed", None, None)
        assert response.model == LOADED.target_name
        assert response.id.startswith("resp_")
        assert (response.metadata, response.instructions) == ({"a": "b"}, "Be brief.")
        assert response.completed_at >= response.created_at
        assert response.temperature == 0.8
        assert response.to_dict()["store"] is False

    async def test_its_statistics(self, openai_client: AsyncOpenAI, engine: ScriptedEngine) -> None:
        response = await respond(openai_client, engine)
        usage = response.usage
        assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (42, 10, 52)
        details = usage.input_tokens_details
        assert (details.cached_tokens, details.cache_write_tokens) == (30, 12)
        assert usage.output_tokens_details.reasoning_tokens == 0
        told = response.to_dict()
        assert (told["timings"]["draft_n"], told["timings"]["draft_n_accepted"]) == (15, 6)
        assert told["metrics"]["speculative_decoding"]["num_draft_tokens"] == 15

    async def test_reasoning_text_and_a_call(self, openai_client: AsyncOpenAI, engine: ScriptedEngine) -> None:
        response = await respond(openai_client, engine, *CALLING, tools=[WEATHER])
        reasoning, message, call = response.output
        assert (reasoning.type, reasoning.summary, reasoning.content[0].text) == ("reasoning", [], "Hm.")
        assert message.content[0].text == "Look"
        assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "weather", {"city": "Rome"})
        assert call.call_id != call.id
        # One token was nothing but reasoning, and so were the marks around it, as far as they are known by then.
        assert 1 <= response.usage.output_tokens_details.reasoning_tokens <= 3

    async def test_what_it_says_can_be_sent_back(self, openai_client: AsyncOpenAI, engine: ScriptedEngine) -> None:
        user = {"role": "user", "content": "Weather?"}
        first = await respond(openai_client, engine, *CALLING, tools=[WEATHER], input=[user])
        output = {"type": "function_call_output", "call_id": first.output[2].call_id, "output": "Sunny"}
        second = await respond(
            openai_client, engine, "Sunny!", tools=[WEATHER], input=[user, *first.output, output], store=False
        )
        assert second.output_text == "Sunny!"
        prompt = engine.requests[-1].prompt
        assert isinstance(prompt, ChatPrompt)
        assert [message.role for message in prompt.messages] == ["user", "assistant", "tool"]
        said = prompt.messages[1]
        assert said.content == "Look"
        assert said.more["reasoning_content"] == "Hm."
        assert said.more["tool_calls"][0]["function"]["arguments"] == {"city": "Rome"}
        assert prompt.messages[2].content == "Sunny"

    @pytest.mark.parametrize("reason", [FinishReason.LENGTH, FinishReason.CONTEXT_FULL])
    async def test_one_that_was_cut(
        self, openai_client: AsyncOpenAI, engine: ScriptedEngine, reason: FinishReason
    ) -> None:
        engine.replies.append(complete("Hi", reason=reason))
        response = await openai_client.responses.create(model="any", input="Hello", max_output_tokens=10)
        assert response.status == "incomplete"
        assert response.incomplete_details is not None
        assert response.incomplete_details.reason == "max_output_tokens"
        assert response.output_text == "Hi"

    async def test_logprobs(self, openai_client: AsyncOpenAI, engine: ScriptedEngine) -> None:
        logprobs = [TokenLogprobs(chance(text, -0.5), (chance(text, -0.5),)) for text in ("<think>", "Hm", "</think>")]
        answer = TokenLogprobs(chance("Hi", -0.25), (chance("Hi", -0.25), chance("Ho", -2.0)))
        steps: list[StepDecoded] = [step(each.chosen.piece.decode(), logprobs=[each]) for each in [*logprobs, answer]]
        engine.replies.append([*begun(), *steps, finished()])
        response = await openai_client.responses.create(
            model="any", input="Hello", top_logprobs=2, include=["message.output_text.logprobs"]
        )
        assert engine.requests[-1].n_logprobs == 2
        told = response.output[1].content[0].logprobs  # type: ignore[union-attr]
        assert told[-1].token == "Hi"  # type: ignore[index]
        assert [(each.token, each.logprob) for each in told[-1].top_logprobs] == [("Hi", -0.25), ("Ho", -2.0)]  # type: ignore[index]
        assert "Hm" not in [each.token for each in told]  # type: ignore[union-attr]

    async def test_parsing_by_a_model(self, openai_client: AsyncOpenAI, engine: ScriptedEngine) -> None:
        class City(BaseModel):
            name: str

        engine.replies.append(complete('{"name": ', '"Rome"}'))
        parsed = await openai_client.responses.parse(model="any", input="Hello", text_format=City)
        assert parsed.output_parsed == City(name="Rome")
        schemas = engine.requests[-1].sampling.grammar_schemas
        assert json.loads(schemas[0].schema)["properties"] == City.model_json_schema()["properties"]


class TestAsked:
    async def test_the_fields(self, openai_client: AsyncOpenAI, engine: ScriptedEngine) -> None:
        request = await asked(
            openai_client,
            engine,
            instructions="Be brief.",
            temperature=0.25,
            top_p=0.5,
            max_output_tokens=7,
            extra_body={"min_p": 0.1, "seed": 5, "localspec": {"mode": "lookup", "num_speculative_tokens": 3}},
        )
        assert isinstance(request.prompt, ChatPrompt)
        assert [(turn.role, turn.content) for turn in request.prompt.messages] == [
            ("system", "Be brief."),
            ("user", "Hello"),
        ]
        sampling = request.sampling
        assert (sampling.temperature, sampling.top_p, sampling.min_p, sampling.seed) == (0.25, 0.5, 0.1, 5)
        assert (request.mode, request.num_speculative_tokens, request.max_tokens) == (Mode.LOOKUP, 3, 7)
        assert request.n_logprobs is None

    async def test_reasoning_is_a_matter_of_the_template(
        self, openai_client: AsyncOpenAI, engine: ScriptedEngine
    ) -> None:
        request = await asked(openai_client, engine, reasoning={"effort": "none"})
        assert isinstance(request.prompt, ChatPrompt)
        assert request.prompt.variables == {"reasoning_effort": "none", "enable_thinking": False}

    async def test_tools_and_their_choice(self, openai_client: AsyncOpenAI, engine: ScriptedEngine) -> None:
        other = {**WEATHER, "name": "time"}
        request = await asked(openai_client, engine, tools=[WEATHER, other])
        assert isinstance(request.prompt, ChatPrompt)
        assert [tool["function"]["name"] for tool in request.prompt.tools] == ["weather", "time"]
        assert request.sampling.grammar_triggers
        named = {"type": "function", "name": "time"}
        request = await asked(openai_client, engine, tools=[WEATHER, other], tool_choice=named)
        assert request.sampling.grammar
        assert not request.sampling.grammar_triggers
        request = await asked(openai_client, engine, tools=[WEATHER], tool_choice="none")
        assert request.sampling.grammar is None

    async def test_what_is_refused(self, openai_client: AsyncOpenAI, engine: ScriptedEngine) -> None:
        for fields, param, words in [
            ({"previous_response_id": "resp_1"}, "previous_response_id", "keeps no responses"),
            ({"conversation": "conv_1"}, "conversation", "keeps no conversations"),
            ({"prompt": {"id": "x"}}, "prompt", "keeps no prompts"),
            ({"background": True}, "background", "False"),
            ({"tools": [{"type": "web_search"}]}, None, "web_search"),
            ({"tools": [WEATHER], "tool_choice": {"type": "function", "name": "x"}}, None, "x"),
            ({"extra_body": {"nonsense": 1}}, "nonsense", "not supported"),
        ]:
            with pytest.raises(openai.BadRequestError) as refused:
                await openai_client.responses.create(**{"model": "any", "input": "Hello", **fields})
            assert param is None or refused.value.param == param
            assert words in refused.value.message
        assert not engine.requests

    async def test_nothing_is_kept(self, openai_client: AsyncOpenAI, engine: ScriptedEngine) -> None:
        response = await respond(openai_client, engine, store=True)
        with pytest.raises(openai.NotFoundError, match="keeps no responses"):
            await openai_client.responses.retrieve(response.id)
        with pytest.raises(openai.NotFoundError, match="keeps no responses"):
            await openai_client.responses.delete(response.id)


class TestStream:
    async def test_its_accumulator(self, openai_client: AsyncOpenAI, engine: ScriptedEngine) -> None:
        engine.replies.append(complete(*CALLING))
        async with openai_client.responses.stream(model="any", input="Hello", tools=[WEATHER]) as stream:
            events = [event async for event in stream]
            final = await stream.get_final_response()
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
        assert final.output_text == "Look"
        call = final.output[2]
        assert call.type == "function_call"
        assert call.parsed_arguments == {"city": "Rome"}
        kinds = [event.type for event in events]
        assert kinds[:2] == ["response.created", "response.in_progress"]
        assert kinds[-1] == "response.completed"
        assert "response.reasoning_text.delta" in kinds
        assert final.usage is not None
        assert final.to_dict()["timings"]["predicted_n"] == 10  # type: ignore[index]

    async def test_it_says_what_a_whole_response_says(self, openai_client: AsyncOpenAI, engine: ScriptedEngine) -> None:
        whole = (await respond(openai_client, engine, *CALLING, tools=[WEATHER])).to_dict()
        events = [event async for event in await respond(openai_client, engine, *CALLING, tools=[WEATHER], stream=True)]
        streamed = events[-1].response.to_dict()
        for response in (whole, streamed):
            del response["id"], response["created_at"], response["completed_at"], response["timings"]
            for item in response["output"]:
                del item["id"]
                item.pop("call_id", None)
        assert streamed == whole

    async def test_its_bytes(self, client: HttpClient, engine: ScriptedEngine) -> None:
        engine.replies.append(complete("Hi"))
        exchange = await client.post(URL, {"input": "Hello", "stream": True})
        assert exchange.headers["content-type"].startswith("text/event-stream")
        blocks = exchange.body.decode().strip().split("\n\n")
        for block, data in zip(blocks, exchange.data, strict=True):
            name, line = block.split("\n")
            assert name == f"event: {data['type']}"
            assert line.startswith("data: ")
        assert exchange.data[-1]["type"] == "response.completed"  # and no "[DONE]" after it

    async def test_one_that_was_cut(self, openai_client: AsyncOpenAI, engine: ScriptedEngine) -> None:
        engine.replies.append(complete("Hi", reason=FinishReason.LENGTH))
        stream = await openai_client.responses.create(model="any", input="Hello", stream=True)
        last = [event async for event in stream][-1]
        assert last.type == "response.incomplete"
        assert last.response.incomplete_details is not None
        assert last.response.output_text == "Hi"

    async def test_a_failure_on_the_way(self, client: HttpClient, engine: ScriptedEngine) -> None:
        engine.replies.append([*begun(), step("Hi")])
        exchange = client.start("POST", URL, {"input": "Hello", "stream": True})
        await exchange.until(b"output_text.delta")
        engine.play([Failed("", EngineError("ggml failed in /secret/folder/model.gguf."))])
        await exchange.finish()
        *_, told, failed = exchange.data
        assert (told["type"], failed["type"]) == ("error", "response.failed")
        response = Response.model_validate(failed["response"])
        assert (response.status, response.output_text) == ("failed", "Hi")
        assert response.error is not None
        assert (response.error.code, response.error.message) == ("server_error", told["message"])
        assert b"secret" not in exchange.body
        assert [event["sequence_number"] for event in exchange.data] == list(range(len(exchange.data)))

    @pytest.mark.parametrize("is_streamed", [True, False])
    async def test_a_failure_before_it_has_a_status(
        self, openai_client: AsyncOpenAI, engine: ScriptedEngine, is_streamed: bool
    ) -> None:
        engine.replies.append([begun()[0], Failed("", ContextFullError.for_prompt(9000, 2048))])
        with pytest.raises(openai.BadRequestError) as refused:
            await openai_client.responses.create(model="any", input="Hello", stream=is_streamed)
        assert refused.value.code == "context_length_exceeded"
        engine.replies.append([begun()[0], Failed("", EngineDiedError("It died."))])
        with pytest.raises(openai.InternalServerError):
            await openai_client.responses.create(model="any", input="Hello", stream=is_streamed)

    async def test_a_client_that_leaves_frees_its_place(self, client: HttpClient, engine: ScriptedEngine) -> None:
        for is_streamed in (True, False):
            engine.replies.append([*begun(), step("Hi")])
            exchange = client.start("POST", URL, {"input": "Hello", "stream": is_streamed})
            if is_streamed:
                await exchange.until(b"output_text.delta")
            while not engine.requests or engine.n_open == 0:
                await asyncio.sleep(0.005)
            exchange.leave()
            await exchange.finish()
            assert engine.cancelled[-1] == engine.requests[-1].request_id
            assert engine.n_open == 0

    async def test_silence_is_kept_alive(self, client: HttpClient, engine: ScriptedEngine) -> None:
        engine.replies.append(begun()[:1])
        exchange = client.start("POST", URL, {"input": "Hello", "stream": True})
        await exchange.until(b": keep-alive")
        assert exchange.data[0]["type"] == "response.created"
        engine.play(complete("Hi")[1:])
        await exchange.finish()
        assert exchange.data[-1]["type"] == "response.completed"
