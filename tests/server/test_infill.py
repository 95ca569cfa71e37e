"""POST /infill over a scripted engine: what it needs, and what it refuses. Editors' own requests: see there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from localspec.engine.events import FinishReason
from localspec.engine.requests import ExtraFile, InfillPrompt
from tests.server.native_endpoint import native_endpoint
from tests.server.scripted_engine import FACTS, LOADED, begun, complete, finished

GAP = {"input_prefix": "a", "input_suffix": "b"}


async def test_a_stream_has_the_shape_of_a_completions() -> None:
    async with native_endpoint() as endpoint:
        endpoint.engine.replies.append(complete("x", "y"))
        exchange = await endpoint.post("/infill", {**GAP, "stream": True})
    assert [data["content"] for data in exchange.data] == ["x", "y", ""]
    assert exchange.data[-1]["stop"] is True


async def test_context_without_a_name_has_llama_cpps() -> None:
    async with native_endpoint() as endpoint:
        endpoint.engine.replies.append(complete("x"))
        body = {**GAP, "input_extra": [{"text": "t"}, {"text": "u", "filename": "u.py", "time": {"any": "thing"}}]}
        assert (await endpoint.post("/infill", body)).status == 200
    assert endpoint.asked.prompt == InfillPrompt("a", "b", "", (ExtraFile("tmp", "t"), ExtraFile("u.py", "u")))


async def test_a_warm_up_may_be_streamed() -> None:
    async with native_endpoint() as endpoint:
        endpoint.engine.replies.append([*begun(), finished(reason=FinishReason.LENGTH)])
        exchange = await endpoint.post("/infill", {**GAP, "n_predict": 0, "stream": True})
    [answer] = exchange.data
    assert (answer["content"], answer["stop"], answer["stop_type"]) == ("", True, "limit")


async def test_a_model_without_the_marks_says_so() -> None:
    loaded = replace(LOADED, about=replace(FACTS, fills_in=False))
    async with native_endpoint(loaded) as endpoint:
        exchange = await endpoint.post("/infill", GAP)
    assert exchange.status == 400
    assert exchange.error["type"] == "not_supported_error"
    assert "fill-in-the-middle" in exchange.error["message"]
    assert not endpoint.engine.requests


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input_suffix": "b"}, "input_prefix"),
        ({"input_prefix": "a"}, "input_suffix"),
        ({**GAP, "input_prefix": ["a"]}, "input_prefix"),
        ({**GAP, "prompt": [1]}, "prompt"),
        ({**GAP, "input_extra": {}}, "input_extra"),
        ({**GAP, "input_extra": [{"filename": "a"}]}, "input_extra.0.text"),
        ({**GAP, "input_extra": [{"text": 1}]}, "input_extra.0.text"),
        ({**GAP, "input_extra": [{"text": "a", "nope": 1}]}, "input_extra.0.nope"),
        ({**GAP, "input_extra": [{"text": ""}] * 1025}, "input_extra"),
        ({**GAP, "suffix": "b"}, "suffix"),
        ({**GAP, "mirostat": 1}, "mirostat"),
    ],
)
async def test_what_is_no_gap_is_refused(body: dict[str, Any], param: str) -> None:
    async with native_endpoint() as endpoint:
        exchange = await endpoint.post("/infill", body)
    assert exchange.status == 400
    assert exchange.error["param"] == param
    assert not endpoint.engine.requests


async def test_before_a_model_is_loaded() -> None:
    async with native_endpoint(is_loading=True) as endpoint:
        exchange = await endpoint.post("/infill", GAP)
    assert (exchange.status, exchange.error["code"]) == (503, "loading")
