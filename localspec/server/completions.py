"""POST /v1/completions: text that goes on from a prompt, or fills the gap before a suffix."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Request
from pydantic import Discriminator, Field, JsonValue, Tag
from starlette.responses import JSONResponse, Response

from localspec.engine.events import Finished, FinishReason, RequestEvent, StepDecoded, TokenLogprobs
from localspec.engine.metrics import RequestMetrics
from localspec.engine.questions import Detokenize
from localspec.engine.requests import GenerateRequest, InfillPrompt, MixedPrompt, Prompt, RawPrompt
from localspec.server.chat_request import Label, Labels, ResponseFormat, StreamOptions, reply_limit
from localspec.server.errors import RefusedFieldError
from localspec.server.logprobs import completion_logprobs
from localspec.server.replies import Replies
from localspec.server.reply_head import ReplyHead, statistics_of
from localspec.server.sampling import SamplingFields, SpeculationFields, StopField, seed_of_choice, stop_strings
from localspec.server.service import EngineService, RequestInfo
from localspec.server.settings import ServerSettings
from localspec.server.state import Service, Settings
from localspec.server.streaming import CLIENT_GONE, DONE, sse, stream, unless_disconnected

__all__ = ["CompletionRequest", "router"]

router = APIRouter(tags=["completions"])

_DEFAULT_MAX_TOKENS: Final = 16  # OpenAI's, for this endpoint
_MAX_LOGPROBS: Final = 20
_MAX_CHOICES: Final = 128

_Token = Annotated[int, Field(ge=0, le=2**31 - 1)]
_Tokens = Annotated[list[_Token], Field(min_length=1)]
_Count = Annotated[int, Field(ge=1, le=_MAX_CHOICES)]


def _form_of_prompt(value: object) -> str:
    if not isinstance(value, list):
        return "[text]"
    first = value[0] if value else ""
    return "[tokens]" if isinstance(first, int) else "[token lists]" if isinstance(first, list) else "[texts]"


# Tagged, so that an error is about the form that was sent.
_Prompt = Annotated[
    Annotated[str, Tag("[text]")]
    | Annotated[list[str], Field(min_length=1, max_length=_MAX_CHOICES), Tag("[texts]")]
    | Annotated[_Tokens, Tag("[tokens]")]
    | Annotated[list[_Tokens], Field(max_length=_MAX_CHOICES), Tag("[token lists]")],
    Discriminator(_form_of_prompt),
]


class CompletionRequest(SamplingFields, SpeculationFields):
    """OpenAI's request, with llama.cpp's samplers and the field `localspec`.

    Special tokens in a prompt's text count. `suffix`: the reply fills the gap between prompt and suffix, with a model
    that was trained for it. `best_of` has to equal `n`: all are told. `max_tokens` -1: no limit.
    """

    model: Label | None = None
    prompt: _Prompt
    suffix: str | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=-1, le=2**31 - 1)] | None = None
    stop: StopField | None = None
    n: _Count = 1
    best_of: _Count | None = None
    echo: bool = False
    logprobs: Annotated[int, Field(ge=0, le=_MAX_LOGPROBS)] | None = None
    response_format: ResponseFormat | None = None
    cache_prompt: bool = True
    ignore_eos: bool = False

    store: Literal[False] | None = None
    metadata: Labels | None = None
    user: Label | None = None

    def texts_or_tokens(self) -> list[str | list[int]]:
        """The prompts.

        Raises:
            RefusedFieldError: fields that exclude each other.
        """
        given: Any = self.prompt
        prompts = given if isinstance(given, list) and not isinstance(given[0], int) else [given]
        if len(prompts) * self.n > _MAX_CHOICES:
            raise RefusedFieldError(
                f"n is {self.n} for {len(prompts)} prompts; a request has at most {_MAX_CHOICES} choices.", param="n"
            )
        if self.best_of is not None and self.best_of != self.n:
            raise RefusedFieldError(
                f"best_of is {self.best_of} and n is {self.n}; choices are not ranked here.",
                param="best_of",
                hint="Leave best_of out.",
            )
        if self.echo and self.logprobs is not None:
            raise RefusedFieldError(
                "echo with logprobs is not supported: a prompt has no log-probabilities here.", param="echo"
            )
        return list(prompts)


@router.post("/v1/completions", response_model=None)
@router.post("/completions", response_model=None)
async def completions(request: Request, body: CompletionRequest, service: Service, settings: Settings) -> Response:
    """Go on from one or more prompts, as a whole or as a stream."""
    prompts = body.texts_or_tokens()
    requests = await _requests(body, prompts, service, settings)
    echoes = [await _echo(prompt, service) if body.echo else "" for prompt in prompts]
    head = ReplyHead.new("cmpl", service, settings)
    replies = service.generate_all(requests, RequestInfo.of(request.url.path, requests[0], is_streamed=body.stream))
    choices = [
        _Choice(index, echoes[index // body.n], tells_logprobs=body.logprobs is not None)
        for index in range(len(requests))
    ]
    reply = _Reply(head, replies, choices, len(prompts))
    if body.stream:
        includes_usage = body.stream_options is not None and body.stream_options.include_usage
        return await stream(request, replies, reply.frames(includes_usage), settings.keep_alive_s)
    completion = await unless_disconnected(request, replies, reply.completion())
    return Response(status_code=CLIENT_GONE) if completion is None else JSONResponse(completion)


async def _requests(
    body: CompletionRequest, prompts: Sequence[str | list[int]], service: EngineService, settings: ServerSettings
) -> list[GenerateRequest]:
    """`n` for the first prompt, then for the next."""
    schema = body.response_format.wanted_schema() if body.response_format is not None else None
    sampling = await body.sampling_params(service, settings, json_schema=schema)
    limit = reply_limit(settings.max_tokens or _DEFAULT_MAX_TOKENS, max_tokens=body.max_tokens)
    return [
        GenerateRequest(
            prompt,
            replace(sampling, seed=seed_of_choice(sampling.seed, index)),
            max_tokens=limit,
            stop=stop_strings(body.stop),
            n_logprobs=body.logprobs,
            ignores_end=body.ignore_eos,
            reuses_cache=body.cache_prompt,
            **body.speculation(settings),
        )
        for prompt in [_prompt(each, body.suffix, service) for each in prompts]
        for index in range(body.n)
    ]


def _prompt(given: str | list[int], suffix: str | None, service: EngineService) -> Prompt:
    loaded = service.require_loaded()
    if isinstance(given, list):
        if suffix:
            raise RefusedFieldError("suffix needs a prompt that is text.", param="suffix")
        for token in given:
            if token >= loaded.n_vocab:
                raise RefusedFieldError(
                    f"prompt holds token {token}; the model has {loaded.n_vocab}, from 0 on.", param="prompt"
                )
        return MixedPrompt(tuple(given))
    if not suffix:
        return RawPrompt(given, parse_special=True)
    if loaded.about is not None and not loaded.about.fills_in:
        raise RefusedFieldError(
            "suffix is not supported by this model: it has no fill-in-the-middle tokens.",
            param="suffix",
            code="unsupported_parameter",
            hint="Serve a coding model that was trained to fill gaps.",
        )
    return InfillPrompt(given, suffix)


async def _echo(prompt: str | list[int], service: EngineService) -> str:
    if isinstance(prompt, str):
        return prompt
    answer = await service.ask(Detokenize(tuple(prompt)))
    assert isinstance(answer, bytes)
    return answer.decode("utf-8", "replace")


class _Choice:
    """One choice while it is generated."""

    def __init__(self, index: int, echo: str, *, tells_logprobs: bool) -> None:
        self.index = index
        self.echo = echo
        self.metrics: RequestMetrics | None = None
        self.finish_reason: str | None = None
        self._tells_logprobs = tells_logprobs
        self._texts = [echo]
        self._logprobs: list[TokenLogprobs] = []
        self._n_told = 0
        self._n_characters = len(echo)  # of the tokens that were told

    def read(self, event: RequestEvent) -> str:
        """The text that an event adds."""
        if not isinstance(event, StepDecoded | Finished):
            return ""
        if isinstance(event, StepDecoded):
            self._logprobs += event.logprobs
        else:
            self.metrics = event.metrics
            self.finish_reason = "stop" if event.reason is FinishReason.STOP else "length"
        text = "".join(span.text for span in event.spans)
        self._texts.append(text)
        return text

    def told(self) -> dict[str, Any]:
        """The whole choice."""
        return self.chunk("".join(self._texts))

    def chunk(self, text: str) -> dict[str, Any]:
        """The choice with this text, and the log-probabilities of the tokens since the last call."""
        logprobs = None
        if self._tells_logprobs:
            logprobs = completion_logprobs(self._logprobs[self._n_told :], starts_at=self._n_characters)
            self._n_told = len(self._logprobs)
            self._n_characters += sum(map(len, logprobs["tokens"]))
        return {"text": text, "index": self.index, "logprobs": logprobs, "finish_reason": self.finish_reason}


class _Reply:
    """All choices of one request."""

    def __init__(self, head: ReplyHead, replies: Replies, choices: Sequence[_Choice], n_prompts: int) -> None:
        self._common: dict[str, JsonValue] = head.told("text_completion")
        self._replies = replies
        self._choices = choices
        self._n_prompts = n_prompts

    async def completion(self) -> dict[str, Any]:
        """As a whole."""
        async for index, event in self._replies:
            self._choices[index].read(event)
        told = [choice.told() for choice in self._choices]
        return {**self._common, "choices": told, **self._statistics()}

    async def frames(self, includes_usage: bool) -> AsyncGenerator[bytes, None]:
        """As a stream; the statistics are in the last chunk, which is the usage chunk where that was asked for."""
        common = self._common | ({"usage": None} if includes_usage else {})
        for choice in self._choices:
            if choice.echo:
                yield sse({**common, "choices": [choice.chunk(choice.echo)]})
        n_open = len(self._choices)
        async for index, event in self._replies:
            choice = self._choices[index]
            text = choice.read(event)
            more: dict[str, Any] = {}
            if choice.finish_reason is not None:
                n_open -= 1
                if n_open == 0 and not includes_usage:
                    more = self._statistics()
                    del more["usage"]
            if text or choice.finish_reason is not None:
                yield sse({**common, "choices": [choice.chunk(text)], **more})
        if includes_usage:
            yield sse({**common, "choices": [], **self._statistics()})
        yield DONE

    def _statistics(self) -> dict[str, Any]:
        return statistics_of([each.metrics for each in self._choices], self._replies, n_prompts=self._n_prompts)
