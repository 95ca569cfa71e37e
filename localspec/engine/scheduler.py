"""Which sequences share the next forward pass, and what becomes of each of them afterwards."""

from __future__ import annotations

import functools
import logging
import random
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass

from localspec.engine.context_times import learn_context_times
from localspec.engine.events import Cancelled, Failed, Finished, Queued, RequestEvent, TerminalEvent
from localspec.engine.loader import LoadedPair
from localspec.engine.metrics import MetricsRecorder
from localspec.engine.requests import MAX_NUM_SPECULATIVE_TOKENS, GenerateRequest, Mode
from localspec.engine.sequence import ActiveSequence
from localspec.errors import ContextFullError, EngineError, LocalspecError, UsageError
from localspec.llama.draft_model import DraftModelDrafter
from localspec.llama.sampler import SamplerChain
from localspec.llama.sequence_cache import SequenceCache
from localspec.speculative.drafter import Drafter, DraftSource
from localspec.speculative.evidence import Evidence
from localspec.speculative.expected_gain import ExpectedGain
from localspec.speculative.policy import DraftPolicy, FixedLength
from localspec.speculative.prompt_lookup import PromptLookup
from localspec.speculative.step import SpeculativeStep

logger = logging.getLogger(__name__)

Emit = Callable[[RequestEvent], None]


@dataclass(slots=True)
class _Slot:
    """What stays of a sequence between requests: caches that the next prompt may begin with."""

    target: SequenceCache
    draft: SequenceCache | None
    lookup: PromptLookup


@dataclass(frozen=True, slots=True)
class _Waiting:
    request: GenerateRequest
    seed: int
    metrics: MetricsRecorder


class Scheduler:
    """Runs requests over one loaded pair, in steps. Every request that was submitted gets one terminal event."""

    def __init__(self, pair: LoadedPair, emit: Emit, *, n_slots: int = 1, verifies_blocks: bool = True) -> None:
        """`verifies_blocks` False: every draft is verified token by token, for comparison."""
        self._pair = pair
        self._emit = emit
        self._verifies_blocks = verifies_blocks
        self._waiting: deque[_Waiting] = deque()
        self._active: list[ActiveSequence] = []
        self._slot_of: dict[str, _Slot] = {}
        pair.target.context.clear_all()
        self._free = [
            _Slot(
                target=SequenceCache(pair.target.context, seq_id),
                draft=None,
                lookup=PromptLookup(pair.spec.lookup_min_ngram, pair.spec.lookup_max_ngram),
            )
            for seq_id in range(n_slots)
        ]
        self.use(pair)

    def use(self, pair: LoadedPair) -> None:
        """Go on with a pair of the same target, whose caches are kept; there must be no request.

        What was learned of drafts is forgotten; the target's pass times are not.
        """
        assert self.is_idle
        self._pair = pair
        self._evidence = Evidence(pair.target.pass_times, pair.draft.pass_times if pair.draft else None, pair.agreement)
        if pair.draft is not None:
            pair.draft.context.clear_all()
        for slot in self._free:
            slot.draft = SequenceCache(pair.draft.context, slot.target.seq_id) if pair.draft else None

    @property
    def is_idle(self) -> bool:
        """True when a step would do nothing."""
        return not self._active and not self._waiting

    def submit(self, request: GenerateRequest) -> None:
        """Queue a request."""
        seed = request.sampling.seed
        seed = secrets.randbits(32) if seed is None else seed
        mode, note = self._mode_of(request)
        self._waiting.append(_Waiting(request, seed, MetricsRecorder()))
        self._emit(Queued(request.request_id, seed, mode, note))

    def cancel(self, request_id: str) -> None:
        """End a request; unknown ids are ignored."""
        for sequence in self._active:
            if sequence.request.request_id == request_id:
                self._end(sequence, sequence.cancelled())
                return
        for waiting in self._waiting:
            if waiting.request.request_id == request_id:
                self._waiting.remove(waiting)
                self._emit(Cancelled(request_id, (), waiting.metrics.snapshot()))
                return

    def fail_all(self, error: LocalspecError) -> None:
        """End every request with an error."""
        while self._waiting:
            self._emit(Failed(self._waiting.popleft().request.request_id, error))
        for sequence in list(self._active):
            self._end(sequence, Failed(sequence.request.request_id, error))

    # --- one step ----------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Admit what fits, then advance every active sequence by one forward pass."""
        while self._waiting and self._free:
            self._admit(self._waiting.popleft())
        self._learn_context()
        prefilling: list[tuple[ActiveSequence, int]] = []
        stepping: list[tuple[ActiveSequence, float, int]] = []  # with the draft model's seconds and the step's rows
        context = self._pair.target.context
        # Decoding sequences first: a long prompt takes what they leave of the batch.
        for sequence in sorted(self._active, key=lambda each: each.n_pending):
            room = context.n_batch - context.n_pending
            with self._guarded(sequence):
                if sequence.prefill_drafters() and sequence.n_pending <= self._most_pending(room):
                    self._learn_draft_context(sequence)
                    drafted_s = self._draft_native_s()
                    n_step_rows = sequence.propose(room)
                    stepping.append((sequence, self._draft_native_s() - drafted_s, n_step_rows))
                elif room > 0 and sequence.n_pending > 1:
                    prefilling.append((sequence, sequence.add_prefill(room)))
                elif sequence.n_pending == 1:  # only the draft model is reading
                    self._emit(sequence.prefilling())
        if not context.n_pending:
            return
        n_rows = context.n_pending
        started = time.perf_counter()
        try:
            context.decode()
        except LocalspecError as error:
            self._decode_failed([*(each[0] for each in stepping), *(each[0] for each in prefilling)], error)
            return
        decode_s = time.perf_counter() - started
        batch_width = len(stepping) + len(prefilling)
        for sequence, n_tokens in prefilling:
            sequence.prefilled(n_tokens, decode_s)
            self._emit(sequence.prefilling())
        all_step_rows = sum(n_step_rows for _, _, n_step_rows in stepping)
        for sequence, drafted_s, n_step_rows in stepping:
            with self._guarded(sequence):
                events = sequence.verify(
                    decode_s=decode_s,
                    draft_pass_s=drafted_s,
                    n_rows=n_rows,
                    n_other_rows=all_step_rows - n_step_rows,
                    batch_width=batch_width,
                )
                self._deliver(sequence, events)

    def _learn_context(self) -> None:
        """Whose prompt has just been read shows what attention takes over so long a text."""
        for sequence in list(self._active):
            if self._shows_context_times(sequence):
                with self._guarded(sequence):
                    cache, n_outputs = self._slot_of[sequence.request.request_id].target, 1 + MAX_NUM_SPECULATIVE_TOKENS
                    learn_context_times(self._evidence.target_times, cache, n_outputs_max=n_outputs)

    def _shows_context_times(self, sequence: ActiveSequence) -> bool:
        """Whether its drafts adapt to times, and its first step comes next."""
        if sequence.has_begun or sequence.n_pending > self._most_pending(self._pair.target.context.n_batch):
            return False
        request = sequence.request
        return not request.fixed_length and self._mode_of(request)[0] is not Mode.PLAIN

    def _learn_draft_context(self, sequence: ActiveSequence) -> None:
        draft, times = self._pair.draft, self._evidence.draft_times
        cache = self._slot_of[sequence.request.request_id].draft
        if draft is None or times is None or cache is None or not self._shows_context_times(sequence):
            return
        ratio = draft.model.attention_size / self._pair.target.model.attention_size
        times.assume_context(self._evidence.target_times, ratio)
        with suppress(LocalspecError):  # a draft model that fails costs speed, never the reply
            learn_context_times(times, cache, n_outputs_max=1)

    def _most_pending(self, room: int) -> int:
        """A step may carry the rest of a prompt, so that the first token needs no pass of its own."""
        if self._pair.target.max_rollback is not None:
            return 1  # snapshots of a recurrent state are few: none for tokens of the prompt
        return max(1, room - 1 - MAX_NUM_SPECULATIVE_TOKENS)

    def _deliver(self, sequence: ActiveSequence, events: tuple[RequestEvent, ...]) -> None:
        for event in events:
            if isinstance(event, Finished):
                self._end(sequence, event)
            else:
                self._emit(event)

    def _decode_failed(self, sequences: list[ActiveSequence], error: LocalspecError) -> None:
        for sequence in sequences:
            sequence.speculation.abandon()
            sequence.cache.clear()
            self._end(sequence, Failed(sequence.request.request_id, error))

    def _draft_native_s(self) -> float:
        return self._pair.draft.context.native_s if self._pair.draft else 0.0

    # --- admission and end -------------------------------------------------------------------------------------------

    def _admit(self, waiting: _Waiting) -> None:
        slot = self._free.pop()
        request = waiting.request
        try:
            sequence = self._start(waiting, slot)
        except Exception as error:
            self._free.append(slot)
            self._emit(Failed(request.request_id, _for_the_user(error, request)))
            return
        self._slot_of[request.request_id] = slot
        self._active.append(sequence)
        self._emit(sequence.prefilling())

    def _start(self, waiting: _Waiting, slot: _Slot) -> ActiveSequence:
        pair, request = self._pair, waiting.request
        prompt = pair.encoder.encode(request.prompt)
        n_ctx = pair.target.context.n_ctx
        if not prompt:
            raise UsageError("The prompt is empty.", hint="Write something for the model to continue.")
        if len(prompt) >= n_ctx:
            raise ContextFullError.for_prompt(len(prompt), n_ctx)
        rng = random.Random(waiting.seed)
        target = pair.target.model
        ends_generation = target.end_of_generation.__contains__

        with ExitStack() as owned:
            sampler = owned.enter_context(SamplerChain(target, request.sampling, n_ctx=n_ctx, seed=waiting.seed))
            drafters = self._drafters(waiting, slot, n_ctx, rng)
            for drafter in drafters.values():
                owned.enter_context(closing(drafter))
            speculation = SpeculativeStep(
                drafters,
                self._policy(request, drafters, slot.lookup),
                ends_generation,
                rows_are_memoryless=self._verifies_blocks and sampler.is_memoryless,
            )
            sequence = ActiveSequence(
                request,
                prompt=prompt,
                cache=slot.target,
                sampler=sampler,
                speculation=speculation,
                rng=rng,
                token_bytes=target.token_bytes,
                ends_generation=ends_generation,
                max_draft=self._max_draft(),
                metrics=waiting.metrics,
            )
            owned.pop_all()  # the sequence closes them from now on
        return sequence

    def _policy(
        self, request: GenerateRequest, drafters: dict[DraftSource, Drafter], lookup: PromptLookup
    ) -> DraftPolicy:
        # The draft model never reads its own last token.
        of_draft = self._pair.draft.max_rollback if self._pair.draft else None
        model_ceiling = request.ceiling(DraftSource.MODEL)
        ceilings = {
            DraftSource.MODEL: model_ceiling if of_draft is None else min(model_ceiling, of_draft + 1),
            DraftSource.LOOKUP: request.ceiling(DraftSource.LOOKUP),
        }
        if request.fixed_length or not drafters:
            return FixedLength({source: ceilings[source] for source in drafters})
        return ExpectedGain(
            self._evidence,
            model=drafters.get(DraftSource.MODEL),
            lookup=lookup if DraftSource.LOOKUP in drafters else None,
            greedy=request.sampling.greedy,
            ceiling=ceilings[DraftSource.MODEL],
            copy_ceiling=ceilings[DraftSource.LOOKUP],
        )

    def _drafters(self, waiting: _Waiting, slot: _Slot, n_ctx: int, rng: random.Random) -> dict[DraftSource, Drafter]:
        mode, _ = self._mode_of(waiting.request)
        drafters: dict[DraftSource, Drafter] = {}
        if mode in (Mode.AUTO, Mode.LOOKUP):
            drafters[DraftSource.LOOKUP] = slot.lookup
        if mode in (Mode.AUTO, Mode.DRAFT) and slot.draft is not None:
            drafters[DraftSource.MODEL] = self._draft_model(waiting, slot.draft, n_ctx, rng)
        return drafters

    def _draft_model(
        self, waiting: _Waiting, cache: SequenceCache, n_ctx: int, rng: random.Random
    ) -> DraftModelDrafter:
        target, sampling = self._pair.target.model, waiting.request.sampling
        # Token ids are shared, so the request's transforms are those over the target's vocabulary, as far as both have
        # it: the models may differ in padding, in what ends a reply, and in the text of their first few tokens.
        n_vocab = min(cache.context.n_vocab, target.n_vocab)
        make_sampler = functools.partial(
            SamplerChain, target, sampling, n_ctx=n_ctx, seed=waiting.seed, n_vocab=n_vocab
        )
        ends_generation = target.end_of_generation.__contains__
        return DraftModelDrafter(cache, make_sampler, rng, greedy=sampling.greedy, ends_generation=ends_generation)

    def _mode_of(self, request: GenerateRequest) -> tuple[Mode, str]:
        """The mode that will run, and why it is another than the one asked for, if it is."""
        if request.num_speculative_tokens == 0:
            return Mode.PLAIN, ""
        if request.mode is not Mode.PLAIN and self._pair.target.max_rollback == 0:
            return Mode.PLAIN, f"{self._pair.speculation_note}."
        if request.mode is Mode.AUTO and self._pair.draft is None:
            return Mode.LOOKUP, ""
        if request.mode is Mode.DRAFT and self._pair.draft is None:
            note = self._pair.speculation_note or "No draft model is loaded"
            return Mode.LOOKUP, f"{note}; drafts are copied from the text so far (lookup)."
        return request.mode, ""

    def _max_draft(self) -> int:
        """The longest draft that the target can take back."""
        most = self._pair.target.max_rollback
        return MAX_NUM_SPECULATIVE_TOKENS if most is None else min(most, MAX_NUM_SPECULATIVE_TOKENS)

    def _end(self, sequence: ActiveSequence, event: TerminalEvent) -> None:
        self._active.remove(sequence)
        self._free.append(self._slot_of.pop(sequence.request.request_id))
        sequence.close()
        self._emit(event)

    @contextmanager
    def _guarded(self, sequence: ActiveSequence) -> Iterator[None]:
        """A failure inside ends this sequence, and only this one."""
        try:
            yield
        except Exception as error:
            self._end(sequence, Failed(sequence.request.request_id, _for_the_user(error, sequence.request)))


def _for_the_user(error: Exception, request: GenerateRequest) -> LocalspecError:
    """The error itself, or for a fault of ours one that says so."""
    if isinstance(error, LocalspecError):
        return error
    logger.error("Request %s failed", request.request_id, exc_info=error)
    return EngineError(
        f"The engine failed: {type(error).__name__}: {error}.", hint="This is a bug; the log has the details."
    )
