"""What the context is used for, asked of the engine without waiting for it: it answers between two steps only."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from localspec.engine.questions import AskUsage, EngineUsage
from localspec.errors import LocalspecError
from localspec.server.service import EngineService

_FRESH_S: Final = 1.0  # an answer serves all who ask so shortly after it
_PATIENCE_S: Final = 0.25
_TOO_OLD_S: Final = 30.0


def n_cached(usage: EngineUsage) -> int:
    """Tokens in the KV cache: of replies that run, and of earlier ones that a prompt may begin with."""
    return sum(slot.n_cells for slot in usage.slots)


class UsageReader:
    """Reads `EngineUsage`. There is at most one question open, however many ask and however long the engine is busy."""

    def __init__(self, service: EngineService, now: Callable[[], float] = time.monotonic) -> None:
        self._service = service
        self._now = now
        self._usage: EngineUsage | None = None
        self._answered_at = 0.0
        self._question: asyncio.Task[None] | None = None

    async def read(self) -> EngineUsage | None:
        """The usage now or a short while ago; None where the engine does not run or has been busy for long."""
        # A question would start an engine that has died, which is for requests to do.
        if self._service.loaded is None or self._service.process_id is None:
            return None
        if self._usage is None or self._now() - self._answered_at > _FRESH_S:
            if self._question is None or self._question.done():
                self._question = asyncio.create_task(self._ask(), name="usage")
            await asyncio.wait([self._question], timeout=_PATIENCE_S)
        return self._usage if self._now() - self._answered_at <= _TOO_OLD_S else None

    async def _ask(self) -> None:
        try:
            answer = await self._service.ask(AskUsage())
        except LocalspecError:
            return
        if isinstance(answer, EngineUsage):
            self._usage, self._answered_at = answer, self._now()
