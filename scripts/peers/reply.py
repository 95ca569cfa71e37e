"""A reply as the client saw it arrive: the one clock that every contender is measured by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reply:
    """`arrivals` are (seconds, tokens received so far) on the client's monotonic clock, one for each message.

    `own_tokens_per_second` is what the contender says about itself, on a clock of its own.
    """

    arrivals: tuple[tuple[float, int], ...]
    n_prompt_tokens: int
    n_drafted: int = 0
    n_accepted: int = 0
    own_tokens_per_second: float | None = None

    @property
    def n_tokens(self) -> int:
        """Tokens of the reply; the one that ended it counts."""
        return self.arrivals[-1][1] if self.arrivals else 0

    @property
    def tokens_per_second(self) -> float | None:
        """Decode speed: tokens after the first message, by the time after it. None when everything came at once.

        What comes first has waited for the prompt, so neither its tokens nor its time count.
        """
        if not self.arrivals:
            return None
        (first_s, n_first), (last_s, n_last) = self.arrivals[0], self.arrivals[-1]
        return (n_last - n_first) / (last_s - first_s) if n_last > n_first and last_s > first_s else None
