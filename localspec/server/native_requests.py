"""What `/completion` and `/infill` may be asked for: llama.cpp's fields, and the engine's requests that they stand for.

Fields that change nothing here are taken with the value that says so (`mirostat` 0), and refused with any other. Some
are wishes that need not come true: `id_slot`, `t_max_prompt_ms` (llama-server does not read it either), and `n_keep`
and `n_discard`, which are about a context that is shifted when it is full, while here the reply ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from localspec.engine.requests import MAX_LOGPROBS, GenerateRequest, LineLimits, Prompt
from localspec.server.errors import NotServedError, RefusedFieldError
from localspec.server.samplers import ALL_SAMPLERS, SamplersField, only_samplers
from localspec.server.sampling import SamplingFields, SpeculationFields, seed_of_choice, stop_strings
from localspec.server.service import EngineService
from localspec.server.settings import ServerSettings

__all__ = ["MAX_RESULTS", "NativeFields"]

MAX_RESULTS: Final = 128
_MAX_INT: Final = 2**31 - 1
_MAX_STOPS: Final = 64  # editors send the first words of every construct of a language
_MAX_STOP_CHARACTERS: Final = 1024
_MAX_RESPONSE_FIELDS: Final = 64
_MAX_PATH_CHARACTERS: Final = 256

_OrNone = Annotated[int, Field(ge=-1, le=_MAX_INT)]
_Count = Annotated[int, Field(ge=0, le=_MAX_INT)]
_StopText = Annotated[str, Field(min_length=1, max_length=_MAX_STOP_CHARACTERS)]
_Path = Annotated[str, Field(max_length=_MAX_PATH_CHARACTERS)]
_NProbs = Annotated[int, Field(ge=0, le=MAX_LOGPROBS)]
_NResults = Annotated[int, Field(ge=1, le=MAX_RESULTS)]


class NativeFields(SamplingFields, SpeculationFields):
    """All of llama.cpp's options but the prompt. `n_predict` -1: no limit; 0: only read the prompt."""

    model: str | None = None
    stream: bool = False
    n_predict: _OrNone | None = None
    max_completion_tokens: _OrNone | None = None
    max_tokens: _OrNone | None = None
    n_cmpl: _NResults | None = None
    n: _NResults | None = None
    stop: _StopText | Annotated[list[_StopText], Field(max_length=_MAX_STOPS)] | None = None
    n_probs: _NProbs | None = None
    logprobs: _NProbs | None = None
    samplers: SamplersField | None = None
    cache_prompt: bool = True
    ignore_eos: bool = False
    n_indent: _Count = 0
    t_max_predict_ms: Annotated[int, Field(ge=-1, le=2**63 - 1)] = 0
    return_tokens: bool = False
    return_progress: bool = False
    timings_per_token: bool = False
    response_fields: Annotated[list[_Path], Field(max_length=_MAX_RESPONSE_FIELDS)] | None = None
    sse_ping_interval: _OrNone | None = None

    id_slot: _OrNone = -1
    t_max_prompt_ms: Annotated[int, Field(ge=-1, le=2**63 - 1)] | None = None
    n_keep: _OrNone = 0
    n_discard: _Count = 0

    mirostat: Literal[0] = 0
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    adaptive_target: Annotated[float, Field(lt=0)] | None = None
    adaptive_decay: Annotated[float, Field(ge=0, le=0.99)] | None = None
    min_keep: Literal[0] = 0
    n_cache_reuse: Literal[0] = 0
    post_sampling_probs: Literal[False] = False
    backend_sampling: Literal[False] = False
    verbose: Literal[False] = False
    lora: Annotated[list[dict[str, Any]], Field(max_length=64)] | None = None

    @property
    def active_samplers(self) -> tuple[str, ...]:
        """The transforms that run."""
        return ALL_SAMPLERS if self.samplers is None else tuple(self.samplers)

    @property
    def n_results(self) -> int:
        """Replies to each prompt."""
        return self.n_cmpl or self.n or 1

    async def requests(
        self, prompts: Sequence[Prompt], service: EngineService, settings: ServerSettings
    ) -> list[GenerateRequest]:
        """One for each result: `n_results` for the first prompt, then for the next.

        Raises:
            NotServedError: LoRA adapters are asked for.
            RefusedFieldError: there would be too many, or two fields exclude each other.
        """
        if self.lora:
            raise NotServedError(
                "lora is not supported: this endpoint has no adapters.", param="lora", hint="Leave it out."
            )
        if len(prompts) * self.n_results > MAX_RESULTS:
            raise RefusedFieldError(
                f"n_cmpl is {self.n_results} for {len(prompts)} prompts; a request has at most {MAX_RESULTS} results.",
                param="n_cmpl",
            )
        sampling = only_samplers(await self.sampling_params(service, settings), self.active_samplers)
        common: dict[str, Any] = {
            "max_tokens": self._max_tokens(settings),
            "stop": stop_strings(self.stop),
            "n_logprobs": (self.logprobs if self.n_probs is None else self.n_probs) or None,
            "line_limits": self._line_limits(),
            "ignores_end": self.ignore_eos,
            "reuses_cache": self.cache_prompt,
            **self.speculation(settings),
        }
        return [
            GenerateRequest(prompt, replace(sampling, seed=seed_of_choice(sampling.seed, index)), **common)
            for prompt in prompts
            for index in range(self.n_results)
        ]

    def _max_tokens(self, settings: ServerSettings) -> int | None:
        for given in (self.n_predict, self.max_completion_tokens, self.max_tokens):
            if given is not None:
                return None if given == -1 else given
        return settings.max_tokens

    def _line_limits(self) -> LineLimits | None:
        time_s = self.t_max_predict_ms / 1000 if self.t_max_predict_ms > 0 else None
        return LineLimits(self.n_indent, time_s) if self.n_indent or time_s is not None else None
