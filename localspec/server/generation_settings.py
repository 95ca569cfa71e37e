"""What a reply is generated with, by llama.cpp's names: in every answer of its endpoints, and in `/props`."""

from __future__ import annotations

import math
from typing import Any

from localspec.engine.requests import GenerateRequest, SamplingParams

__all__ = ["generation_settings", "sampling_settings"]

# Copied by name; llama.cpp has the others under other names, or as something else than a number.
_SAME_NAMES = (
    "temperature",
    "dynatemp_range",
    "dynatemp_exponent",
    "top_k",
    "top_p",
    "min_p",
    "top_n_sigma",
    "xtc_probability",
    "xtc_threshold",
    "typical_p",
    "repeat_last_n",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
    "dry_multiplier",
    "dry_base",
    "dry_allowed_length",
    "dry_penalty_last_n",
)


def sampling_settings(sampling: SamplingParams) -> dict[str, Any]:
    """The numbers of the sampler chain."""
    return {name: getattr(sampling, name) for name in _SAME_NAMES}


def generation_settings(request: GenerateRequest) -> dict[str, Any]:
    """Everything that a request asks for, as it runs: what was left out has its default."""
    sampling = request.sampling
    n_predict = -1 if request.max_tokens is None else request.max_tokens
    limits = request.line_limits
    return {
        **sampling_settings(sampling),
        "dry_sequence_breakers": list(sampling.dry_sequence_breakers),
        "mirostat": 0,
        "stop": list(request.stop),
        "max_tokens": n_predict,
        "n_predict": n_predict,
        "n_indent": limits.min_indent if limits else 0,
        "t_max_predict_ms": -1 if limits is None or limits.time_s is None else round(limits.time_s * 1000),
        "ignore_eos": request.ignores_end,
        # JSON has no infinity: llama.cpp takes false for a token that must not come, and so it is told.
        "logit_bias": [
            {"token": token, "bias": False if bias == -math.inf else bias} for token, bias in sampling.logit_bias
        ],
        "n_probs": request.n_logprobs or 0,
        "min_keep": 0,
        "grammar": sampling.grammar or "",
        "json_schema": sampling.json_schema,
        "cache_prompt": request.reuses_cache,
        "post_sampling_probs": False,
        "lora": [],
        "localspec": {"mode": str(request.mode), "num_speculative_tokens": request.num_speculative_tokens},
    }
