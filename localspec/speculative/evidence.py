"""What is known of a pair from running it: pass times, acceptance, and what drafting has gained or lost.

It outlives requests: the next one starts with what the last ones showed. Greedy and sampled replies are kept apart,
since acceptance and the drafter's confidence mean different things there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from localspec.speculative.acceptance import AcceptanceTable
from localspec.speculative.ledger import Account
from localspec.speculative.pass_times import PassTimes

# A prompt's pieces below so many tokens say little of what one takes; a new piece moves the estimate by this share.
_LEAST_READ: Final = 32
_READING_STEP: Final = 0.2
# Tokens of a reply before there were any, and the share by which one moves the estimate.
_USUAL_REPLY: Final = 128.0
_REPLY_STEP: Final = 0.1
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

    def __init__(self, prior: float) -> None:
        self._prior = prior
        self._overall = AcceptanceTable(())
        self._by_place = AcceptanceTable(_PLACES, prior_tests=_PRIOR_TESTS_OF_PLACE)
        self._by_confidence = AcceptanceTable(_CONFIDENCES)

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


class CopyEvidence:
    """What is known of copies from the text so far."""

    def __init__(self) -> None:
        self._by_match = AcceptanceTable(_MATCHES)

    def after_match(self, n_matching: int) -> float:
        """Acceptance of a token that is copied from behind `n_matching` tokens like those before it."""
        return self._by_match.estimate(n_matching, 1.0 - 1.0 / (1.0 + 0.5 * n_matching))

    def record(self, n_matching: int, *, accepted: bool) -> None:
        """Such a token was tested."""
        self._by_match.record(n_matching, accepted=accepted)


class Regime:
    """What was learned from one kind of replies, greedy or sampled.

    Acceptance is the same whoever else is served. Whether it pays is not: what drafts gain while a reply is alone must
    not be lost by drafts beside others, so that there is an account for one, for two, for three or four sequences ...
    """

    def __init__(self, times: PassTimes, agreement: float) -> None:
        self.model = ModelEvidence(agreement)
        self.copies = CopyEvidence()
        self.n_reply = _USUAL_REPLY
        self._times = times
        self._accounts: dict[int, Account] = {}

    def note_reply(self, n_tokens: int) -> None:
        """A reply has ended. `n_reply` is how long they are, lately."""
        self.n_reply += _REPLY_STEP * (n_tokens - self.n_reply)

    def account(self, batch_width: int) -> Account:
        """What drafts may lose while a pass serves so many sequences. Both sources draft on one account."""
        doubled = (batch_width - 1).bit_length()
        if doubled not in self._accounts:
            self._accounts[doubled] = Account(self._times.seconds(batch_width) / batch_width)
        return self._accounts[doubled]


class Evidence:
    """All that is known of a pair. `target_times` and `draft_times`: passes of the two models; None: no draft model.

    `batch_width`: how many sequences a pass serves at present, for those that begin. `reading_token_s`: what the draft
    model takes for a token of a prompt; None before it has read one.
    """

    def __init__(
        self, target_times: PassTimes, draft_times: PassTimes | None = None, agreement: Agreement | None = None
    ) -> None:
        agreement = agreement or Agreement()
        self.target_times = target_times
        self.draft_times = draft_times
        self.batch_width = 1
        self.reading_token_s: float | None = None
        self._greedy = Regime(target_times, agreement.greedy)
        self._sampled = Regime(target_times, agreement.sampled)

    def note_reading(self, n_tokens: int, seconds: float) -> None:
        """The draft model has read so much of a prompt at once."""
        if n_tokens < _LEAST_READ:
            return
        before = self.reading_token_s or seconds / n_tokens
        self.reading_token_s = before + _READING_STEP * (seconds / n_tokens - before)

    def regime(self, *, greedy: bool) -> Regime:
        """What replies of that kind have shown."""
        return self._greedy if greedy else self._sampled
