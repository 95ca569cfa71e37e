"""`POST /completion`: llama.cpp's own completion, which Continue calls; `/infill` answers through it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from itertools import groupby
from typing import Any, Final, cast

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from localspec.engine.events import Finished
from localspec.engine.requests import GenerateRequest, RawPrompt
from localspec.errors import LocalspecError
from localspec.server.errors import error_body
from localspec.server.generation_settings import generation_settings
from localspec.server.native_answers import NativeReply
from localspec.server.native_prompts import NativePrompts, TextOrTokens
from localspec.server.native_requests import NativeFields
from localspec.server.replies import Replies
from localspec.server.service import EngineService, RequestInfo
from localspec.server.settings import ServerSettings
from localspec.server.state import Service, Settings, model_name
from localspec.server.streaming import CLIENT_GONE, sse, stream, unless_disconnected
from localspec.server.tokens import check_tokens, text_of_tokens

__all__ = ["answer_natively", "router"]

router = APIRouter(tags=["llama.cpp"])

_NEVER_S: Final = 1e6


class CompletionBody(NativeFields):
    """llama.cpp's options, and one prompt or several."""

    prompt: NativePrompts


@router.post("/completion", response_model=None)
async def completion(request: Request, body: CompletionBody, service: Service, settings: Settings) -> Response:
    """One object for a result, an array for several; or a stream of objects, the last of each result with `stop`."""
    prompts = cast(tuple[TextOrTokens, ...], body.prompt)
    texts = [await _text(service, prompt) for prompt in prompts]
    requests = await body.requests(prompts, service, settings)
    return await answer_natively(request, body, requests, texts, service, settings)


async def _text(service: EngineService, prompt: TextOrTokens) -> str:
    """The prompt as text, for the answer, which repeats it."""
    if isinstance(prompt, RawPrompt):
        return prompt.text
    check_tokens(service, "prompt", [part for part in prompt.parts if isinstance(part, int)])
    texts: list[str] = []
    for are_tokens, parts in groupby(prompt.parts, lambda part: isinstance(part, int)):
        if are_tokens:
            texts.append(await text_of_tokens(service, cast(list[int], list(parts))))
        else:
            texts.extend(cast(list[str], list(parts)))
    return "".join(texts)


async def answer_natively(
    http: Request,
    body: NativeFields,
    requests: Sequence[GenerateRequest],
    prompt_texts: Sequence[str],
    service: EngineService,
    settings: ServerSettings,
) -> Response:
    """Generate, and answer in llama.cpp's shapes. `prompt_texts`: of each prompt, which has `body.n_results` requests.

    Raises:
        LocalspecError: a request cannot be admitted, or fails before anything was sent.
    """
    natives = [
        NativeReply(
            index=index,
            model=model_name(service, settings),
            prompt_text=prompt_texts[index // body.n_results],
            settings=_settings_told(request, body),
            streams=body.stream,
            returns_tokens=body.return_tokens,
            tells_timings=body.timings_per_token,
            tells_progress=body.return_progress,
            response_fields=body.response_fields,
        )
        for index, request in enumerate(requests)
    ]
    info = RequestInfo.of(http.url.path, requests[0], is_streamed=body.stream)
    replies = service.generate_all(requests, info)
    if body.stream:
        interval_s = body.sse_ping_interval
        keep_alive_s = settings.keep_alive_s if interval_s is None else interval_s if interval_s > 0 else _NEVER_S
        return await stream(http, replies, _frames(replies, natives), keep_alive_s, error_frames=_error_frame)
    answers = await unless_disconnected(http, replies, _answers(replies, natives))
    if answers is None:
        return Response(status_code=CLIENT_GONE)
    return JSONResponse(answers[0] if len(answers) == 1 else answers)


def _settings_told(request: GenerateRequest, body: NativeFields) -> dict[str, Any]:
    return generation_settings(request) | {
        "stream": body.stream,
        "n_keep": body.n_keep,
        "n_discard": body.n_discard,
        "samplers": list(body.active_samplers),
        "timings_per_token": body.timings_per_token,
    }


async def _answers(replies: Replies, natives: Sequence[NativeReply]) -> list[dict[str, Any]]:
    answers: list[dict[str, Any]] = [{}] * len(natives)
    async for index, event in replies:
        natives[index].chunk(event)
        if isinstance(event, Finished):
            answers[index] = natives[index].answer(event, replies.queue_s[index] or 0.0)
    return answers


async def _frames(replies: Replies, natives: Sequence[NativeReply]) -> AsyncGenerator[bytes, None]:
    """Ends without OpenAI's [DONE]: llama-server's own stream has none either."""
    async for index, event in replies:
        chunk = natives[index].chunk(event)
        if chunk is not None:
            yield sse(chunk)
        if isinstance(event, Finished):
            yield sse(natives[index].answer(event, replies.queue_s[index] or 0.0))


def _error_frame(error: LocalspecError) -> bytes:
    return sse(error_body(error))
