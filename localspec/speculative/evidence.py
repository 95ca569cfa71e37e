"""What is known of a pair from running it: pass times, acceptance, and what drafting has gained or lost.

It outlives requests: the next one starts with what the last ones showed. Greedy and sampled replies are kept apart,
since acceptance and the drafter's confidence mean different things there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from localspec.speculative.acceptance import AcceptanceTable
from localspec.speculative.ledger import Ledger, ProbeFund
from localspec.speculative.pass_times import PassTimes

_MOST_RESTED_REQUESTS: Final = 8

_PLACES: Final = (2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 17, 25)
# Places differ little, and one where two rejections came early would never be tested again: drafts would end before it.
_PRIOR_TESTS_OF_PLACE: Final = 24.0
_CONFIDENCES: Final = (0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.98, 0.995)
_MATCHES: Final = (2, 3, 4, 5, 7, 9, 13, 17, 25)


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
