"""Numbers of a reply by the names that clients read: OpenAI's usage, llama.cpp's timings, vLLM's metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, Final

from localspec.engine.events import Prefilling
from localspec.engine.metrics import RequestMetrics

__all__ = ["prompt_progress", "reply_metrics", "timings", "together", "usage"]

_LOOKUP: Final = ("n_lookup_steps", "n_lookup_drafted", "n_lookup_accepted")
_ADDED: Final = ("n_tokens", "n_steps", "n_plain_steps", "n_drafted", "n_accepted", *_LOOKUP)
_LONGEST: Final = (
    "prefill_s",
    "draft_s",
    "draft_pass_s",
    "verify_s",
    "judge_s",
    "overhead_s",
    "step_s",
    "elapsed_s",
)


def usage(metrics: RequestMetrics, n_reasoning_tokens: int | None = None) -> dict[str, Any]:
    """OpenAI's counts of tokens."""
    counts: dict[str, Any] = {
        "prompt_tokens": metrics.n_prompt_tokens,
        "completion_tokens": metrics.n_tokens,
        "total_tokens": metrics.n_prompt_tokens + metrics.n_tokens,
        "prompt_tokens_details": {"cached_tokens": metrics.n_cached_tokens},
    }
    if n_reasoning_tokens is not None:
        counts["completion_tokens_details"] = {"reasoning_tokens": n_reasoning_tokens}
    return counts


def timings(metrics: RequestMetrics, queue_s: float = 0.0) -> dict[str, int | float]:
    """llama.cpp's `timings`. `queue_s`: the seconds that the request waited for its turn, which do not count here.

    `prompt_ms` goes from the turn to the first tokens, whose step may have carried the prompt; `predicted_ms` from
    there to the last.
    """
    n_prompt = metrics.n_prompt_tokens - metrics.n_cached_tokens
    until_first_s = metrics.elapsed_s if metrics.ttft_s is None else metrics.ttft_s
    prompt_s = max(metrics.prefill_s, until_first_s - queue_s)
    per_second = metrics.tokens_per_second or 0.0
    return {
        "cache_n": metrics.n_cached_tokens,
        "prompt_n": n_prompt,
        "prompt_ms": prompt_s * 1e3,
        "prompt_per_token_ms": prompt_s * 1e3 / n_prompt if n_prompt else 0.0,
        "prompt_per_second": n_prompt / prompt_s if prompt_s > 0 else 0.0,
        "predicted_n": metrics.n_tokens,
        "predicted_ms": max(0.0, metrics.elapsed_s - until_first_s) * 1e3,
        "predicted_per_token_ms": 1e3 / per_second if per_second else 0.0,
        "predicted_per_second": per_second,
        "draft_n": metrics.n_drafted,
        "draft_n_accepted": metrics.n_accepted,
    }


def prompt_progress(event: Prefilling, elapsed_s: float) -> dict[str, int]:
    """llama.cpp's `prompt_progress`: tokens of the prompt. `elapsed_s`: since the prompt's first event of this kind."""
    return {
        "total": event.n_total,
        "cache": event.n_cached,
        "processed": event.n_done,
        "time_ms": round(elapsed_s * 1000),
    }


def reply_metrics(metrics: RequestMetrics) -> dict[str, Any]:
    """The `metrics` of vLLM, with its definitions, where a step is one that had a draft (docs/metrics.md counts all).

    `mean_acceptance_length` = 1 + accepted / steps; `acceptance_histogram[j]`: steps that accepted exactly j;
    `acceptance_rate_per_position[i]`: share of the steps that accepted their token i. Rates are null without a draft.
    """
    histogram = metrics.acceptance_histogram
    n_steps = sum(histogram)
    at_least = [sum(histogram[position + 1 :]) for position in range(len(histogram) - 1)]
    return {
        "speculative_decoding": {
            "num_spec_steps": n_steps,
            "num_draft_tokens": metrics.n_drafted,
            "num_accepted_draft_tokens": metrics.n_accepted,
            "draft_acceptance_rate": metrics.draft_acceptance_rate,
            "mean_acceptance_length": 1 + metrics.n_accepted / n_steps if n_steps else None,
            "acceptance_histogram": list(histogram),
            "acceptance_rate_per_position": [count / n_steps for count in at_least],
        }
    }


def together(choices: Sequence[RequestMetrics], *, n_prompts: int = 1) -> RequestMetrics:
    """Metrics of replies that ran at once, of which there has to be one: equally many to each prompt, in order.

    A prompt counts once, the replies' counts and speeds are added up, and times are the longest.
    """
    if len(choices) == 1:
        return choices[0]
    changes: dict[str, Any] = {name: sum(getattr(each, name) for each in choices) for name in _ADDED}
    changes |= {name: max(getattr(each, name) for each in choices) for name in _LONGEST}
    n_each = len(choices) // n_prompts
    for name in ("n_prompt_tokens", "n_cached_tokens"):
        counts = [getattr(each, name) for each in choices]
        changes[name] = sum(max(counts[first : first + n_each]) for first in range(0, len(counts), n_each))
    changes["ttft_s"] = max((each.ttft_s for each in choices if each.ttft_s is not None), default=None)
    speed = sum(each.tokens_per_second or 0.0 for each in choices)
    changes["tokens_per_second"] = speed or None
    changes["tpot_s"] = 1 / speed if speed else None
    for name in ("acceptance_histogram", "rejection_histogram"):
        changes[name] = tuple(map(sum, zip_longest(*(getattr(each, name) for each in choices), fillvalue=0)))
    return replace(choices[0], **changes)
