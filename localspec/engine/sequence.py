"""One request while it runs: its history, cache, drafter, sampler, text and numbers."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Sequence

from localspec.engine.detokenizer import Detokenizer
from localspec.engine.events import (
    Cancelled,
    Finished,
    FinishReason,
    Prefilling,
    RequestEvent,
    Step,
    StepDecoded,
    TextSpan,
    TokenChance,
    TokenLogprobs,
)
from localspec.engine.line_limits import LineWatch
from localspec.engine.metrics import MetricsRecorder
from localspec.engine.requests import GenerateRequest
from localspec.engine.slots import Slot
from localspec.engine.stopping import StopStrings
from localspec.llama.logprobs import log_probabilities
from localspec.llama.sampler import SamplerChain
from localspec.speculative.distribution import TokenDistribution
from localspec.speculative.drafter import EMPTY_DRAFT, Draft, Drafting
from localspec.speculative.rejection import Origin, Verification
from localspec.speculative.step import SpeculativeStep


class ActiveSequence:
    """A request on its way from prompt to last token. The scheduler drives it; the forward pass is not in here."""

    def __init__(
        self,
        request: GenerateRequest,
        *,
        prompt: list[int],
        slot: Slot,
        sampler: SamplerChain,
        speculation: SpeculativeStep,
        rng: random.Random,
        token_bytes: Callable[[int], bytes],
        ends_generation: Callable[[int], bool],
        max_draft: int,
        metrics: MetricsRecorder,
    ) -> None:
        self.request = request
        self.history = prompt
        self.slot = slot
        self.cache = slot.target
        self.is_paused = False
        self.speculation = speculation
        self.metrics = metrics
        self._n_prompt = len(prompt)
        n_free = self.cache.context.n_ctx - len(prompt)
        self._n_max_tokens = n_free if request.max_tokens is None else min(request.max_tokens, n_free)
        self._sampler = sampler
        self._rng = rng
        self._token_bytes = token_bytes
        self._ends_generation = ends_generation
        self._max_draft = max_draft
        self._detokenizer = Detokenizer(token_bytes)
        self._stops = StopStrings(request.stop)
        self._lines = LineWatch(request.line_limits) if request.line_limits is not None else None
        self._last_origin = Origin.TARGET
        self._draft: Draft = EMPTY_DRAFT
        self._first_row = self._first_output_row = 0
        self._step_started = 0.0
        self.cache.keep_common_prefix(prompt)
        sampler.accept_prompt(prompt)
        speculation.start(prompt, self._n_max_tokens)
        self._n_for_drafters: int | None = None
        self._n_cached = self.cache.n_past
        metrics.prompt(len(prompt), self._n_cached)

    def close(self) -> None:
        """Free what belongs to the request; the caches stay."""
        self.speculation.close()
        self._sampler.close()

    # --- prefill -------------------------------------------------------------------------------------------------

    @property
    def n_pending(self) -> int:
        """Tokens of the history that the target has not seen: 1 between steps, more during prefill."""
        return len(self.history) - self.cache.n_past

    @property
    def has_begun(self) -> bool:
        """Whether there is a token of the reply."""
        return len(self.history) > self._n_prompt

    def pause(self) -> None:
        """Give its cells to others. It goes on where it was, once the models have read its text again."""
        self.is_paused = True
        self.slot.clear()
        self._n_for_drafters = None

    def prefill_drafters(self, max_tokens: int) -> bool:
        """Let the drafters read a chunk of the prompt; True when they have nothing left to read."""
        if self._n_for_drafters != 0:
            self._n_for_drafters = self.speculation.prefill(self.history, max_tokens)
        return self._n_for_drafters == 0

    def prefilling(self) -> Prefilling:
        """How far the prompt is."""
        n_for_draft = self._n_for_drafters or 0
        n_done = min(self.cache.n_past, self._n_prompt)
        return Prefilling(self.request.request_id, n_done, self._n_prompt, self._n_cached, n_for_draft)

    def add_prefill(self, room: int) -> int:
        """Put the next chunk of the prompt into the batch, all but the last token; returns its size."""
        chunk = self.history[self.cache.n_past : -1][:room]
        self._first_row = self.cache.add(chunk, n_outputs=0)
        return len(chunk)

    def prefilled(self, n_tokens: int, seconds: float) -> None:
        """The chunk was decoded."""
        chunk = self.history[self.cache.n_past :][:n_tokens]
        self.speculation.observe(chunk, self.cache.n_past, self._first_row)
        self.cache.confirm(chunk)
        self.metrics.prefilled(seconds)

    # --- one step: propose -> (decode) -> verify -> commit ---------------------------------------------------------

    def propose(self, room: int) -> Drafting:
        """The draft of a step that has at most `room` rows, those of pending tokens included."""
        self._step_started = time.perf_counter()
        n_generated = len(self.history) - self._n_prompt
        limit = min(self._n_max_tokens - n_generated - 1, room - self.n_pending, self._max_draft)
        return self.speculation.propose(self.history, max(0, limit))

    def add_step(self, draft: Draft) -> int:
        """Put the pending tokens and the draft into the batch; returns the rows that every such step has.

        The rest of a prompt, which the first step may carry, is not among them.
        """
        self._draft = draft
        rows = [*self.history[self.cache.n_past :], *draft.tokens]
        self._first_row = self.cache.add(rows, n_outputs=1 + len(draft))
        self._first_output_row = self._first_row + self.n_pending - 1
        return 1 + len(draft)

    def distribution(self, row: int) -> TokenDistribution:
        """`TargetRows`: the target's distribution after the history and `row` accepted draft tokens."""
        return self._sampler.distribution(self.cache.context.logits(self._first_output_row + row))

    def accept(self, token: int) -> None:
        """`TargetRows`: the token is committed."""
        self._sampler.accept(token)

    def verify(
        self,
        *,
        decode_s: float,
        draft_pass_s: float,
        n_rows: int,
        n_other_rows: int,
        batch_width: int,
        n_drafting: int = 0,
    ) -> tuple[RequestEvent, ...]:
        """Judge the draft by the rows just decoded, commit, and tell what happened.

        `decode_s`: the target's forward pass; `draft_pass_s`: those of the draft model in this step. The others are
        those of `StepOutcome`.
        """
        draft, n_history = self._draft, len(self.history)
        decoded_tokens = [*self.history[self.cache.n_past :], *draft.tokens]
        self.speculation.observe(decoded_tokens, self.cache.n_past, self._first_row)
        self.cache.confirm(decoded_tokens)
        try:
            verification = self.speculation.verify(draft, self, self._rng)
        finally:
            self._draft = EMPTY_DRAFT
        self.history.extend(verification.tokens)
        self.cache.rollback(n_history + verification.n_accepted)
        outcome = self.speculation.record(
            decode_s, n_rows=n_rows, n_other_rows=n_other_rows, batch_width=batch_width, n_drafting=n_drafting
        )

        spans, n_kept, reason = self._release(verification)
        step_s = time.perf_counter() - self._step_started
        self.metrics.step(
            n_tokens=n_kept,
            n_draft=len(draft),
            n_accepted=verification.n_accepted,
            source=outcome.source,
            draft_s=outcome.draft_s,
            draft_pass_s=draft_pass_s,
            verify_s=decode_s,
            judge_s=outcome.verify_s - decode_s,
            step_s=step_s,
        )
        step = Step(
            tokens=verification.tokens[:n_kept],
            origins=verification.origins[:n_kept],
            n_draft=len(draft),
            n_accepted=verification.n_accepted,
            step_s=step_s,
            source=outcome.source,
        )
        logprobs = self._logprobs(step.tokens) if self.request.n_logprobs is not None else ()
        decoded = StepDecoded(self.request.request_id, spans, step, self.metrics.snapshot(), logprobs)
        if reason is None:
            return (decoded,)
        rest = self._flush()
        if self._stops.matched is not None:
            reason = FinishReason.STOP  # one stop string inside another was only decided now
        return decoded, Finished(self.request.request_id, rest, reason, decoded.metrics, self._stops.matched)

    def only_read(self) -> tuple[RequestEvent, ...]:
        """The end of a request that asks for no token: its prompt is in the cache."""
        return (Finished(self.request.request_id, (), FinishReason.LENGTH, self.metrics.snapshot()),)

    def _logprobs(self, tokens: tuple[int, ...]) -> tuple[TokenLogprobs, ...]:
        """Of the tokens just committed, by their rows, which the next pass overwrites."""
        told = []
        for row, token in enumerate(tokens):
            if self._ends_generation(token):
                break
            ids, values = log_probabilities(
                self.cache.context.logits(self._first_output_row + row), token, self.request.n_logprobs or 0
            )
            chosen, *likeliest = (
                TokenChance(each, self._token_bytes(each), value) for each, value in zip(ids, values, strict=True)
            )
            told.append(TokenLogprobs(chosen, tuple(likeliest)))
        return tuple(told)

    def cancelled(self) -> Cancelled:
        """The terminal event of a request that was asked to stop."""
        return Cancelled(self.request.request_id, self._flush(), self.metrics.snapshot())

    # --- text ------------------------------------------------------------------------------------------------------

    def _release(self, verification: Verification) -> tuple[tuple[TextSpan, ...], int, FinishReason | None]:
        """Text of the committed tokens up to where the reply ends; how many tokens that is, and why it ends."""
        spans: list[TextSpan] = []
        n_generated = len(self.history) - self._n_prompt - len(verification.tokens)
        for n, (token, origin) in enumerate(zip(verification.tokens, verification.origins, strict=True), start=1):
            if self._ends_generation(token):
                return _joined(spans), n, FinishReason.STOP
            self._last_origin = origin
            text = self._detokenizer.push(token)
            if text:
                spans.extend(self._until_lines_end(self._stops.push((TextSpan(text, origin),))))
            if self._stops.matched is not None:
                return _joined(spans), n, FinishReason.STOP
            if self._lines is not None and self._lines.is_over:
                return _joined(spans), n, FinishReason.LENGTH
            if n_generated + n == self.request.max_tokens:
                return _joined(spans), n, FinishReason.LENGTH
            if n_generated + n == self._n_max_tokens:
                return _joined(spans), n, FinishReason.CONTEXT_FULL
        return _joined(spans), len(verification.tokens), None

    def _flush(self) -> tuple[TextSpan, ...]:
        if self._stops.matched is not None:
            return ()
        tail = self._detokenizer.flush()
        released = self._stops.push((TextSpan(tail, self._last_origin),)) if tail else ()
        rest = self._until_lines_end((*released, *self._stops.flush()))
        return _joined([*rest, *(self._lines.flush() if self._lines is not None else ())])

    def _until_lines_end(self, spans: Sequence[TextSpan]) -> Sequence[TextSpan]:
        return spans if self._lines is None else self._lines.push(spans)


def _joined(spans: list[TextSpan]) -> tuple[TextSpan, ...]:
    """Neighbours of one origin as one span: fewer, larger pieces for the front end."""
    runs = itertools.groupby(spans, key=lambda span: span.origin)
    return tuple(TextSpan("".join(span.text for span in run), origin) for origin, run in runs)
