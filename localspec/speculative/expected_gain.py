"""The adaptive policy: draft what is expected to bring more tokens than its time is worth.

Time has a price, in tokens per second: what this sequence makes of a second anyway. A draft of n tokens, the i-th of
which is accepted with probability a[i] if those before it are, brings

    gain(n) = reach[1] + ... + reach[n] - price * (time of a step with it - time of a plain step),
    reach[i] = a[1] * ... * a[i]

tokens more than a plain step, and the best (source, n) is taken if that is above 0. Maximising gain at the price of the
best rate maximises the rate itself, also where steps differ (Dinkelbach, "On nonlinear fractional programming", 1967).
While a draft model drafts, the same rule decides about each further token, with what is known by then.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from localspec.speculative.drafter import Drafter, DraftSource
from localspec.speculative.evidence import Evidence
from localspec.speculative.ledger import ProbeFund
from localspec.speculative.outlook import Outlook
from localspec.speculative.policy import Plan, StepOutcome
from localspec.speculative.prompt_lookup import PromptLookup
from localspec.speculative.reply_evidence import BetweenCopies, Rate, TextFactor

# A probe is long enough to show more than luck, and short enough to be cheap.
_PROBE_TOKENS: Final = 2
# The first token waits until the draft model has read the prompt: over the whole reply that has to save so many times
# what it takes.
_WORTH_READING: Final = 1.5
# Another chance for a draft model that does not pay: what it reads for that may take such a share of a reply. It comes
# once in several requests.
_CHANCE_SHARE: Final = 0.2
# Looking further ahead changes nothing: the reach has faded, or the first tokens pay by themselves.
_LOOK_AHEAD: Final = 8


class ExpectedGain:
    """Implements `DraftPolicy` for one request, by the evidence of its pair, to which it adds.

    `model` and `lookup` are the sources to choose from; `ceiling` and `copy_ceiling` bound their drafts. `now` is a
    clock in seconds.
    """

    def __init__(
        self,
        evidence: Evidence,
        *,
        model: Drafter | None,
        lookup: PromptLookup | None,
        greedy: bool,
        ceiling: int,
        copy_ceiling: int,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._times = evidence.target_times
        self._draft_times = evidence.draft_times
        self._evidence = evidence
        regime = evidence.regime(greedy=greedy)
        self._model_evidence, self._copy_evidence = regime.model, regime.copies
        self._regime = regime
        self._account = regime.account(evidence.batch_width)
        self._account.ledger.begin()
        self._rate = Rate()
        self._between_copies = BetweenCopies()
        self._copy_text = TextFactor()
        self._lookup = lookup
        self._model = model if self._draft_times is not None else None
        self._ceiling = ceiling
        self._copy_ceiling = copy_ceiling
        self._now = now
        self._n_other_rows = 0
        self._n_cells = 0  # tokens of context: of the prompt, then of the text so far
        self._batch_width = self._n_drafting = evidence.batch_width
        self._price = 0.0
        # Of the plan that is carried out:
        self._n_replied = 0
        self._plan: Plan | None = None
        self._is_probe = False
        self._n_matching = 0
        self._confidences: list[float] = []
        self._passes: list[tuple[int, float]] = []  # of the draft model: who shared it, and its seconds
        self._reach = 1.0
        self._n_unread = 0
        self._last_drafted_at = 0.0

    def has_read(self, n_tokens: int, seconds: float) -> None:
        """Learn what reading a prompt takes."""
        self._evidence.note_reading(n_tokens, seconds)

    def end(self) -> None:
        """Learn how long replies are."""
        if self._n_replied:
            self._regime.note_reply(self._n_replied)
        self._n_replied = 0

    # --- before a step -----------------------------------------------------------------------------------------------

    def begin(self, source: DraftSource, n_prompt: int, n_unread: int = 0, n_most: int | None = None) -> bool:
        """Copies always; the draft model if it pays, may be probed, or has rested long enough.

        What it will gain over a reply of the usual length has to be worth reading the prompt a second time.
        """
        self._n_cells = n_prompt
        if source is DraftSource.LOOKUP:
            return True
        if self._model is None or self._ceiling == 0:
            return False
        account = self._account
        outlook = self._model_outlook(self._ceiling, n_unread=1)
        _, n_draft = outlook.best(self._price_of([outlook]))
        plain_token_s = self._plain_s() / self._batch_width
        reply_s = plain_token_s * min(self._regime.n_reply, n_most or math.inf)
        saved_share = 1.0 - 1.0 / (plain_token_s * outlook.best_rate(plain_token_s))
        reading_s = self._reading_s(n_unread)
        if n_draft and _WORTH_READING * reading_s > saved_share * reply_s:
            return False
        probe_s = outlook.most_lost_s(_PROBE_TOKENS)
        if n_draft and (
            outlook.n_affordable(account.ledger.stake_s()) or self._probes(DraftSource.MODEL).may_spend(probe_s)
        ):
            account.note_that_it_pays()
            return True
        # Reading the prompt is in no ledger: a fund that has filled up meanwhile is no reason to do it.
        if reading_s > _CHANCE_SHARE * reply_s or account.takes_a_rest():
            return False
        self._probes(DraftSource.MODEL).grant(probe_s)
        return True

    def plan(self, history: Sequence[int], limit: int) -> Plan | None:
        """The source and length of the largest gain; else a probe, if the fund of its source can pay for it."""
        self._plan, self._is_probe = None, False
        self._n_cells = len(history)
        self._confidences.clear()
        self._passes.clear()
        self._reach = 1.0
        outlooks: dict[DraftSource, Outlook] = {}
        if self._model is not None:
            self._n_unread = self._model.n_unread(history)
            outlooks[DraftSource.MODEL] = self._model_outlook(min(limit, self._ceiling), self._n_unread)
        if self._lookup is not None:
            self._n_matching = self._lookup.n_matching(history)
            if self._n_matching:
                outlooks[DraftSource.LOOKUP] = self._copy_outlook(min(limit, self._copy_ceiling))
        self._price = self._price_of(outlooks.values())
        best_gain = 0.0
        for source, outlook in outlooks.items():
            stake_s = self._account.ledger.stake_s(outlook.reading_s)
            gain, n_draft = outlook.best(self._price, stake_s)
            if gain > best_gain:
                best_gain = gain
                if source is DraftSource.MODEL:  # the end of its draft is found while it drafts
                    n_draft = outlook.n_affordable(stake_s)
                self._plan = Plan(source, n_draft, self._wants_another)
        self._plan = self._plan or self._probe(outlooks)
        self._last_drafted_at = self._now()
        return self._plan

    def _probe(self, outlooks: Mapping[DraftSource, Outlook]) -> Plan | None:
        """A draft that nobody believes in, as long as the fund for them lasts.

        The draft model comes first: what it has to read up only grows, while copies cost the same at any time.
        """
        for source, outlook in outlooks.items():
            if outlook.extra_s and self._probes(source).may_spend(outlook.most_lost_s(_PROBE_TOKENS)):
                self._is_probe = True
                return Plan(source, min(_PROBE_TOKENS, len(outlook.extra_s)), self._wants_another)
        return None

    # --- inside a draft of the draft model ---------------------------------------------------------------------------

    def _wants_another(self, confidence: float, n_sharing: int = 1) -> bool:
        """Whether some number of further tokens is worth its time, after one drafted with `confidence`.

        As long as `n_sharing` sequences draft, each bears its part of a pass; the last one bears it alone.
        """
        assert self._draft_times is not None
        assert self._plan is not None
        now = self._now()
        self._passes.append((n_sharing, now - self._last_drafted_at))
        self._last_drafted_at = now
        self._confidences.append(confidence)
        n_drafted = len(self._confidences)
        if n_drafted >= self._plan.n_draft:
            return False
        if self._is_probe:
            return True
        self._reach *= self._model_evidence.once_drafted(confidence)
        reach, gain = self._reach, 0.0
        draft_s = self._draft_s(1, n_sharing)
        for n in range(n_drafted + 1, min(n_drafted + _LOOK_AHEAD, self._plan.n_draft) + 1):
            reach *= self._model_evidence.at_place(n)
            gain += reach - self._price * (draft_s + self._row_s(n))
            if gain > 0.0:
                return True
        return False

    # --- after a step ------------------------------------------------------------------------------------------------

    def update(self, outcome: StepOutcome) -> None:
        """Learn times, acceptance, the rate and what the draft has gained or lost."""
        self._see_batch(outcome)
        self._n_replied += 1 + outcome.n_accepted
        plan, self._plan = self._plan, None  # of this step: the next one may come without a plan
        source, plain_s = outcome.source, self._plain_s()
        if plan is not None and source is None:
            self._retire(plan.source)
        if plan is not None and self._confidences:
            self._learn_draft_times()
        if source is not None:
            self._learn_acceptance(source, outcome)
            self._settle(source, outcome.n_accepted * plain_s / self._batch_width - self._spent_s(outcome))
        is_copy = source is DraftSource.LOOKUP and outcome.n_accepted > 0
        self._between_copies.record(1 + outcome.n_accepted, is_copy=is_copy)
        if outcome.n_rows - outcome.n_other_rows > 1 + outcome.n_draft:
            return  # the pass also read a prompt, or its end: its time says nothing about steps
        self._times.observe(outcome.n_rows, outcome.verify_s, self._n_cells)
        step_s = outcome.draft_s + outcome.verify_s
        self._rate.add(1 + outcome.n_accepted, step_s)
        self._account.earn(min(step_s, plain_s) / self._batch_width)

    def _see_batch(self, outcome: StepOutcome) -> None:
        """Who will be in the next pass, and who will draft: those who did, or all of them, if none did.

        What pays for all together would pay for none of them alone.
        """
        self._n_other_rows, self._batch_width = outcome.n_other_rows, outcome.batch_width
        account = self._regime.account(outcome.batch_width)
        if account is not self._account:
            account.ledger.begin()
            self._account = account
        n_stepping = min(outcome.batch_width, 1 + outcome.n_other_rows)  # the others read their prompts
        n_others = outcome.n_drafting - bool(self._confidences)
        self._n_drafting = 1 + n_others if outcome.n_drafting > 0 else n_stepping

    def _settle(self, source: DraftSource, gained_s: float) -> None:
        if gained_s > 0.0:
            self._probes(source).note_gain()
        if self._is_probe and gained_s <= 0.0:
            self._probes(source).spend(-gained_s)
        else:
            self._account.ledger.settle(gained_s)

    def _learn_acceptance(self, source: DraftSource, outcome: StepOutcome) -> None:
        for i in range(min(outcome.n_accepted + 1, outcome.n_draft)):
            accepted = i < outcome.n_accepted
            if source is DraftSource.LOOKUP:
                n_matching = self._n_matching + i
                self._copy_text.record(self._copy_evidence.after_match(n_matching), accepted=accepted)
                self._copy_evidence.record(n_matching, accepted=accepted)
            else:
                self._model_evidence.record(i + 1, self._confidences[i], accepted=accepted)

    def _learn_draft_times(self) -> None:
        assert self._draft_times is not None
        (n_sharing, first_s), *further = self._passes
        self._draft_times.observe(max(1, self._n_unread) * n_sharing, first_s, self._n_cells)
        by_width: dict[int, list[float]] = {}
        for n_sharing, seconds in further:
            by_width.setdefault(n_sharing, []).append(seconds)
        for n_sharing, all_s in by_width.items():
            self._draft_times.observe(n_sharing, sum(all_s) / len(all_s), self._n_cells)

    def _spent_s(self, outcome: StepOutcome) -> float:
        """Seconds that the draft took, by the times that are usual: a hiccup of the machine is not its fault."""
        n, n_other = outcome.n_draft, outcome.n_other_rows
        spent_s = self._target_s(1 + n + n_other) - self._target_s(1 + n_other)
        if outcome.source is DraftSource.MODEL:
            widths = [n_sharing for n_sharing, _ in self._passes]
            spent_s += self._draft_s(max(1, self._n_unread), widths[0])
            spent_s += sum(self._draft_s(1, n_sharing) for n_sharing in widths[1:])
        return spent_s

    def _retire(self, source: DraftSource) -> None:
        """It was asked for a draft and had none: its context is full, or it failed. Not again in this request."""
        if source is DraftSource.LOOKUP:
            self._lookup = None
        else:
            self._model = None

    # --- outlooks ----------------------------------------------------------------------------------------------------

    def _model_outlook(self, limit: int, n_unread: int) -> Outlook:
        assert self._draft_times is not None
        n_usual = min(max(1, n_unread), 2)  # two after a draft that was accepted whole
        n_sharing = self._n_drafting
        first_s, further_s = self._draft_s(n_usual, n_sharing), self._draft_s(1, n_sharing)
        reading_s = self._draft_s(n_unread, n_sharing) - first_s if n_unread > n_usual else 0.0
        places = range(1, limit + 1)
        return Outlook.of(
            [self._model_evidence.at_place(n) for n in places],
            [(first_s if n == 1 else further_s) + self._row_s(n) for n in places],
            reading_s,
            self._between_copies.n_tokens,
        )

    def _copy_outlook(self, limit: int) -> Outlook:
        first, evidence, text = self._n_matching, self._copy_evidence, self._copy_text
        return Outlook.of(
            [text.adjust(evidence.after_match(first + i)) for i in range(limit)],
            [self._row_s(n) for n in range(1, limit + 1)],
        )

    def _row_s(self, n: int) -> float:
        """Seconds that the n-th drafted token adds to the target's pass."""
        return self._target_s(1 + n + self._n_other_rows) - self._target_s(n + self._n_other_rows)

    def _target_s(self, n_rows: int) -> float:
        """Seconds of a pass of the target over the text so far."""
        return self._times.seconds(n_rows, self._n_cells)

    def _draft_s(self, n_rows: int, n_sharing: int) -> float:
        """The same of the draft model: a sequence's part of a pass where each that shares it has `n_rows`."""
        assert self._draft_times is not None
        return self._draft_times.seconds(n_rows * n_sharing, self._n_cells) / n_sharing

    def _reading_s(self, n_tokens: int) -> float:
        """Seconds for a prompt. The first one is read to see what it takes, unless others have to wait for that."""
        if self._evidence.reading_token_s is not None:
            return n_tokens * self._evidence.reading_token_s
        return self._draft_s(n_tokens, 1) if self._batch_width > 1 and n_tokens else 0.0

    def _plain_s(self) -> float:
        """Seconds of a step in which nobody drafts: what drafts have to beat, also while others draft."""
        return self._target_s(self._batch_width)

    def _price_of(self, outlooks: Iterable[Outlook]) -> float:
        """Tokens per second of all sequences in the pass: a second of drafting makes every one of them wait.

        The measured rate, but not more than this step could reach if all did the same: after a text that was easy, it
        would be too dear.
        """
        plain_s = self._plain_s() / self._batch_width
        reachable = max((each.best_rate(plain_s) for each in outlooks), default=1.0 / plain_s)
        measured = (self._rate.tokens_per_second or math.inf) * self._batch_width
        return max(1.0 / plain_s, min(measured, reachable))

    def _probes(self, source: DraftSource) -> ProbeFund:
        return self._account.probes[source]
