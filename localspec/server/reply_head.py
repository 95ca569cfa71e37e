"""What replies of OpenAI's endpoints have in common: the fields that each chunk begins with, and those of the last."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import localspec
from localspec.engine.metrics import RequestMetrics
from localspec.server.replies import Replies
from localspec.server.service import EngineService
from localspec.server.settings import ServerSettings
from localspec.server.state import model_name
from localspec.server.statistics import reply_metrics, timings, together, usage

__all__ = ["ReplyHead", "statistics_of"]


@dataclass(frozen=True, slots=True)
class ReplyHead:
    """`created` in seconds since 1970; `model` is the one that replies, whatever the request calls it."""

    id: str
    created: int
    model: str

    @classmethod
    def new(cls, prefix: str, service: EngineService, settings: ServerSettings) -> ReplyHead:
        """Of a reply that is about to begin, with an id of its own."""
        return cls(f"{prefix}-{secrets.token_hex(12)}", int(time.time()), model_name(service, settings))

    def told(self, kind: str) -> dict[str, Any]:
        """As fields of an object of this kind."""
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": f"localspec-{localspec.__version__}",
        }


def statistics_of(
    choices: Sequence[RequestMetrics | None], replies: Replies, *, n_prompts: int = 1
) -> dict[str, dict[str, Any]]:
    """`usage`, `timings` and `metrics` of choices that have ended: equally many to each prompt, in order."""
    metrics = together([each for each in choices if each is not None], n_prompts=n_prompts)
    queue_s = min(waited or 0.0 for waited in replies.queue_s)
    return {"usage": usage(metrics), "timings": timings(metrics, queue_s), "metrics": reply_metrics(metrics)}
