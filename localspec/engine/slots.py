"""Where sequences keep their caches: slots, the one context that they share, and what stays of the requests before."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from localspec.engine.loader import LoadedPair
from localspec.engine.questions import SlotUsage
from localspec.llama.sequence_cache import SequenceCache, common_prefix
from localspec.speculative.prompt_lookup import PromptLookup

__all__ = ["Slot", "Slots"]


@dataclass(slots=True, eq=False)
class Slot:
    """The caches of one sequence. Between requests they are what the next prompt may begin with."""

    target: SequenceCache
    draft: SequenceCache | None
    lookup: PromptLookup
    request_id: str | None = None  # of the request that runs in it
    used_at: int = 0

    def clear(self) -> None:
        """Forget what the models have read."""
        self.target.clear()
        if self.draft is not None:
            self.draft.clear()


class Slots:
    """All slots of a pair. A cell of the shared context holds one token of one slot."""

    def __init__(self, pair: LoadedPair, n_slots: int) -> None:
        self._n_ctx = pair.target.context.n_ctx
        self._clock = itertools.count(1)
        pair.target.context.clear_all()
        self._slots = [
            Slot(
                target=SequenceCache(pair.target.context, seq_id),
                draft=None,
                lookup=PromptLookup(pair.spec.lookup_min_ngram, pair.spec.lookup_max_ngram),
            )
            for seq_id in range(n_slots)
        ]
        self.use_draft_of(pair)

    def use_draft_of(self, pair: LoadedPair) -> None:
        """Go on with another draft model, or none; what the target has read is kept."""
        if pair.draft is not None:
            pair.draft.context.clear_all()
        for slot in self._slots:
            slot.draft = SequenceCache(pair.draft.context, slot.target.seq_id) if pair.draft else None

    def __len__(self) -> int:
        return len(self._slots)

    # --- slots -------------------------------------------------------------------------------------------------------

    @property
    def has_free(self) -> bool:
        """Whether another request can begin."""
        return any(slot.request_id is None for slot in self._slots)

    def take(self, request_id: str, prompt: Sequence[int], *, reuses_cache: bool) -> Slot:
        """The free slot for a request: that whose cache the prompt goes on with, else the one unused for longest.

        To begin with a prefix of a cache drops the rest of it, which another prompt may still want.
        """

        def worth(slot: Slot) -> tuple[float, int]:
            n_kept = common_prefix(slot.target.tokens, prompt, len(prompt) - 1) if reuses_cache else 0
            n_dropped = slot.target.n_past - n_kept
            return max(0.0, n_kept - 0.5 * n_dropped), -slot.used_at

        slot = max((slot for slot in self._slots if slot.request_id is None), key=worth)
        slot.request_id = request_id
        if not reuses_cache:
            slot.clear()
        return slot

    def release(self, slot: Slot) -> None:
        """Its request has ended; the caches stay."""
        slot.request_id = None
        slot.used_at = next(self._clock)

    # --- cells -------------------------------------------------------------------------------------------------------

    @property
    def n_free_cells(self) -> int:
        """Tokens that the context has room for."""
        return self._n_ctx - sum(slot.target.n_past for slot in self._slots)

    @property
    def n_idle_cells(self) -> int:
        """Tokens in caches of no running request: room that can be made."""
        return sum(slot.target.n_past for slot in self._slots if slot.request_id is None)

    def make_room(self, n_cells: int) -> bool:
        """Clear caches of no running request, the one unused for longest first, until so many cells are free."""
        idle = sorted(
            (slot for slot in self._slots if slot.request_id is None and slot.target.n_past),
            key=lambda slot: slot.used_at,
        )
        while self.n_free_cells < n_cells and idle:
            idle.pop(0).clear()
        return self.n_free_cells >= n_cells

    def usage(self) -> tuple[SlotUsage, ...]:
        """What each slot holds."""
        return tuple(SlotUsage(slot.target.n_past, slot.request_id) for slot in self._slots)
