"""Drafts without a forward pass, for drafters that stand in for others."""

from __future__ import annotations

from localspec.speculative.drafter import Draft, Drafting


def drafted_at_once(drafting: Drafting) -> Draft:
    """The draft of a drafter that reads nothing.

    Raises:
        ValueError: it wants to read.
    """
    try:
        next(drafting)
    except StopIteration as end:
        return end.value
    raise ValueError("The draft needs a forward pass.")
