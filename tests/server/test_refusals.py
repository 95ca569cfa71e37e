"""What is refused: by name, with the right status, as OpenAI's error object, without a word about this program."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localspec.errors import (
    BusyError,
    ContextFullError,
    EngineDiedError,
    EngineError,
    LocalspecError,
    ModelFileError,
    RequestTimeoutError,
    ShuttingDownError,
    StillLoadingError,
    UnsupportedModelError,
    UsageError,
)
from localspec.server.app import create_app
from localspec.server.errors import error_body, error_response
from localspec.server.service import EngineService
from localspec.server.settings import ServerSettings
from tests.server.http_client import Exchange, HttpClient
from tests.server.scripted_engine import PAIR, ScriptedEngine, complete

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "Hello"}]


def check_shape(exchange: Exchange) -> None:
    assert set(exchange.json) == {"error"}
    assert set(exchange.error) == {"message", "type", "param", "code"}
    assert exchange.error["message"]
    assert exchange.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"functions": []}, "functions", "unknown_parameter"),
        ({"function_call": "auto"}, "function_call", "unknown_parameter"),
        ({"audio": {"voice": "x"}}, "audio", "unknown_parameter"),
        ({"prediction": {"type": "content"}}, "prediction", "unknown_parameter"),
        ({"web_search_options": {}}, "web_search_options", "unknown_parameter"),
        ({"nonsense": 1}, "nonsense", "unknown_parameter"),
        ({"mirostat": 2}, "mirostat", "unknown_parameter"),
        ({"stream_options": {"nonsense": 1}}, "stream_options.nonsense", "unknown_parameter"),
        ({"localspec": {"nonsense": 1}}, "localspec.nonsense", "unknown_parameter"),
        ({"localspec": {"mode": "fast"}}, "localspec.mode", "invalid_value"),
        ({"localspec": {"num_speculative_tokens": 33}}, "localspec.num_speculative_tokens", "invalid_value"),
        ({"store": True}, "store", "invalid_value"),
        ({"modalities": ["audio"]}, "modalities.0", "invalid_value"),
        ({"temperature": -1}, "temperature", "invalid_value"),
        ({"temperature": "hot"}, "temperature", "invalid_type"),
        ({"temperature": True}, "temperature", "invalid_type"),
        ({"top_p": 1.5}, "top_p", "invalid_value"),
        ({"top_k": 1.5}, "top_k", "invalid_type"),
        ({"seed": -2}, "seed", "invalid_value"),
        ({"max_tokens": -2}, "max_tokens", "invalid_value"),
        ({"max_tokens": 1, "max_completion_tokens": 2}, "max_completion_tokens", "invalid_value"),
        ({"n": 0}, "n", "invalid_value"),
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs", "invalid_value"),
        ({"stop": ["x"] * 17}, "stop", "invalid_value"),
        ({"stop": ""}, "stop", "invalid_value"),
        ({"stream": "yes"}, "stream", "invalid_type"),
        ({"logit_bias": {"1": True}}, "logit_bias", "invalid_value"),
        ({"logit_bias": {"99999": 1}}, "logit_bias", "invalid_value"),
        ({"logit_bias": [[True, 1]]}, "logit_bias", "invalid_value"),
        ({"response_format": {"type": "xml"}}, "response_format.type", "invalid_value"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "missing_required_parameter"),
        ({"response_format": {"type": "text", "schema": {}}}, "response_format.schema", "invalid_value"),
        ({"reasoning_format": "deepseek-legacy"}, "reasoning_format", "invalid_value"),
        ({"messages": []}, "messages", "invalid_value"),
        ({"messages": None}, "messages", "missing_required_parameter"),
        ({"messages": [{"role": "function", "content": "x"}]}, "messages.0.role", "invalid_value"),
        ({"messages": [{"content": "x"}]}, "messages.0", "invalid_value"),
        ({"messages": [{"role": "user"}]}, "messages.0.content", "missing_required_parameter"),
        ({"messages": [{"role": "user", "content": 1}]}, "messages.0.content", "invalid_type"),
        ({"messages": [{"role": "user", "content": "x", "user": 1}]}, "messages.0.user", "unknown_parameter"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "messages.0.content.0.image_url",
            "unknown_parameter",
        ),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.tool_call_id", "missing_required_parameter"),
        ({"tools": [{"type": "web_search"}]}, None, None),
        ({"tool_choice": "required"}, None, None),
        ({"a[b]": 1}, "a[b]", "unknown_parameter"),
    ],
)
async def test_fields_of_a_chat(
    client: HttpClient, engine: ScriptedEngine, fields: dict[str, Any], param: str | None, code: str | None
) -> None:
    refused = await client.post(CHAT, {"messages": MESSAGES, **fields})
    assert refused.status == 400
    check_shape(refused)
    assert (refused.error["param"], refused.error["code"]) == (param, code), refused.error
    assert refused.error["type"] == "invalid_request_error"
    if param is not None:
        assert param in refused.error["message"]
    assert engine.requests == []


async def test_null_is_not_given(client: HttpClient, engine: ScriptedEngine) -> None:
    engine.replies.append(complete("Hi"))
    fields = dict.fromkeys(["functions", "logit_bias", "stop", "temperature", "tools", "audio", "response_format"])
    assert (await client.post(CHAT, {"messages": MESSAGES, **fields})).status == 200


async def test_labels_are_accepted(client: HttpClient, engine: ScriptedEngine) -> None:
    engine.replies.append(complete("Hi"))
    labels = {
        "user": "me",
        "metadata": {"a": "b"},
        "store": False,
        "service_tier": "auto",
        "safety_identifier": "x",
        "prompt_cache_key": "y",
        "modalities": ["text"],
        "parallel_tool_calls": True,
    }
    assert (await client.post(CHAT, {"messages": MESSAGES, **labels})).status == 200


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nothing", 404, "not_found"),
        ("GET", CHAT, 405, "method_not_allowed"),
        ("GET", "/v1/models/gpt-4o", 404, "not_found"),
    ],
)
async def test_paths(client: HttpClient, method: str, path: str, status: int, code: str) -> None:
    refused = await client.start(method, path).finish()
    assert (refused.status, refused.error["code"]) == (status, code)
    check_shape(refused)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b'{"messages": NaN}',
        b'{"messages": 1e999}',
        b"\xff",
        b'{"messages": "\\ud800"}',
        b'{"\\ud800": 1}',
        b"[" * 100_000,
        b'{"n": ' + b"9" * 5000 + b"}",
        b'{"messages": [{"role": "user", "content": "x"}], "temperature": NaN}',
        b'{"messages": [{"role": "user", "content": "x"}], "json_schema": {"a": Infinity}}',
        b'{"messages": [{"role": "user", "content": "x"}], "logit_bias": {"1": Infinity}}',
        b'{"messages": [{"role": "user", "content": "x"}], "logit_bias": {"1": 1' + b"0" * 400 + b"}}",
    ],
)
@pytest.mark.parametrize("is_protected", [True, False])
async def test_bodies_that_are_none(
    client: HttpClient, service: EngineService, engine: ScriptedEngine, raw: bytes, is_protected: bool
) -> None:
    if not is_protected:
        client = HttpClient(create_app(service, ServerSettings()))
    refused = await client.post(CHAT, raw=raw)
    assert refused.status == 400
    check_shape(refused)
    assert "Traceback" not in refused.error["message"]
    assert engine.requests == []


_WORDS = ["messages", "prompt", "role", "user", "content", "type", "text", "stop", "logit_bias", "tools", "function"]
_WORDS += ["name", "parameters", "n", "stream", "localspec", "mode", "response_format", "tool_choice", "seed", "input"]
_LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
_JSON = st.recursive(
    _LEAVES | st.sampled_from(_WORDS),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(_WORDS), inner, max_size=5),
    max_leaves=20,
)
_PATHS = [CHAT, "/v1/completions", "/v1/responses", "/v1/embeddings", "/completion", "/infill", "/tokenize"]
_PATHS += ["/detokenize", "/apply-template"]


@given(st.sampled_from(_PATHS), st.dictionaries(st.sampled_from(_WORDS), _JSON, max_size=6), st.booleans())
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_body_makes_the_endpoint_fail(path: str, body: dict[str, Any], has_messages: bool) -> None:
    import asyncio

    async def send() -> None:
        engine = ScriptedEngine()
        service = EngineService(engine, n_parallel=128, request_timeout_s=5)
        await service.start(PAIR)
        engine.replies.extend(complete("Hi") for _ in range(200))
        whole = {"messages": MESSAGES, "prompt": "Hi", "input": "Hi", **body} if has_messages else body
        answer = await HttpClient(create_app(service, ServerSettings())).post(path, whole)
        assert answer.status is not None
        assert answer.status < 500 or answer.error["type"] == "not_supported_error", (path, whole, answer.body)
        assert b"/secret" not in answer.body
        assert b"Traceback" not in answer.body
        if answer.status >= 400:
            assert "message" in answer.error
        await service.stop(0)

    asyncio.run(send())


@pytest.mark.parametrize(
    ("error", "status", "kind", "code"),
    [
        (UsageError("x"), 400, "invalid_request_error", None),
        (ContextFullError.for_prompt(9, 8), 400, "invalid_request_error", "context_length_exceeded"),
        (UnsupportedModelError("x"), 400, "invalid_request_error", "model_not_capable"),
        (BusyError("x", retry_after_s=1.2), 429, "rate_limit_error", "queue_full"),
        (RequestTimeoutError("x"), 504, "timeout_error", "request_timeout"),
        (StillLoadingError("x"), 503, "unavailable_error", "loading"),
        (ShuttingDownError("x"), 503, "unavailable_error", "shutting_down"),
        (EngineDiedError("x"), 500, "server_error", "engine_died"),
        (EngineError("x"), 500, "server_error", None),
        (ModelFileError("x"), 500, "server_error", None),
    ],
)
def test_kinds(error: LocalspecError, status: int, kind: str, code: str | None) -> None:
    response = error_response(error)
    assert response.status_code == status
    body = json.loads(bytes(response.body))["error"]
    assert (body["type"], body["code"]) == (kind, code)
    assert ("retry-after" in response.headers) == (status in (429, 503) and not isinstance(error, ShuttingDownError))


def test_hints_are_told_and_what_failed_inside_is_not() -> None:
    assert error_body(UsageError("No.", hint="Yes."))["error"]["message"] == "No. Yes."
    for error in (EngineError("at /secret/x", hint="see /secret"), ModelFileError("/secret/x.gguf: gone")):
        assert "secret" not in json.dumps(error_body(error))
