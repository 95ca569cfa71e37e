"""What is known of a pair from running it: pass times, acceptance, and what drafting has gained or lost.

It outlives requests: the next one starts with what the last ones showed. Greedy and sampled replies are kept apart,
since acceptance and the drafter's confidence mean different things there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from localspec.speculative.acceptance import AcceptanceTable
from localspec.speculative.pass_times import PassTimes

# Drafting may lose these shares of the time of plain decoding: by drafts that promised a gain, and by probes. It starts
# with some plain tokens' worth of time for each, and can save up more.
_LOST_SHARE: Final = 0.005
_PROBED_SHARE: Final = 0.01
_CREDIT_TOKENS: Final = 4.0
_MOST_TOKENS_AT_FIRST: Final = 6.0
_MOST_TOKENS: Final = 24.0
_MOST_FUND_TOKENS: Final = 4.0
_FIRST_WAIT_STEPS: Final = 8
_LONGEST_WAIT_STEPS: Final = 256

_MOST_RESTED_REQUESTS: Final = 16

_PLACES: Final = (2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 17, 25)
# Places differ little, and one where two rejections came early would never be tested again: drafts would end before it.
_PRIOR_TESTS_OF_PLACE: Final = 24.0
_CONFIDENCES: Final = (0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.98, 0.995)
_MATCHES: Final = (2, 3, 4, 5, 7, 9, 13, 17, 25)


class Ledger:
    """Seconds that drafts may still lose against plain decoding, whatever the estimates say.

    Every draft is settled against the plain steps that it replaced, and none may be longer than `balance_s` could pay
    for if all of it were rejected. So the losses stay within a small credit, what was gained before, and a small share
    of plain decoding: this is what keeps speculation from being slower than none.
    """

    def __init__(self, plain_token_s: float) -> None:
        self._most_s, self._most_at_first_s = _MOST_TOKENS * plain_token_s, _MOST_TOKENS_AT_FIRST * plain_token_s
        self.balance_s = _CREDIT_TOKENS * plain_token_s

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
    """

    def __init__(self, plain_token_s: float) -> None:
        self._most_s = _MOST_FUND_TOKENS * plain_token_s
        self._seconds = _CREDIT_TOKENS * plain_token_s
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


@dataclass(frozen=True, slots=True)
class Agreement:
    """What to expect of a draft model before its first draft is tested: the share of tokens that the target accepts.

    A pair that somebody has chosen deserves some trust, where nothing was measured.
    """

    greedy: float = 0.85
    sampled: float = 0.85


class ModelEvidence:
    """What is known of the drafts of a draft model. `prior` is the acceptance to expect before the first test."""

    def __init__(self, plain_token_s: float, prior: float) -> None:
        self.probes = ProbeFund(plain_token_s)
        self._prior = prior
        self._overall = AcceptanceTable(())
        self._by_place = AcceptanceTable(_PLACES, prior_tests=_PRIOR_TESTS_OF_PLACE)
        self._by_confidence = AcceptanceTable(_CONFIDENCES)
        self._n_to_rest = 0
        self._last_rest = 1

    def at_place(self, place: int) -> float:
        """Acceptance of the token at `place` (from 1) before it is drafted, given that those before it are accepted."""
        return self._by_place.estimate(place, self._overall.estimate(0, self._prior))

    def once_drafted(self, confidence: float) -> float:
        """Acceptance of a token that was drafted with `confidence`, given that those before it are accepted."""
        return self._by_confidence.estimate(confidence, self._overall.estimate(0, self._prior))

    def record(self, place: int, confidence: float, *, accepted: bool) -> None:
        """The token at `place` was tested."""
        self._overall.record(0, accepted=accepted)
        self._by_place.record(place, accepted=accepted)
        self._by_confidence.record(confidence, accepted=accepted)

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


class CopyEvidence:
    """What is known of copies from the text so far."""

    def __init__(self, plain_token_s: float) -> None:
        self.probes = ProbeFund(plain_token_s)
        self._by_match = AcceptanceTable(_MATCHES)

    def after_match(self, n_matching: int) -> float:
        """Acceptance of a token that is copied from behind `n_matching` tokens like those before it."""
        return self._by_match.estimate(n_matching, 1.0 - 1.0 / (1.0 + 0.5 * n_matching))

    def record(self, n_matching: int, *, accepted: bool) -> None:
        """Such a token was tested."""
        self._by_match.record(n_matching, accepted=accepted)


class BetweenCopies:
    """How much text lies between two copies of a reply, on average. Copies that follow each other are one."""

    # Before there was any: half a copy's worth of evidence.
    _TOKENS_AT_FIRST: Final = 32.0
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


class Regime:
    """What was learned from one kind of replies, greedy or sampled. Both sources draft on one ledger."""

    def __init__(self, plain_token_s: float, agreement: float) -> None:
        self.ledger = Ledger(plain_token_s)
        self.model = ModelEvidence(plain_token_s, agreement)
        self.copies = CopyEvidence(plain_token_s)


class Evidence:
    """All that is known of a pair. `target_times` and `draft_times`: passes of the two models; None: no draft model."""

    def __init__(
        self, target_times: PassTimes, draft_times: PassTimes | None = None, agreement: Agreement | None = None
    ) -> None:
        agreement = agreement or Agreement()
        self.target_times = target_times
        self.draft_times = draft_times
        plain_token_s = target_times.seconds(1)
        self._greedy = Regime(plain_token_s, agreement.greedy)
        self._sampled = Regime(plain_token_s, agreement.sampled)

    def regime(self, *, greedy: bool) -> Regime:
        """What replies of that kind have shown."""
        return self._greedy if greedy else self._sampled
