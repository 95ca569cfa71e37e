"""Drafts, and what every source of them has in common."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from localspec.speculative.distribution import TokenDistribution


class DraftSource(StrEnum):
    """The kinds of drafters."""

    MODEL = "model"  # a draft model
    LOOKUP = "lookup"  # a copy from the text so far


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens proposed in one step and the distributions that they were sampled from, one per token.

    `distributions` None: the proposals are deterministic (copied, or an argmax), which is the same as sampling each
    from a one-hot distribution.

    Raises:
        ValueError: there are distributions, but not one per token.
    """

    tokens: tuple[int, ...]
    distributions: tuple[TokenDistribution, ...] | None = None

    def __post_init__(self) -> None:
        if self.distributions is not None and len(self.distributions) != len(self.tokens):
            raise ValueError(f"A draft has {len(self.tokens)} tokens and {len(self.distributions)} distributions.")

    def __len__(self) -> int:
        return len(self.tokens)

    def cut(self, n: int) -> Draft:
        """The first `n` proposals (n >= 0)."""
        if n >= len(self.tokens):
            return self
        return Draft(self.tokens[:n], None if self.distributions is None else self.distributions[:n])


EMPTY_DRAFT: Final = Draft(())


class WantsAnother(Protocol):
    """Says whether to draft one more token."""

    def __call__(self, confidence: float, n_sharing: int = 1) -> bool:
        """After one of which the drafter was so sure (0 to 1), from a pass that so many sequences shared."""


class PassRow(NamedTuple):
    """The row of a forward pass whose logits follow what was read, and how many sequences shared the pass."""

    row: int
    n_sharing: int = 1


Drafting = Generator[Sequence[int], PassRow, Draft]
"""A draft under way. It yields tokens that a model has to read, and is sent the row that follows the last of them; what
it returns is the draft. A pass belongs to the caller, so that several sequences can share one; where it fails, its
error is thrown into the drafting."""


class Drafter(Protocol):
    """Anything that proposes tokens for one sequence at a time.

    Life of a request: `start`, `prefill` until it returns 0, then per step `propose`, `observe`, `commit`. A step
    without a draft of this drafter skips `propose`, and a drafter that is to rest skips `prefill`. The history that
    `propose` gets is the truth: all committed tokens, the prompt included, of which the target has decoded all but the
    last. Between two starts it only grows.
    """

    def start(self, history: Sequence[int]) -> None:
        """Begin a request whose prompt is `history`; keep whatever was computed for a prefix of it."""

    def prefill(self, history: Sequence[int], max_tokens: int) -> int:
        """Advance the drafter's own caches over at most `max_tokens` of `history`; tokens still pending, 0 = ready."""

    def n_unread(self, history: Sequence[int]) -> int:
        """Tokens of `history` that it has to read before it can draft."""

    def propose(self, history: Sequence[int], n_draft: int, wants_another: WantsAnother | None = None) -> Drafting:
        """At most `n_draft` (>= 1) tokens to follow `history`; fewer or none is fine.

        A drafter that pays for each token asks `wants_another`, if there is one, after each of them. What it has
        sampled stays in the draft whatever the answer: to drop a token for what it is would change the law that it
        was sampled from.
        """

    def observe(self, tokens: Sequence[int], position: int, first_row: int) -> None:
        """The target has just decoded `tokens`, at `position` on, as the rows from `first_row` on of its batch.

        Called after each of its decodes, those of the prompt included, for drafters that read its hidden states.
        """

    def commit(self, tokens: Sequence[int], n_accepted: int) -> None:
        """End the step that committed `tokens`: the first `n_accepted` of its draft, then one more; 0 if it had none.

        There is no one more when the last accepted token ends generation. The draft that was verified may be a prefix
        of the proposal: `n_accepted` can be below the number proposed without a rejection. No tokens and 0: the step
        failed and nothing was committed; forget the draft. Called also when `propose` itself failed.
        """

    def close(self) -> None:
        """Free what is held. May be called twice."""
