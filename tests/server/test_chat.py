"""POST /v1/chat/completions: what the engine is asked, and the shapes of whole replies and of streams."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from localspec.engine.events import Failed, FinishReason, Prefilling, StepDecoded, TokenLogprobs
from localspec.engine.questions import Tokenize
from localspec.engine.requests import ChatPrompt, GenerateRequest, Mode, SamplingParams
from localspec.errors import ChatTemplateError
from localspec.server.app import create_app
from localspec.server.service import EngineService
from localspec.server.settings import ServerSettings
from tests.server.http_client import Exchange, HttpClient
from tests.server.scripted_engine import FACTS, LOADED, PAIR, ScriptedEngine, begun, chance, complete, finished, step

URL = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "Hello"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
# A template that teaches tool calls as Hermes and Qwen write them, and reasoning.
TEMPLATE = "{% if tools %}<tool_call>{% endif %}<think></think>"


async def ask(client: HttpClient, engine: ScriptedEngine, *pieces: str, **fields: Any) -> Exchange:
    engine.replies.append(complete(*(pieces or ("Hi",))))
    exchange = await client.post(URL, {"messages": MESSAGES, **fields})
    assert exchange.status == 200, exchange.body
    return exchange


async def asked(client: HttpClient, engine: ScriptedEngine, **fields: Any) -> GenerateRequest:
    """The engine's request."""
    await ask(client, engine, **fields)
    return engine.requests[-1]


def taught(engine: ScriptedEngine) -> None:
    """The model's template knows tools and reasoning; before the service is started."""
    engine.load_events = (replace(LOADED, about=replace(FACTS, chat_template=TEMPLATE)),)


class TestWhole:
    async def test_a_reply(self, client: HttpClient, engine: ScriptedEngine) -> None:
        reply = (await ask(client, engine, "Hi", " there")).json
        assert reply["id"].startswith("chatcmpl-")
        assert reply["object"] == "chat.completion"
        assert reply["model"] == LOADED.target_name
        assert reply["choices"] == [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hi there", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ]

    async def test_its_statistics(self, client: HttpClient, engine: ScriptedEngine) -> None:
        reply = (await ask(client, engine)).json
        assert reply["usage"] == {
            "prompt_tokens": 42,
            "completion_tokens": 10,
            "total_tokens": 52,
            "prompt_tokens_details": {"cached_tokens": 30},
        }
        timings = reply["timings"]
        assert (timings["cache_n"], timings["prompt_n"], timings["predicted_n"]) == (30, 12, 10)
        assert (timings["draft_n"], timings["draft_n_accepted"]) == (15, 6)
        assert timings["prompt_ms"] == pytest.approx(400, abs=50)
        assert timings["prompt_per_second"] == pytest.approx(30, rel=0.2)
        assert timings["predicted_ms"] == pytest.approx(200)
        assert timings["predicted_per_token_ms"] == pytest.approx(20)
        assert timings["predicted_per_second"] == pytest.approx(50)
        assert reply["metrics"]["speculative_decoding"] == {
            "num_spec_steps": 3,
            "num_draft_tokens": 15,
            "num_accepted_draft_tokens": 6,
            "draft_acceptance_rate": 0.4,
            "mean_acceptance_length": 3.0,
            "acceptance_histogram": [0, 0, 3],
            "acceptance_rate_per_position": [1.0, 1.0],
        }

    @pytest.mark.parametrize(
        ("reason", "told"),
        [(FinishReason.STOP, "stop"), (FinishReason.LENGTH, "length"), (FinishReason.CONTEXT_FULL, "length")],
    )
    async def test_why_it_ended(
        self, client: HttpClient, engine: ScriptedEngine, reason: FinishReason, told: str
    ) -> None:
        engine.replies.append(complete("Hi", reason=reason))
        reply = (await client.post(URL, {"messages": MESSAGES})).json
        assert reply["choices"][0]["finish_reason"] == told

    async def test_text_that_was_held_back_until_the_end(self, client: HttpClient, engine: ScriptedEngine) -> None:
        engine.replies.append([*begun(), step("Hi"), finished(text="!")])
        reply = (await client.post(URL, {"messages": MESSAGES})).json
        assert reply["choices"][0]["message"]["content"] == "Hi!"

    async def test_the_alias_is_the_models_name(self, service: EngineService, engine: ScriptedEngine) -> None:
        client = HttpClient(create_app(service, ServerSettings(model_alias="mine")))
        assert (await ask(client, engine, model="gpt-4o")).json["model"] == "mine"

    async def test_the_short_path(self, client: HttpClient, engine: ScriptedEngine) -> None:
        engine.replies.append(complete("Hi"))
        assert (await client.post("/chat/completions", {"messages": MESSAGES})).status == 200


class TestStream:
    async def test_chunks(self, client: HttpClient, engine: ScriptedEngine) -> None:
        exchange = await ask(client, engine, "Hi", "", " there", stream=True)
        assert exchange.headers["content-type"].startswith("text/event-stream")
        *chunks, done = exchange.data
        assert done == "[DONE]"
        for chunk in chunks:
            assert chunk["object"] == "chat.completion.chunk"
            assert chunk["id"] == chunks[0]["id"]
            assert chunk["id"].startswith("chatcmpl-")
            assert (chunk["created"], chunk["model"]) == (chunks[0]["created"], LOADED.target_name)
            assert "usage" not in chunk
        choices = [chunk["choices"][0] for chunk in chunks]
        assert [choice["delta"] for choice in choices] == [
            {"role": "assistant", "content": ""},
            {"content": "Hi"},
            {"content": " there"},
            {},
        ]
        assert [choice["finish_reason"] for choice in choices] == [None, None, None, "stop"]
        assert ["timings" in chunk and "metrics" in chunk for chunk in chunks] == [False, False, False, True]

    async def test_the_usage_chunk_where_it_was_asked_for(self, client: HttpClient, engine: ScriptedEngine) -> None:
        exchange = await ask(client, engine, stream=True, stream_options={"include_usage": True})
        *chunks, last, done = exchange.data
        assert done == "[DONE]"
        assert [chunk["usage"] for chunk in chunks] == [None] * len(chunks)
        assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
        assert last["choices"] == []
        assert last["usage"]["total_tokens"] == 52
        assert last["timings"]["draft_n"] == 15
        assert last["metrics"]["speculative_decoding"]["num_draft_tokens"] == 15
        assert not any("timings" in chunk for chunk in chunks)

    async def test_numbers_while_it_is_written_where_they_were_asked_for(
        self, client: HttpClient, engine: ScriptedEngine
    ) -> None:
        progress = [Prefilling("", done, 42, 30) for done in (36, 42)]
        steps = [step("Hi", n_tokens=4, n_drafted=3, n_accepted=2), step(""), step(" there", n_tokens=9)]
        engine.replies.append([*begun(), *progress, *steps, finished()])
        body = {"messages": MESSAGES, "stream": True, "timings_per_token": True, "return_progress": True}
        exchange = await client.post(URL, body)
        *chunks, _ = exchange.data
        read = [chunk["prompt_progress"] for chunk in chunks if "prompt_progress" in chunk]
        told = [(each["cache"], each["processed"], each["total"]) for each in read]
        assert told == [(30, 30, 42), (30, 36, 42), (30, 42, 42)]
        assert read[0]["time_ms"] == 0
        written = [chunk["timings"] for chunk in chunks if chunk["choices"][0]["delta"].get("content")]
        assert [timings["predicted_n"] for timings in written] == [4, 9]
        assert (written[0]["draft_n"], written[0]["draft_n_accepted"]) == (3, 2)
        assert [chunk for chunk in chunks if "prompt_progress" in chunk and "timings" in chunk] == []

    async def test_several_choices_keep_their_index(self, client: HttpClient, engine: ScriptedEngine) -> None:
        exchange = client.start("POST", URL, {"messages": MESSAGES, "stream": True, "n": 2})
        await exchange.until(b": keep-alive")
        engine.play([*begun(), step("b1")], request=1)
        engine.play([*begun(), step("a1"), finished()], request=0)
        engine.play([step("b2"), finished()], request=1)
        await exchange.finish()
        *chunks, done = exchange.data
        assert done == "[DONE]"
        texts = {0: "", 1: ""}
        ends = []
        for chunk in chunks:
            (choice,) = chunk["choices"]
            texts[choice["index"]] += choice["delta"].get("content", "")
            ends += [choice["index"]] * (choice["finish_reason"] is not None)
        assert texts == {0: "a1", 1: "b1b2"}
        assert ends == [0, 1]
        assert "timings" not in chunks[-3]
        assert chunks[-1]["timings"]["predicted_n"] == 20


class TestChoices:
    async def test_as_many_as_asked_for_with_seeds_of_their_own(
        self, client: HttpClient, engine: ScriptedEngine
    ) -> None:
        engine.replies.extend([complete("a"), complete("b"), complete("c")])
        reply = (await client.post(URL, {"messages": MESSAGES, "n": 3, "seed": 5})).json
        assert [choice["message"]["content"] for choice in reply["choices"]] == ["a", "b", "c"]
        assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2]
        seeds = [request.sampling.seed for request in engine.requests]
        assert seeds[0] == 5
        assert len(set(seeds)) == 3
        assert reply["usage"]["prompt_tokens"] == 42  # they share it
        assert reply["usage"]["completion_tokens"] == 30

    async def test_without_a_seed_each_draws_its_own(self, client: HttpClient, engine: ScriptedEngine) -> None:
        engine.replies.extend([complete("a"), complete("b")])
        await client.post(URL, {"messages": MESSAGES, "n": 2, "seed": -1})
        assert [request.sampling.seed for request in engine.requests] == [None, None]

    async def test_more_than_ever_run_are_refused(self, client: HttpClient, engine: ScriptedEngine) -> None:
        refused = await client.post(URL, {"messages": MESSAGES, "n": 5})
        assert (refused.status, engine.requests) == (400, [])
        assert "5 replies" in refused.error["message"]


def logprob(text: str | bytes, value: float, *others: tuple[str, float]) -> TokenLogprobs:
    chosen = chance(text, value)
    return TokenLogprobs(chosen, tuple(chance(other, at) for other, at in others))


class TestLogprobs:
    STEPS: tuple[StepDecoded, ...] = (
        step("H", logprobs=[logprob("H", -0.5, ("H", -0.5), ("J", -1.5))]),
        step("", logprobs=[logprob(b"\xc3", -1.0)]),
        step("ö", logprobs=[logprob(b"\xb6", -math.inf)]),
    )

    async def test_in_a_whole_reply(self, client: HttpClient, engine: ScriptedEngine) -> None:
        engine.replies.append([*begun(), *self.STEPS, finished()])
        body = {"messages": MESSAGES, "logprobs": True, "top_logprobs": 2}
        reply = (await client.post(URL, body)).json
        content = reply["choices"][0]["logprobs"]["content"]
        assert content[0] == {
            "token": "H",
            "logprob": -0.5,
            "bytes": [72],
            "top_logprobs": [
                {"token": "H", "logprob": -0.5, "bytes": [72]},
                {"token": "J", "logprob": -1.5, "bytes": [74]},
            ],
        }
        assert [token["bytes"] for token in content[1:]] == [[0xC3], [0xB6]]
        assert content[2]["logprob"] == -9999.0  # JSON has no infinity
        assert engine.requests[-1].n_logprobs == 2

    async def test_in_a_stream_every_token_is_told_once(self, client: HttpClient, engine: ScriptedEngine) -> None:
        engine.replies.append([*begun(), *self.STEPS, finished()])
        body = {"messages": MESSAGES, "logprobs": True, "stream": True}
        exchange = await client.post(URL, body)
        told = [
            token["bytes"][0]
            for chunk in exchange.data[:-1]
            for token in (chunk["choices"][0]["logprobs"] or {"content": []})["content"]
        ]
        assert told == [72, 0xC3, 0xB6]
        assert engine.requests[-1].n_logprobs == 0

    async def test_none_unless_asked_for(self, client: HttpClient, engine: ScriptedEngine) -> None:
        assert (await asked(client, engine)).n_logprobs is None

    async def test_alternatives_need_logprobs(self, client: HttpClient) -> None:
        refused = await client.post(URL, {"messages": MESSAGES, "top_logprobs": 2})
        assert (refused.status, refused.error["param"]) == (400, "top_logprobs")


class TestWhatTheEngineIsAsked:
    async def test_messages(self, client: HttpClient, engine: ScriptedEngine) -> None:
        call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
        messages = [
            {"role": "developer", "content": "Be brief."},
            {
                "role": "user",
                "content": [{"type": "text", "text": "One"}, {"type": "text", "text": "two"}],
                "name": "X",
            },
            {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "Hm."},
            {"role": "tool", "tool_call_id": "c1", "content": "3"},
        ]
        prompt = (await asked(client, engine, messages=messages)).prompt
        assert isinstance(prompt, ChatPrompt)
        system, user, *_ = prompt.messages
        assert (system.role, system.content) == ("system", "Be brief.")
        assert (user.content, dict(user.more)) == ("One\ntwo", {"name": "X"})
        assert prompt.tools == ()

    async def test_samplers(self, client: HttpClient, engine: ScriptedEngine) -> None:
        given = {
            "temperature": 0.5,
            "top_k": 7,
            "top_p": 0.5,
            "min_p": 0.1,
            "typical_p": 0.9,
            "top_n_sigma": 2.0,
            "xtc_probability": 0.1,
            "xtc_threshold": 0.2,
            "dynatemp_range": 0.1,
            "dynatemp_exponent": 2.0,
            "repeat_penalty": 1.1,
            "repeat_last_n": 32,
            "presence_penalty": 0.25,
            "frequency_penalty": -0.5,
            "dry_multiplier": 0.8,
            "dry_base": 1.5,
            "dry_allowed_length": 3,
            "dry_penalty_last_n": 64,
            "dry_sequence_breakers": ["\n", ";"],
            "seed": 2**63,
        }
        request = await asked(client, engine, **given)
        expected = SamplingParams(**{**given, "dry_sequence_breakers": ("\n", ";")})
        assert request.sampling == expected

    async def test_what_is_not_given_is_the_endpoints(self, service: EngineService, engine: ScriptedEngine) -> None:
        sampling = SamplingParams(temperature=0.1, top_k=3, seed=9)
        settings = ServerSettings(sampling=sampling, mode=Mode.LOOKUP, num_speculative_tokens=4, max_tokens=99)
        client = HttpClient(create_app(service, settings))
        request = await asked(client, engine, top_k=5, temperature=None)
        assert request.sampling == replace(sampling, top_k=5)
        assert (request.mode, request.num_speculative_tokens, request.max_tokens) == (Mode.LOOKUP, 4, 99)

    async def test_speculation(self, service: EngineService, engine: ScriptedEngine) -> None:
        settings = ServerSettings(mode=Mode.DRAFT, num_speculative_tokens=4, fixed_length=True)
        client = HttpClient(create_app(service, settings))
        request = await asked(client, engine)
        assert (request.mode, request.num_speculative_tokens, request.fixed_length) == (Mode.DRAFT, 4, True)
        request = await asked(client, engine, localspec={"mode": "auto", "num_speculative_tokens": 2})
        assert (request.mode, request.num_speculative_tokens, request.fixed_length) == (Mode.AUTO, 2, False)

    @pytest.mark.parametrize(("stop", "expected"), [("a", ("a",)), (["a", "b"], ("a", "b")), ([], ()), (None, ())])
    async def test_stop(self, client: HttpClient, engine: ScriptedEngine, stop: Any, expected: tuple[str, ...]) -> None:
        assert (await asked(client, engine, stop=stop)).stop == expected

    @pytest.mark.parametrize(
        ("fields", "expected"),
        [
            ({}, None),
            ({"max_tokens": 5}, 5),
            ({"max_completion_tokens": 6}, 6),
            ({"max_completion_tokens": 6, "max_tokens": 6}, 6),
            ({"max_tokens": -1}, None),
            ({"max_tokens": 0}, 0),
        ],
    )
    async def test_limits(
        self, client: HttpClient, engine: ScriptedEngine, fields: dict[str, int], expected: int | None
    ) -> None:
        assert (await asked(client, engine, **fields)).max_tokens == expected

    async def test_logit_bias(self, client: HttpClient, engine: ScriptedEngine) -> None:
        request = await asked(client, engine, logit_bias={"15": -100, "16": 1.5, "ab": False})
        ban = -math.inf
        assert request.sampling.logit_bias == ((15, -100.0), (16, 1.5), (ord("a"), ban), (ord("b"), ban))
        assert engine.questions == [Tokenize("ab", add_special=False, parse_special=False)]
        request = await asked(client, engine, logit_bias=[[15, False], ["a", 2]])
        assert request.sampling.logit_bias == ((15, ban), (ord("a"), 2.0))

    async def test_template_variables(self, client: HttpClient, engine: ScriptedEngine) -> None:
        fields = {"chat_template_kwargs": {"enable_thinking": True, "x": [1]}, "reasoning_effort": "low"}
        prompt = (await asked(client, engine, **fields)).prompt
        assert isinstance(prompt, ChatPrompt)
        assert dict(prompt.variables) == {"enable_thinking": True, "x": [1], "reasoning_effort": "low"}
        prompt = (await asked(client, engine, reasoning_effort="none")).prompt
        assert isinstance(prompt, ChatPrompt)
        assert prompt.variables["enable_thinking"] is False

    async def test_cache_and_end(self, client: HttpClient, engine: ScriptedEngine) -> None:
        request = await asked(client, engine, cache_prompt=False, ignore_eos=True)
        assert not request.reuses_cache
        assert request.ignores_end


class TestForms:
    @pytest.mark.parametrize(
        ("form", "expected"),
        [
            ({"type": "text"}, None),
            ({"type": "json_object"}, {"type": "object"}),
            ({"type": "json_object", "schema": SCHEMA}, SCHEMA),
            ({"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}, SCHEMA),
            ({"type": "json_schema", "json_schema": {"name": "x"}}, {"type": "object"}),
        ],
    )
    async def test_response_format(
        self, client: HttpClient, engine: ScriptedEngine, form: dict[str, Any], expected: Any
    ) -> None:
        schema = (await asked(client, engine, response_format=form)).sampling.json_schema
        assert (None if schema is None else json.loads(schema)) == expected

    async def test_grammar(self, client: HttpClient, engine: ScriptedEngine) -> None:
        assert (await asked(client, engine, grammar='root ::= "a"')).sampling.grammar == 'root ::= "a"'
        assert (await asked(client, engine, grammar="")).sampling.grammar is None

    @pytest.mark.parametrize(
        "fields",
        [
            {"grammar": 'root ::= "a"', "json_schema": {"type": "object"}},
            {"grammar": 'root ::= "a"', "response_format": {"type": "json_object"}},
            {"json_schema": {"type": "object"}, "response_format": {"type": "json_object"}},
            {"tools": [WEATHER], "response_format": {"type": "json_object"}},
        ],
    )
    async def test_one_form_at_a_time(self, client: HttpClient, engine: ScriptedEngine, fields: dict[str, Any]) -> None:
        assert (await client.post(URL, {"messages": MESSAGES, **fields})).status == 400
        assert engine.requests == []

    async def test_reasoning_may_come_before_the_form(self, engine: ScriptedEngine, settings: ServerSettings) -> None:
        taught(engine)
        service = EngineService(engine)
        await service.start(PAIR)
        client = HttpClient(create_app(service, settings))
        sampling = (await asked(client, engine, response_format={"type": "json_object"})).sampling
        assert sampling.json_schema is None
        assert sampling.grammar is not None
        assert sampling.grammar.startswith('root ::= ( "\\x3Cthink\\x3E" thought )? space answer\n')
        (schema,) = sampling.grammar_schemas
        assert (schema.rule, json.loads(schema.schema)) == ("answer", {"type": "object"})


class TestToolsAndReasoning:
    @pytest.fixture
    async def client(self, engine: ScriptedEngine, settings: ServerSettings) -> HttpClient:
        taught(engine)
        service = EngineService(engine)
        await service.start(PAIR)
        return HttpClient(create_app(service, settings))

    TEXT = (
        "<think>",
        "Hm.",
        "</think>",
        "Look",
        '<tool_call>\n{"name": "weather", ',
        '"arguments": {"city": "Rome"}}\n',
    )
    TEXT = (*TEXT, "</tool_call>")

    async def test_a_whole_reply(self, client: HttpClient, engine: ScriptedEngine) -> None:
        (choice,) = (await ask(client, engine, *self.TEXT, tools=[WEATHER])).json["choices"]
        assert choice["finish_reason"] == "tool_calls"
        message = choice["message"]
        assert message["reasoning_content"] == "Hm."
        assert message["content"] == "Look"
        (call,) = message["tool_calls"]
        assert (call["type"], call["function"]["name"]) == ("function", "weather")
        assert json.loads(call["function"]["arguments"]) == {"city": "Rome"}
        assert call["id"]
        sampling = engine.requests[-1].sampling
        assert sampling.grammar
        assert sampling.grammar_triggers

    async def test_a_stream(self, client: HttpClient, engine: ScriptedEngine) -> None:
        exchange = await ask(client, engine, *self.TEXT, tools=[WEATHER], stream=True)
        choices = [chunk["choices"][0] for chunk in exchange.data[:-1]]
        assert choices[-1]["finish_reason"] == "tool_calls"
        deltas = [choice["delta"] for choice in choices]
        assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "Hm."
        assert "".join(delta.get("content", "") for delta in deltas) == "Look"
        calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
        assert calls[0]["function"]["name"] == "weather"
        assert calls[0]["id"]
        assert all(call["index"] == 0 for call in calls)
        assert [key for call in calls[1:] for key in call] == ["index", "function"] * (len(calls) - 1)
        arguments = "".join(call["function"]["arguments"] for call in calls)
        assert json.loads(arguments) == {"city": "Rome"}

    async def test_a_call_without_words_has_no_content(self, client: HttpClient, engine: ScriptedEngine) -> None:
        text = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
        reply = (await ask(client, engine, text, tools=[WEATHER])).json
        assert reply["choices"][0]["message"]["content"] is None

    async def test_none_may_be_called(self, client: HttpClient, engine: ScriptedEngine) -> None:
        (choice,) = (await ask(client, engine, *self.TEXT, tools=[WEATHER], tool_choice="none")).json["choices"]
        assert choice["finish_reason"] == "stop"
        assert "tool_calls" not in choice["message"]
        assert engine.requests[-1].sampling.grammar is None

    async def test_a_call_that_is_due(self, client: HttpClient, engine: ScriptedEngine) -> None:
        await ask(client, engine, *self.TEXT, tools=[WEATHER], tool_choice="required")
        assert engine.requests[-1].sampling.grammar_triggers == ()

    async def test_reasoning_left_in_the_content(self, client: HttpClient, engine: ScriptedEngine) -> None:
        reply = (await ask(client, engine, "<think>Hm.</think>Hi", reasoning_format="none")).json
        assert reply["choices"][0]["message"]["content"] == "<think>Hm.</think>Hi"

    async def test_a_prompt_that_ends_inside_of_reasoning(self, client: HttpClient, engine: ScriptedEngine) -> None:
        engine.answers = lambda _: "<assistant><think>\n"
        message = (await ask(client, engine, "Hm.", "</think>", "Hi")).json["choices"][0]["message"]
        assert (message["reasoning_content"], message["content"]) == ("Hm.", "Hi")


async def test_a_template_that_refuses_the_messages(client: HttpClient, engine: ScriptedEngine) -> None:
    error = ChatTemplateError("The chat template failed: roles must alternate.")
    engine.replies.append([begun()[0], Failed("", error)])
    refused = await client.post(URL, {"messages": MESSAGES})
    assert (refused.status, refused.error["code"]) == (400, "chat_template_failed")
    assert "roles must alternate" in refused.error["message"]
