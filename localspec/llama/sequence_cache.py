"""What a context's KV cache holds of one sequence, mirrored as token ids.

The mirror outlives requests: a new prompt keeps the longest common prefix, and a drafter that rested for a while knows
exactly which tokens it has missed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from localspec.errors import DoesNotFitError
from localspec.llama.context import Context


class SequenceCache:
    """One sequence of a context. `tokens[i]` is the token at cache position i."""

    def __init__(self, context: Context, seq_id: int) -> None:
        self.context = context
        self.seq_id = seq_id
        self.tokens: list[int] = []

    @property
    def n_past(self) -> int:
        """Tokens in the cache."""
        return len(self.tokens)

    def add(self, tokens: Sequence[int], *, n_outputs: int) -> int:
        """Put tokens after those in the cache into the context's batch; returns the row of the first."""
        return self.context.add(tokens, position=self.n_past, seq_id=self.seq_id, n_outputs=n_outputs)

    def confirm(self, tokens: Sequence[int]) -> None:
        """Record tokens that a decode has just put into the cache."""
        self.tokens.extend(tokens)

    def feed(self, tokens: Sequence[int], *, n_outputs: int) -> None:
        """Add, decode and confirm. After a failure the sequence is cleared."""
        try:
            self.add(tokens, n_outputs=n_outputs)
            self.context.decode()
        except BaseException:
            self.context.discard_batch()
            self.clear()
            raise
        self.confirm(tokens)

    def time_pass(self, n_rows: int, *, n_outputs: int) -> float | None:
        """Seconds of a pass over `n_rows` more tokens, which are dropped again; None where there is no room for them.

        Raises:
            EngineError: the pass failed, and the sequence was cleared.
        """
        n_past = self.n_past
        if n_past == 0 or n_past + n_rows > self.context.n_ctx:
            return None
        try:
            self.add(self.tokens[-1:] * n_rows, n_outputs=n_outputs)
            started = time.perf_counter()
            self.context.decode()
            pass_s = time.perf_counter() - started
        except DoesNotFitError:
            return None
        except BaseException:
            self.context.discard_batch()
            self.clear()
            raise
        if not self.context.rollback(n_past, self.seq_id):
            self.tokens.clear()
            return None
        return pass_s

    def rollback(self, n_past: int) -> None:
        """Keep the first `n_past` tokens, or none where the memory cannot do that."""
        if n_past < self.n_past:
            kept = self.context.rollback(n_past, self.seq_id)
            del self.tokens[n_past if kept else 0 :]

    def keep_common_prefix(self, history: Sequence[int]) -> None:
        """Drop what `history` does not begin with; its last token always stays to be decoded."""
        self.rollback(common_prefix(self.tokens, history, len(history) - 1))

    def clear(self) -> None:
        """Forget the sequence."""
        self.context.clear(self.seq_id)
        self.tokens.clear()


def common_prefix(left: Sequence[int], right: Sequence[int], limit: int) -> int:
    """How many tokens both begin with, at most `limit`."""
    n = min(len(left), limit)
    return next((i for i in range(n) if left[i] != right[i]), n)
