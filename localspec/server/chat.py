"""POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from localspec.engine.events import Prefilling, StepDecoded
from localspec.engine.requests import GenerateRequest
from localspec.server.chat_choice import ChatChoice
from localspec.server.chat_messages import turn_of
from localspec.server.chat_request import ChatRequest, reply_limit
from localspec.server.chat_turn import ChatTurn, chat_turn
from localspec.server.replies import Replies
from localspec.server.reply_head import ReplyHead, statistics_of
from localspec.server.sampling import seed_of_choice, stop_strings
from localspec.server.service import EngineService, RequestInfo
from localspec.server.settings import ServerSettings
from localspec.server.state import Service, Settings
from localspec.server.statistics import timings
from localspec.server.streaming import CLIENT_GONE, DONE, sse, stream, unless_disconnected

__all__ = ["router"]

router = APIRouter(tags=["chat"])


@router.post("/v1/chat/completions", response_model=None)
@router.post("/chat/completions", response_model=None)
async def chat_completions(request: Request, body: ChatRequest, service: Service, settings: Settings) -> Response:
    """Reply to a chat, as a whole or as a stream."""
    turn = await chat_turn(
        service,
        [turn_of(message) for message in body.messages],
        tools=body.tools,
        tool_choice=body.tool_choice,
        parallel_tool_calls=body.parallel_tool_calls,
        variables=body.template_variables(),
        tells_reasoning=body.reasoning_format != "none",
    )
    requests = await _requests(body, turn, service, settings)
    head = ReplyHead.new("chatcmpl", service, settings)
    info = RequestInfo.of(request.url.path, requests[0], is_streamed=body.stream)
    replies = service.generate_all(requests, info)
    choices = [ChatChoice(index, turn.parser(), tells_logprobs=body.logprobs) for index in range(body.n)]
    if body.stream:
        return await stream(request, replies, _frames(head, replies, choices, body), settings.keep_alive_s)
    completion = await unless_disconnected(request, replies, _completion(head, replies, choices))
    return Response(status_code=CLIENT_GONE) if completion is None else JSONResponse(completion)


async def _requests(
    body: ChatRequest, turn: ChatTurn, service: EngineService, settings: ServerSettings
) -> list[GenerateRequest]:
    """One for each choice."""
    schema = body.response_format.wanted_schema() if body.response_format is not None else None
    sampling = turn.constrained(await body.sampling_params(service, settings, json_schema=schema))
    limit = reply_limit(
        settings.max_tokens, max_completion_tokens=body.max_completion_tokens, max_tokens=body.max_tokens
    )
    return [
        GenerateRequest(
            turn.prompt,
            replace(sampling, seed=seed_of_choice(sampling.seed, index)),
            max_tokens=limit,
            stop=stop_strings(body.stop),
            n_logprobs=body.n_logprobs(),
            ignores_end=body.ignore_eos,
            reuses_cache=body.cache_prompt,
            shown_tokens=turn.markers,
            **body.speculation(settings),
        )
        for index in range(body.n)
    ]


async def _completion(head: ReplyHead, replies: Replies, choices: Sequence[ChatChoice]) -> dict[str, Any]:
    async for index, event in replies:
        for _ in choices[index].read(event):
            pass  # the choice keeps it
    told = [choice.message() for choice in choices]
    return {
        **head.told("chat.completion"),
        "choices": told,
        **statistics_of([each.metrics for each in choices], replies),
    }


async def _frames(
    head: ReplyHead, replies: Replies, choices: Sequence[ChatChoice], body: ChatRequest
) -> AsyncGenerator[bytes, None]:
    """Chunks; the statistics are in the last one, which is the usage chunk where that was asked for."""
    common = head.told("chat.completion.chunk")
    includes_usage = body.stream_options is not None and body.stream_options.include_usage
    if includes_usage:
        common["usage"] = None

    def chunk(choice: ChatChoice, delta: dict[str, Any], **more: Any) -> bytes:
        told = {
            "index": choice.index,
            "delta": delta,
            "logprobs": choice.take_logprobs(),
            "finish_reason": choice.finish_reason,
        }
        return sse({**common, "choices": [told], **more})

    yield b"".join(chunk(choice, {"role": "assistant", "content": ""}) for choice in choices)
    n_open = len(choices)
    async for index, event in replies:
        choice = choices[index]
        if body.return_progress and isinstance(event, Prefilling):
            yield chunk(choice, {}, prompt_progress=choice.progress(event))
        so_far: dict[str, Any] = {}
        if body.timings_per_token and isinstance(event, StepDecoded):
            so_far["timings"] = timings(event.metrics, replies.queue_s[index] or 0.0)
        for delta in choice.read(event):
            yield chunk(choice, delta, **so_far)
        if choice.finish_reason is not None:
            n_open -= 1
            ends = n_open == 0 and not includes_usage
            statistics = statistics_of([each.metrics for each in choices], replies) if ends else {}
            statistics.pop("usage", None)
            yield chunk(choice, {}, **statistics)
    if includes_usage:
        yield sse({**common, "choices": [], **statistics_of([each.metrics for each in choices], replies)})
    yield DONE
