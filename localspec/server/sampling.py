"""Fields of a request that say how its reply is sampled and drafted, by OpenAI's and llama.cpp's names.

class SomeRequest(SamplingFields, SpeculationFields): ...

GenerateRequest(prompt, await body.sampling_params(service, settings), **body.speculation(settings))
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Annotated, Any, Final, Literal

from pydantic import Discriminator, Field, JsonValue, Tag

from localspec.config import SamplingSettings
from localspec.engine.questions import Tokenize
from localspec.engine.requests import MAX_NUM_SPECULATIVE_TOKENS, Mode, SamplingParams
from localspec.server.bodies import BODY_CONFIG, RequestBody, text_or_list
from localspec.server.errors import RefusedFieldError
from localspec.server.service import EngineService
from localspec.server.settings import ServerSettings

__all__ = ["LocalspecOptions", "SamplingFields", "SpeculationFields", "StopField", "seed_of_choice", "stop_strings"]

_MAX_BIASES: Final = 4096
_MAX_BIASED_TEXTS: Final = 64  # each is tokenized
_MAX_BIASED_TEXT_CHARACTERS: Final = 256
_MAX_GRAMMAR_CHARACTERS: Final = 1 << 20
_MAX_STOPS: Final = 16
_MAX_STOP_CHARACTERS: Final = 1024
_SEED_STRIDE: Final = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: seeds of choices meet no seed that somebody would give

_Bias = float | bool
_BiasedToken = Annotated[int, Field(ge=0, le=2**31 - 1)] | Annotated[str, Field(max_length=_MAX_BIASED_TEXT_CHARACTERS)]
_StopText = Annotated[str, Field(min_length=1, max_length=_MAX_STOP_CHARACTERS)]
StopField = Annotated[
    Annotated[_StopText, Tag("[text]")] | Annotated[list[_StopText], Field(max_length=_MAX_STOPS), Tag("[list]")],
    Discriminator(text_or_list),
]
_BiasPair = Annotated[list[_BiasedToken | _Bias], Field(min_length=2, max_length=2)]
_Biases = Annotated[
    Annotated[dict[str, _Bias], Field(max_length=_MAX_BIASES), Tag("[object]")]
    | Annotated[list[_BiasPair], Field(max_length=_MAX_BIASES), Tag("[list]")],
    Discriminator(lambda value: "[list]" if isinstance(value, list) else "[object]"),
]


def stop_strings(stop: str | list[str] | None) -> tuple[str, ...]:
    """The field `stop`, which may be one text or several."""
    return () if stop is None else (stop,) if isinstance(stop, str) else tuple(stop)


class SamplingFields(SamplingSettings, RequestBody):
    """The samplers of llama.cpp and of OpenAI; what is not given is the endpoint's own setting.

    Names and bounds are those of the configuration. `seed` -1 draws one. `logit_bias`: an object of token id (or text,
    whose tokens are meant) to a number, or a list of pairs of them; `false` bans a token.
    """

    model_config = BODY_CONFIG

    seed: Annotated[int, Field(ge=-1, le=2**64 - 1)] | None = None
    logit_bias: _Biases | None = None
    grammar: Annotated[str, Field(max_length=_MAX_GRAMMAR_CHARACTERS)] | None = None
    json_schema: dict[str, JsonValue] | None = None

    async def sampling_params(
        self, service: EngineService, settings: ServerSettings, *, json_schema: dict[str, Any] | None = None
    ) -> SamplingParams:
        """What the sampler is told. `json_schema` is one that another field of the request asks for.

        Raises:
            RefusedFieldError: two fields constrain the reply, or a biased token does not exist.
        """
        given: dict[str, Any] = {
            name: value for name in SamplingSettings.model_fields if (value := getattr(self, name)) is not None
        }
        if given.get("seed") == -1:
            given["seed"] = None
        given["logit_bias"] = await self._biases(service)
        schemas = [schema for schema in (self.json_schema, json_schema) if schema is not None]
        grammar = self.grammar or None  # clients send an empty text for none
        if len(schemas) + (grammar is not None) > 1:
            raise RefusedFieldError(
                "The request says in more than one field what form its reply has.",
                param="grammar" if grammar else "json_schema",
                code="conflicting_parameters",
                hint="Give one of grammar, json_schema and response_format.",
            )
        # An empty schema means any object, as in llama.cpp.
        schema = json.dumps(schemas[0] or {"type": "object"}) if schemas else None
        return replace(settings.sampling, **given, grammar=grammar, json_schema=schema)

    async def _biases(self, service: EngineService) -> tuple[tuple[int, float], ...]:
        pairs = list(self.logit_bias.items()) if isinstance(self.logit_bias, dict) else (self.logit_bias or [])
        n_vocab = service.require_loaded().n_vocab
        n_texts = 0
        biases: list[tuple[int, float]] = []
        for which, bias in pairs:
            tokens = _token_ids(which)
            if tokens is None:
                n_texts += 1
                if n_texts > _MAX_BIASED_TEXTS:
                    raise RefusedFieldError(
                        f"logit_bias names more than {_MAX_BIASED_TEXTS} texts.",
                        param="logit_bias",
                        hint="Give token ids, from POST /tokenize.",
                    )
                answer = await service.ask(Tokenize(str(which), add_special=False, parse_special=False))
                assert isinstance(answer, tuple)
                tokens = tuple(token for token in answer if isinstance(token, int))
            for token in tokens:
                if token >= n_vocab:
                    raise RefusedFieldError(
                        f"logit_bias names token {token}; the model has {n_vocab}, from 0 on.", param="logit_bias"
                    )
                biases.append((token, _bias(bias)))
        return tuple(biases)


def _token_ids(which: object) -> tuple[int, ...] | None:
    """Of an id, also one that is the key of an object; None for text."""
    if isinstance(which, bool | float):
        raise RefusedFieldError(
            f"logit_bias names {which} as a token.", param="logit_bias", hint="Give its id or text."
        )
    if isinstance(which, int):
        return (which,)
    text = str(which)
    return (int(text),) if text.isascii() and text.isdigit() and len(text) < 11 else None


def _bias(bias: object) -> float:
    if bias is False:
        return -math.inf
    if isinstance(bias, bool) or not isinstance(bias, int | float):
        raise RefusedFieldError(
            f"logit_bias holds {str(bias)[:40]!r} as a bias.",
            param="logit_bias",
            hint="Give a number, or false to ban a token.",
        )
    return float(bias)


class LocalspecOptions(RequestBody):
    """Speculation of one request: where drafts come from, and the most tokens that are drafted at once (0: none)."""

    mode: Literal["auto", "draft", "lookup", "plain"] | None = None
    num_speculative_tokens: Annotated[int, Field(ge=0, le=MAX_NUM_SPECULATIVE_TOKENS)] | None = None


class SpeculationFields(RequestBody):
    """The field `localspec`: speculation of this request, where it should differ from the endpoint's."""

    localspec: LocalspecOptions | None = None

    def speculation(self, settings: ServerSettings) -> dict[str, Any]:
        """`mode`, `num_speculative_tokens` and `fixed_length` of the `GenerateRequest`."""
        asked = self.localspec or LocalspecOptions()
        mode = settings.mode if asked.mode is None else Mode(asked.mode)
        n_tokens = asked.num_speculative_tokens
        return {
            "mode": mode,
            "num_speculative_tokens": settings.num_speculative_tokens if n_tokens is None else n_tokens,
            "fixed_length": settings.fixed_length and mode is not Mode.AUTO,
        }


def seed_of_choice(seed: int | None, index: int) -> int | None:
    """The seed of the choice at `index` of several from one request: its own seed for the first."""
    return None if seed is None else (seed + index * _SEED_STRIDE) % 2**64
