"""Drafts of several sequences at once: what each of them has to read next shares a pass of the draft model."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from localspec.errors import LocalspecError
from localspec.llama.draft_model import read_in_one_pass
from localspec.llama.sequence_cache import SequenceCache
from localspec.speculative.drafter import EMPTY_DRAFT, Draft, Drafting, PassRow

__all__ = ["DraftUnderWay", "draft_together"]


@dataclass(slots=True)
class DraftUnderWay:
    """One sequence's draft. `cache`: of the draft model; None where nothing will be read.

    Afterwards: `draft` or `failure`, and `pass_s`, this sequence's part of the passes.
    """

    drafting: Drafting
    cache: SequenceCache | None
    draft: Draft = EMPTY_DRAFT
    failure: Exception | None = None
    pass_s: float = 0.0
    _wanted: Sequence[int] | None = None

    @property
    def has_read(self) -> bool:
        """Whether it took part in a pass."""
        return self.pass_s > 0.0

    def _go_on(self, *, row: PassRow | None = None, error: LocalspecError | None = None) -> None:
        """Until it wants to read, or ends."""
        try:
            if error is not None:
                self._wanted = self.drafting.throw(error)
            elif row is not None:
                self._wanted = self.drafting.send(row)
            else:
                self._wanted = next(self.drafting)
        except StopIteration as end:
            self._wanted, self.draft = None, end.value
        except Exception as failure:
            self._wanted, self.failure = None, failure


def draft_together(drafts: Sequence[DraftUnderWay]) -> None:
    """Run drafts to their ends, in as many passes as the longest of them takes."""
    for each in drafts:
        each._go_on()
    while readers := [each for each in drafts if each._wanted is not None]:
        _share_pass(readers)


def _share_pass(readers: Sequence[DraftUnderWay]) -> None:
    reads: list[tuple[SequenceCache, Sequence[int]]] = []
    for each in readers:
        assert each.cache is not None
        assert each._wanted is not None
        reads.append((each.cache, each._wanted))
    # A pass has room for so many tokens; what is over waits for the next one.
    room, n_served = reads[0][0].context.n_batch, 0
    while n_served < len(reads) and len(reads[n_served][1]) <= room:
        room -= len(reads[n_served][1])
        n_served += 1
    started = time.perf_counter()
    try:
        rows = read_in_one_pass(reads[:n_served])
    except LocalspecError as error:
        for each in readers[:n_served]:
            each._go_on(error=error)
        return
    pass_s = (time.perf_counter() - started) / n_served
    for each, row in zip(readers[:n_served], rows, strict=True):
        each.pass_s += pass_s
        each._go_on(row=PassRow(row, n_served))
