"""The requests of editors as they send them, byte for byte: each field is taken, and what they read is there.

llama.vim (autoload/llama.vim), llama.vscode (src/llama-server.ts), Continue (core/llm/llms/LlamaCpp.ts) and Zed
(crates/llama_cpp), at their defaults.
"""

from __future__ import annotations

from typing import Any

import pytest

from localspec.engine.events import FinishReason, RequestEvent
from localspec.engine.requests import ExtraFile, InfillPrompt, LineLimits, RawPrompt, SamplingParams
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
