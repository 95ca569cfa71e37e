"""What drafting may lose against plain decoding, in seconds: the promise of never being slower, as an account."""

from __future__ import annotations

from typing import Final

from localspec.speculative.drafter import DraftSource

# Drafting may lose these shares of the time of plain decoding: by drafts that promised a gain, and by probes. It starts
# with some plain tokens' worth of time for each, a reply takes over no more than that, and it can save up more.
_LOST_SHARE: Final = 0.005
_CREDIT_TOKENS: Final = 6.0
_MOST_TOKENS: Final = 24.0
_PROBED_SHARE: Final = 0.01
_PROBE_TOKENS: Final = 4.0
_FIRST_WAIT_STEPS: Final = 8
_LONGEST_WAIT_STEPS: Final = 256
_MOST_RESTED_REQUESTS: Final = 8


class Ledger:
    """Seconds that drafts may still lose against plain decoding, whatever the estimates say.

    Every draft is settled against the plain steps that it replaced, and none may stake more than half of the balance:
    what it would lose if all of it were rejected. So the losses stay within a small credit, what was gained before, and
    a small share of plain decoding: this is what keeps speculation from being slower than none. Half, so that bad luck
    makes drafts shorter rather than ends them (Kelly, "A new interpretation of information rate", 1956).
    """

    def __init__(self, plain_token_s: float) -> None:
        self._most_s, self._most_at_first_s = _MOST_TOKENS * plain_token_s, _CREDIT_TOKENS * plain_token_s
        self.balance_s = self._most_at_first_s

    def stake_s(self, reading_s: float = 0.0) -> float:
        """The most that a draft may lose now, beyond the seconds that its drafter has to read first."""
        return min(self.balance_s / 2, self.balance_s - reading_s)

    def begin(self) -> None:
        """A reply begins. Little of what others have gained is for it to lose."""
        self.balance_s = min(self.balance_s, self._most_at_first_s)

    def earn(self, plain_s: float) -> None:
        """A step took the time of `plain_s` of plain decoding."""
        self.settle(_LOST_SHARE * plain_s)

    def settle(self, gained_s: float) -> None:
        """A step with a draft took so much less time than its tokens would have taken plainly (negative: more)."""
        self.balance_s = min(self._most_s, self.balance_s + gained_s)


class ProbeFund:
    """Seconds that probes of one source may lose: drafts in which nobody believes, to see whether that still holds.

    They are expected to lose, so gains of better times do not pay for them, and while they fail, they become rarer.
    What is granted, at the end of a rest of whole requests, comes on top.
    """

    def __init__(self, plain_token_s: float) -> None:
        self._most_s = self._seconds = _PROBE_TOKENS * plain_token_s
        self._n_to_wait, self._next_wait = 0, _FIRST_WAIT_STEPS

    def earn(self, plain_s: float) -> None:
        """A step took the time of `plain_s` of plain decoding."""
        self._seconds = min(self._most_s, self._seconds + _PROBED_SHARE * plain_s)
        self._n_to_wait = max(0, self._n_to_wait - 1)

    def may_spend(self, cost_s: float) -> bool:
        """Whether a probe that can lose `cost_s` may be made now."""
        return self._n_to_wait == 0 and cost_s <= self._seconds

    def grant(self, cost_s: float) -> None:
        """Let a probe of that cost happen now."""
        self._seconds, self._n_to_wait = max(self._seconds, cost_s), 0

    def note_gain(self) -> None:
        """A draft of this source was worth its time: the next probe need not wait long."""
        self._n_to_wait, self._next_wait = 0, _FIRST_WAIT_STEPS

    def spend(self, lost_s: float) -> None:
        """A probe has failed."""
        self._seconds -= lost_s
        self._n_to_wait, self._next_wait = self._next_wait, min(2 * self._next_wait, _LONGEST_WAIT_STEPS)


class Account:
    """All that drafts may lose, and when a draft model that does not pay has another chance."""

    def __init__(self, plain_token_s: float) -> None:
        self.ledger = Ledger(plain_token_s)
        self.probes = {source: ProbeFund(plain_token_s) for source in DraftSource}
        self._n_to_rest, self._last_rest = 0, 1

    def earn(self, plain_s: float) -> None:
        """A step took the time of `plain_s` of plain decoding."""
        self.ledger.earn(plain_s)
        for fund in self.probes.values():
            fund.earn(plain_s)

    def takes_a_rest(self) -> bool:
        """For a draft model that does not pay: whether it rests for one more request, or has another chance."""
        if self._n_to_rest > 0:
            self._n_to_rest -= 1
            return True
        self._last_rest = self._n_to_rest = min(2 * self._last_rest, _MOST_RESTED_REQUESTS)
        return False

    def note_that_it_pays(self) -> None:
        """It pays: the next rest is a short one."""
        self._last_rest, self._n_to_rest = 1, 0
