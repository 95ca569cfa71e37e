"""What a request's parameters ask of llama.cpp: the chain of native samplers, and what is known of it beforehand."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import llama_cpp

from localspec.llama.model import Model
from localspec.llama.sampling_params import SamplingParams

_MIN_KEEP: Final = 1
# More than native samplers lose by computing log(min_p) in single precision.
_ROUNDING: Final = 1e-3


def native_chain(model: Model, params: SamplingParams, *, n_ctx: int, seed: int) -> Any:
    """A native sampler chain of what the request uses, in llama.cpp's order; the caller's to free."""
    # XTC's coin is part of its law: each position is transformed once, so the law of the output is XTC's own.
    xtc = (params.xtc_probability, params.xtc_threshold, _MIN_KEEP, seed % 0xFFFFFFFF)
    dynamic = (params.temperature, params.dynatemp_range, params.dynatemp_exponent)
    is_dynamic = params.dynatemp_range > 0.0
    stages: tuple[tuple[bool, Callable[[], Any]], ...] = (
        (penalizes(params), lambda: _penalties(model, params, n_ctx)),
        (params.dry_multiplier > 0.0, lambda: _dry(model, params, n_ctx)),
        (params.top_n_sigma > 0.0, lambda: llama_cpp.llama_sampler_init_top_n_sigma(params.top_n_sigma)),
        (params.top_k > 0, lambda: llama_cpp.llama_sampler_init_top_k(min(params.top_k, model.n_vocab))),
        (params.typical_p < 1.0, lambda: llama_cpp.llama_sampler_init_typical(params.typical_p, _MIN_KEEP)),
        (params.top_p < 1.0, lambda: llama_cpp.llama_sampler_init_top_p(params.top_p, _MIN_KEEP)),
        (params.min_p > 0.0, lambda: llama_cpp.llama_sampler_init_min_p(params.min_p, _MIN_KEEP)),
        (params.xtc_probability > 0.0, lambda: llama_cpp.llama_sampler_init_xtc(*xtc)),
        (is_dynamic and not params.greedy, lambda: llama_cpp.llama_sampler_init_temp_ext(*dynamic)),
        (not is_dynamic and not params.greedy, lambda: llama_cpp.llama_sampler_init_temp(params.temperature)),
    )
    chain = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
    for is_used, make in stages:
        if is_used:
            llama_cpp.llama_sampler_chain_add(chain, make())
    return chain


def penalizes(params: SamplingParams) -> bool:
    """True where repetition, frequency or presence penalties are on."""
    return params.repeat_penalty != 1.0 or params.frequency_penalty != 0.0 or params.presence_penalty != 0.0


def _penalties(model: Model, params: SamplingParams, n_ctx: int) -> Any:
    strengths = (params.repeat_penalty, params.frequency_penalty, params.presence_penalty)
    return llama_cpp.llama_sampler_init_penalties(model.n_vocab, _window(params.repeat_last_n, n_ctx), *strengths)


def _dry(model: Model, params: SamplingParams, n_ctx: int) -> Any:
    breakers = [text.encode("utf-8", "replace") for text in params.dry_sequence_breakers]
    return llama_cpp.llama_sampler_init_dry(
        model.vocab_handle,
        params.dry_multiplier,
        params.dry_base,
        params.dry_allowed_length,
        _window(params.dry_penalty_last_n, n_ctx),
        (ctypes.c_char_p * len(breakers))(*breakers),
        len(breakers),
    )


class Reach(NamedTuple):
    """What a chain can keep of a row: tokens at most `slack` below the `k`-th largest logit; with `k` 0, any.

    The largest alone where it is more than `lead` ahead of the others. Where penalties or a grammar come first, this
    holds for the tokens that these leave as they are.
    """

    k: int
    slack: float = 0.0
    lead: float = math.inf


def reach(params: SamplingParams) -> Reach:
    """What the request's chain can keep, grammar and penalties aside."""
    below_top = _ROUNDING - math.log(params.min_p) if params.min_p > 0.0 and params.typical_p >= 1.0 else math.inf
    if params.greedy and keeps_largest(params):
        return Reach(1)
    if params.top_n_sigma > 0.0:
        return Reach(0)
    if params.top_k > 0:
        return Reach(params.top_k, lead=below_top)
    if params.top_p >= 1.0 and below_top < math.inf:
        return Reach(1, slack=below_top)
    return Reach(0)


def keeps_largest(params: SamplingParams) -> bool:
    """True where no transform can remove the token with the largest logit."""
    return params.typical_p >= 1.0 and params.xtc_probability <= 0.0


def memory(params: SamplingParams, n_ctx: int) -> int:
    """How many of the last tokens can still be penalized."""
    penalties = _window(params.repeat_last_n, n_ctx) if penalizes(params) else 0
    dry = _window(params.dry_penalty_last_n, n_ctx) if params.dry_multiplier > 0.0 else 0
    return max(penalties, dry)


def _window(last_n: int, n_ctx: int) -> int:
    return n_ctx if last_n < 0 else min(last_n, n_ctx)
