"""The requests of editors as they send them, byte for byte: each field is taken, and what they read is there.

llama.vim (autoload/llama.vim), llama.vscode (src/llama-server.ts), Continue (core/llm/llms/LlamaCpp.ts, and its chats
by OpenAI's client), Zed (crates/llama_cpp), Cline (its OpenAI-compatible provider) and aider (by litellm), at their
defaults.
"""

from __future__ import annotations

from typing import Any

import pytest

from localspec.engine.events import FinishReason, RequestEvent
from localspec.engine.requests import ChatPrompt, ExtraFile, InfillPrompt, LineLimits, RawPrompt, SamplingParams
from tests.server.native_endpoint import NativeEndpoint, native_endpoint
from tests.server.scripted_engine import begun, complete, finished

VIM_WARM_UP = (
    rb'{"input_extra":[{"text":"def area(r):\n    return 3.14 * r * r\n","time":[1732999,480212],'
    rb'"filename":"\/home\/me\/shapes.py"}],"samplers":[],"t_max_predict_ms":1,"id_slot":0,"stream":false,'
    rb'"n_predict":0,"temperature":0.0,"response_fields":[""],"input_prefix":"","input_suffix":"","cache_prompt":true,'
    rb'"t_max_prompt_ms":1,"prompt":""}'
)
VIM_FIM = (
    rb'{"input_extra":[],"samplers":["top_k","top_p","infill"],"t_max_predict_ms":250,"id_slot":0,"stream":false,'
    rb'"n_predict":128,"n_indent":4,"top_k":40,"top_p":0.9,"response_fields":["content","timings\/prompt_n",'
    rb'"timings\/prompt_ms","timings\/prompt_per_token_ms","timings\/prompt_per_second","timings\/predicted_n",'
    rb'"timings\/predicted_ms","timings\/predicted_per_token_ms","timings\/predicted_per_second","truncated",'
    rb'"tokens_cached"],"input_prefix":"import math\n\ndef area(r):\n","input_suffix":"\n\nprint(area(2))\n",'
    rb'"stop":[],"cache_prompt":true,"t_max_prompt_ms":500,"prompt":"    return ","model":"qwen"}'
)
VSCODE_WARM_UP = (
    rb'{"id_slot":0,"input_prefix":"","input_suffix":"","input_extra":[{"text":"const a = 1;","time":1764540000000,'
    rb'"filename":"\/home\/me\/a.ts"}],"prompt":"","n_predict":0,"samplers":[],"cache_prompt":true,'
    rb'"t_max_prompt_ms":500,"t_max_predict_ms":1}'
)
VSCODE_FIM = (
    rb'{"id_slot":0,"input_prefix":"function f() {\n","input_suffix":"\n}\n","input_extra":[],"prompt":"  return ",'
    rb'"n_predict":128,"n_cmpl":3,"top_k":40,"top_p":0.99,"stream":false,"samplers":["top_k","top_p","infill"],'
    rb'"cache_prompt":true,"n_indent":2,"t_max_prompt_ms":500,"t_max_predict_ms":1000,"model":"qwen"}'
)
CONTINUE = (
    rb'{"model":"qwen2.5-coder","prompt":"<|fim_prefix|>def f():\n<|fim_suffix|>\n<|fim_middle|>","stream":true,'
    rb'"n_predict":2048,"stop":["<|endoftext|>","<|fim_prefix|>","<|fim_middle|>","<|fim_suffix|>","<|fim_pad|>",'
    rb'"<|repo_name|>","<|file_sep|>","<|im_start|>","<|im_end|>","\/src\/","#- coding: utf-8","```","\ndef ",'
    rb'"\nclass ","\nif ","\nfor ","\nwhile ","\nwith ","\ntry"],"temperature":0.01}'
)
VSCODE_TOKENIZE = rb'{"content":"<|im_start|>user\nhi","add_special":false,"parse_special":true}'
CLINE = (
    rb'{"model":"qwen2.5-coder","messages":[{"role":"system","content":"You are Cline, a software engineer."},'
    rb'{"role":"user","content":[{"type":"text","text":"<task>\nRead a.py\n</task>"},'
    rb'{"type":"text","text":"# Visible files\na.py"}]},{"role":"assistant","content":"I read it.",'
    rb'"tool_calls":[{"id":"call_1","type":"function","function":{"name":"read_file","arguments":"{\"path\":\"a.py\"}"'
    rb'}}]},{"role":"tool","tool_call_id":"call_1","content":"x = 1"}],"temperature":0,"stream":true,'
    rb'"stream_options":{"include_usage":true},"tools":[{"type":"function","function":{"name":"read_file","description":'
    rb'"Reads a file.","strict":false,"parameters":{"type":"object","properties":{"path":{"type":"string",'
    rb'"description":"The path"}},"required":["path"],"additionalProperties":false}}}]}'
)
ZED = (
    rb'{"model":"qwen2.5-coder","messages":[{"role":"system","content":"You are an agent in Zed."},{"role":"user",'
    rb'"content":[{"type":"text","text":"Read a.py"}]}],"stream":true,"stream_options":{"include_usage":true},'
    rb'"max_completion_tokens":4096,"stop":[],"temperature":1.0,"tool_choice":"auto","parallel_tool_calls":false,'
    rb'"tools":[{"type":"function","function":{"name":"read_file","description":"Reads a file.","parameters":'
    rb'{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}}}]}'
)
CONTINUE_CHAT = (
    rb'{"model":"qwen2.5-coder","max_tokens":4096,"stream":true,"stream_options":{"include_usage":true},"messages":['
    rb'{"role":"system","content":"<important_rules>Be brief.</important_rules>"},{"role":"user","content":[{"type":'
    rb'"text","text":"Read a.py"}]}]}'
)
AIDER = (
    rb'{"messages": [{"role": "system", "content": "Act as an expert software developer."}, {"role": "user", '
    rb'"content": "I am not sharing any files yet."}, {"role": "assistant", "content": "Ok."}, '
    rb'{"role": "user", "content": "Read a.py"}], "model": "qwen2.5-coder", "stream": true, '
    rb'"stream_options": {"include_usage": true}, "temperature": 0}'
)


async def sent(endpoint: NativeEndpoint, path: str, raw: bytes, *replies: list[RequestEvent]) -> Any:
    endpoint.engine.replies.extend(replies)
    exchange = await endpoint.post(path, raw=raw)
    assert exchange.status == 200, exchange.body.decode()
    return exchange


@pytest.mark.parametrize("raw", [VIM_WARM_UP, VSCODE_WARM_UP])
async def test_a_warm_up_reads_the_context_and_answers_with_nothing(raw: bytes) -> None:
    async with native_endpoint() as endpoint:
        exchange = await sent(endpoint, "/infill", raw, [*begun(), finished(reason=FinishReason.LENGTH)])
    asked = endpoint.asked
    assert asked.max_tokens == 0
    assert asked.reuses_cache
    assert isinstance(asked.prompt, InfillPrompt)
    assert (asked.prompt.prefix, asked.prompt.suffix, asked.prompt.prompt) == ("", "", "")
    [extra] = asked.prompt.extra
    assert extra in (
        ExtraFile("/home/me/shapes.py", "def area(r):\n    return 3.14 * r * r\n"),
        ExtraFile("/home/me/a.ts", "const a = 1;"),
    )
    if raw is VIM_WARM_UP:
        assert exchange.json == {}
    else:
        assert exchange.json["content"] == ""


async def test_llama_vim_gets_what_it_shows() -> None:
    async with native_endpoint() as endpoint:
        exchange = await sent(endpoint, "/infill", VIM_FIM, complete("3.14 * r", " * r"))
    asked = endpoint.asked
    assert asked.prompt == InfillPrompt("import math\n\ndef area(r):\n", "\n\nprint(area(2))\n", "    return ")
    assert asked.sampling == SamplingParams(top_k=40, top_p=0.9, temperature=1.0, min_p=0.0)
    assert (asked.max_tokens, asked.stop, asked.line_limits) == (128, (), LineLimits(4, 0.25))
    answer = exchange.json
    assert answer["content"] == "3.14 * r * r"
    assert set(answer) == {
        "content",
        "timings/prompt_n",
        "timings/prompt_ms",
        "timings/prompt_per_token_ms",
        "timings/prompt_per_second",
        "timings/predicted_n",
        "timings/predicted_ms",
        "timings/predicted_per_token_ms",
        "timings/predicted_per_second",
        "truncated",
        "tokens_cached",
    }


async def test_llama_vscode_gets_several_completions() -> None:
    async with native_endpoint() as endpoint:
        exchange = await sent(endpoint, "/infill", VSCODE_FIM, complete("1;"), complete("2;"), complete("1;"))
    assert [request.prompt for request in endpoint.engine.requests] == [
        InfillPrompt("function f() {\n", "\n}\n", "  return ")
    ] * 3
    assert [answer["content"] for answer in exchange.json] == ["1;", "2;", "1;"]
    assert exchange.json[0]["timings"]["predicted_n"] == 10
    assert exchange.json[0]["prompt"] == "  return "


async def test_continue_gets_a_stream_of_contents() -> None:
    async with native_endpoint() as endpoint:
        exchange = await sent(endpoint, "/completion", CONTINUE, complete("    return", " 1"))
    asked = endpoint.asked
    assert isinstance(asked.prompt, RawPrompt)
    assert asked.prompt.parse_special, "its templates write the marks themselves"
    assert len(asked.stop) == 19
    assert asked.sampling.temperature == 0.01
    # It yields the content of everything that has some, the last object included.
    assert "".join(data["content"] for data in exchange.data) == "    return 1"


async def test_llama_vscode_counts_tokens_and_reads_the_state() -> None:
    async with native_endpoint() as endpoint:
        exchange = await sent(endpoint, "/tokenize", VSCODE_TOKENIZE)
        assert len(exchange.json["tokens"]) == len("<|im_start|>user\nhi")
        assert (await endpoint.get("/health")).json["status"] == "ok"
        props = (await endpoint.get("/props?model=ggml-org%2Fqwen%3AQ8_0&autoload=false")).json
        assert props["default_generation_settings"]["n_ctx"] == 2048


async def test_zed_reads_what_the_model_can() -> None:
    async with native_endpoint() as endpoint:
        props = (await endpoint.get("/props")).json
    assert props["default_generation_settings"]["n_ctx"] > 0
    assert props["modalities"]["vision"] is False
    assert set(props["chat_template_caps"]) >= {"supports_tools", "supports_tool_calls"}


@pytest.mark.parametrize(
    ("raw", "has_tools"),
    [(CLINE, True), (ZED, True), (CONTINUE_CHAT, False), (AIDER, False)],
    ids=["Cline", "Zed", "Continue", "aider"],
)
async def test_chats_get_a_stream_of_chunks_that_each_say_what_they_are(raw: bytes, has_tools: bool) -> None:
    async with native_endpoint() as endpoint:
        exchange = await sent(endpoint, "/v1/chat/completions", raw, complete("It is", " one."))
    prompt = endpoint.asked.prompt
    assert isinstance(prompt, ChatPrompt)
    assert ("Reads a file." in repr(prompt)) is has_tools
    assert any("a.py" in message.content for message in prompt.messages)
    *chunks, done = exchange.data
    assert done == "[DONE]"
    for chunk in chunks:
        assert chunk["object"] == "chat.completion.chunk"
        assert chunk["id"] == chunks[0]["id"]
        assert chunk["model"]
        assert chunk["created"] > 0
    deltas = [choice for chunk in chunks for choice in chunk["choices"]]
    assert "".join(choice["delta"].get("content") or "" for choice in deltas) == "It is one."
    assert [choice["finish_reason"] for choice in deltas if choice["finish_reason"]] == ["stop"]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] > 0


async def test_an_agents_turns_reach_the_template() -> None:
    async with native_endpoint() as endpoint:
        await sent(endpoint, "/v1/chat/completions", CLINE, complete("Yes."))
    prompt = endpoint.asked.prompt
    assert isinstance(prompt, ChatPrompt)
    # This model's template knows no tools: calls and their results become text of the turns.
    _, user, called, result = prompt.messages
    assert user.content == "<task>\nRead a.py\n</task>\n# Visible files\na.py"
    assert called.role == "assistant"
    assert called.content.startswith("I read it.")
    assert "read_file" in called.content
    assert result.role == "user"
    assert "x = 1" in result.content


async def test_zeds_edit_predictions_are_completions() -> None:
    raw = (
        rb'{"model":"qwen2.5-coder","prompt":"<|fim_prefix|>def f():\n<|fim_suffix|>\n<|fim_middle|>","max_tokens":256,'
        rb'"temperature":0.2,"stop":["<|endoftext|>","<|file_separator|>"]}'
    )
    async with native_endpoint() as endpoint:
        exchange = await sent(endpoint, "/v1/completions", raw, complete("    return 1"))
    assert exchange.json["choices"][0]["text"] == "    return 1"
    assert isinstance(endpoint.asked.prompt, RawPrompt)
    assert endpoint.asked.prompt.parse_special
