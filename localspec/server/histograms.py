"""How long things took and how large they were, in Prometheus histograms.

Buckets suit one machine: a card releases tokens every few milliseconds, two cores every few hundred, and a long prompt
may take minutes.
"""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Histogram

_GAPS_S: Final = (0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0)
_WAITS_S: Final = (
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.2,
    0.3,
    0.5,
    0.75,
    1.0,
    2.0,
    3.0,
    5.0,
    10.0,
    20.0,
    30.0,
    60.0,
    120.0,
)
_REQUESTS_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
_REPLY_TOKENS: Final = (1, 4, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
_PROMPT_TOKENS: Final = (16, 64, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)


class Histograms:
    """The histograms of one server. After the colon stand vLLM's names, so that its dashboards fit."""

    def __init__(self, registry: CollectorRegistry) -> None:
        by_endpoint = ("endpoint",)
        self.queue_s = Histogram(
            "localspec:request_queue_time_seconds",
            "Time from a request's admission until the engine begins with it.",
            buckets=_WAITS_S,
            registry=registry,
        )
        self.first_tokens_s = Histogram(
            "localspec:time_to_first_token_seconds",
            "Time from a request's admission until the engine releases its first tokens.",
            by_endpoint,
            buckets=_WAITS_S,
            registry=registry,
        )
        self.emission_gap_s = Histogram(
            "localspec:inter_token_latency_seconds",
            "Time between two releases of tokens of a reply; with speculation, each may release several tokens.",
            buckets=_GAPS_S,
            registry=registry,
        )
        self.token_s = Histogram(
            "localspec:request_time_per_output_token_seconds",
            "Mean time per token of a reply, after its first release of tokens.",
            buckets=_GAPS_S,
            registry=registry,
        )
        self.request_s = Histogram(
            "localspec:e2e_request_latency_seconds",
            "Time from a request's admission to its end, however it ended.",
            by_endpoint,
            buckets=_REQUESTS_S,
            registry=registry,
        )
        self.reply_tokens = Histogram(
            "localspec:request_generation_tokens",
            "Tokens of a reply, also of one that was cut short.",
            by_endpoint,
            buckets=_REPLY_TOKENS,
            registry=registry,
        )
        self.prompt_tokens = Histogram(
            "localspec:request_prompt_tokens",
            "Tokens of a prompt, those found in the cache included.",
            by_endpoint,
            buckets=_PROMPT_TOKENS,
            registry=registry,
        )
