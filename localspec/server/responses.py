"""POST /v1/responses: OpenAI's newer form of a chat, by items and events. Nothing is kept between requests."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterable
from typing import Any

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from localspec.engine.requests import GenerateRequest
from localspec.errors import LocalspecError
from localspec.server.chat_request import reply_limit
from localspec.server.chat_turn import chat_turn
from localspec.server.replies import Reply
from localspec.server.response_events import Event, ResponseEvents, new_id
from localspec.server.response_prompt import messages_of
from localspec.server.response_reply import ResponseReply
from localspec.server.response_request import ResponseRequest
from localspec.server.service import EngineService, RequestInfo
from localspec.server.settings import ServerSettings
from localspec.server.state import Service, Settings, model_name
from localspec.server.streaming import CLIENT_GONE, sse, stream, unless_disconnected

__all__ = ["router"]

router = APIRouter(tags=["responses"])


@router.post("/v1/responses", response_model=None)
@router.post("/responses", response_model=None)
async def create_response(request: Request, body: ResponseRequest, service: Service, settings: Settings) -> Response:
    """Reply to a chat, as a whole or as a stream of events."""
    body.refuse_what_is_kept()
    turn = await chat_turn(
        service,
        messages_of(body.input, body.instructions),
        tools=body.tools or (),
        tool_choice=body.tool_choice,
        parallel_tool_calls=body.parallel_tool_calls,
        variables=body.template_variables(),
    )
    schema = body.json_schema_of_text()
    sampling = turn.constrained(await body.sampling_params(service, settings, json_schema=schema))
    asked = GenerateRequest(
        turn.prompt,
        sampling,
        max_tokens=reply_limit(settings.max_tokens, max_output_tokens=body.max_output_tokens),
        n_logprobs=body.n_logprobs,
        shown_tokens=turn.markers,
        **body.speculation(settings),
    )
    events = ResponseEvents(_head(body, asked, service, settings))
    engine_reply = service.generate(asked, RequestInfo.of(request.url.path, asked, is_streamed=body.stream))
    reply = ResponseReply(events, turn.parser(), lambda: engine_reply.queue_s)
    if body.stream:
        return await stream(
            request,
            engine_reply,
            _frames(engine_reply, reply),
            settings.keep_alive_s,
            error_frames=lambda error: _failure(reply, error),
        )
    response = await unless_disconnected(request, engine_reply, _whole(engine_reply, reply))
    return Response(status_code=CLIENT_GONE) if response is None else JSONResponse(response)


@router.get("/v1/responses/{response_id}", response_model=None)
@router.delete("/v1/responses/{response_id}", response_model=None)
async def no_response(response_id: str) -> Response:  # noqa: ARG001 - the path has it
    """Of an earlier response: there is none."""
    raise HTTPException(404, "This server keeps no responses")


def _head(
    body: ResponseRequest, asked: GenerateRequest, service: EngineService, settings: ServerSettings
) -> dict[str, Any]:
    """What is known of a response before it begins."""
    return {
        "id": new_id("resp"),
        "object": "response",
        "created_at": int(time.time()),
        "model": model_name(service, settings),
        **body.echo(),
        "temperature": asked.sampling.temperature,
        "top_p": asked.sampling.top_p,
        "presence_penalty": asked.sampling.presence_penalty,
        "frequency_penalty": asked.sampling.frequency_penalty,
    }


async def _whole(engine_reply: Reply, reply: ResponseReply) -> dict[str, Any]:
    async for event in engine_reply:
        reply.read(event)
    return reply.response


async def _frames(engine_reply: Reply, reply: ResponseReply) -> AsyncGenerator[bytes, None]:
    yield _written(reply.start())
    async for event in engine_reply:
        if told := reply.read(event):
            yield _written(told)


def _failure(reply: ResponseReply, error: LocalspecError) -> bytes:
    return _written(reply.fail(error))


def _written(events: Iterable[Event]) -> bytes:
    return b"".join(sse(event, event["type"]) for event in events)
