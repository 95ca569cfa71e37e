"""What a reply shows of itself while it is decoded: its speed, how much of it is copied, how well copies hold in it."""

from __future__ import annotations

from typing import Final


class BetweenCopies:
    """How much text lies between two copies of a reply, on average. Copies that follow each other are one."""

    # Before there was any: half a copy's worth of evidence.
    _TOKENS_AT_FIRST: Final = 16.0
    _COPIES_AT_FIRST: Final = 0.5

    def __init__(self) -> None:
        self._n_uncopied, self._n_copies, self._is_copying = self._TOKENS_AT_FIRST, self._COPIES_AT_FIRST, False

    def record(self, n_tokens: int, *, is_copy: bool) -> None:
        """A step brought `n_tokens`."""
        self._n_uncopied += 0 if is_copy else n_tokens
        self._n_copies += is_copy and not self._is_copying
        self._is_copying = is_copy

    @property
    def n_tokens(self) -> float:
        """Tokens from one copy to the next."""
        return self._n_uncopied / self._n_copies


class Rate:
    """Tokens per second of late."""

    _MEMORY_STEPS: Final = 24.0

    def __init__(self) -> None:
        self._tokens = self._seconds = 0.0

    def add(self, n_tokens: int, seconds: float) -> None:
        """A step brought `n_tokens` in `seconds`."""
        keep = 1.0 - 1.0 / self._MEMORY_STEPS
        self._tokens, self._seconds = self._tokens * keep + n_tokens, self._seconds * keep + seconds

    @property
    def tokens_per_second(self) -> float | None:
        """None before the first step."""
        return self._tokens / self._seconds if self._seconds else None


class TextFactor:
    """How much more, or less, is rejected in this reply than was expected: what makes a text easy or hard.

    A table knows all kinds of text at once. One factor on the probability of a rejection, estimated within the reply,
    tells them apart after a few tokens: copies hold in an edit and fail in a chat, whatever they match.
    """

    # Tests: a reply is short, and can turn from prose to code.
    _MEMORY: Final = 40.0

    def __init__(self) -> None:
        self._rejected = self._expected = 0.0

    def adjust(self, estimate: float) -> float:
        """An acceptance estimate, as it applies to this text. One rejection that was expected is the prior."""
        factor = (self._rejected + 1.0) / (self._expected + 1.0)
        return max(0.0, 1.0 - (1.0 - estimate) * factor)

    def record(self, estimate: float, *, accepted: bool) -> None:
        """A token with this estimate, before adjustment, was tested."""
        keep = 1.0 - 1.0 / self._MEMORY
        self._rejected = self._rejected * keep + (not accepted)
        self._expected = self._expected * keep + 1.0 - estimate
