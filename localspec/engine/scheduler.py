"""Which sequences share the next forward pass, and what becomes of each of them afterwards."""

from __future__ import annotations

import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from localspec.engine.assembly import Admitted, Assembly
from localspec.engine.context_times import learn_context_times
from localspec.engine.drafting import DraftUnderWay, draft_together
from localspec.engine.events import Cancelled, Failed, Finished, Queued, RequestEvent, TerminalEvent
from localspec.engine.loader import LoadedPair
from localspec.engine.metrics import MetricsRecorder
from localspec.engine.questions import EngineUsage
from localspec.engine.requests import MAX_NUM_SPECULATIVE_TOKENS, GenerateRequest, Mode
from localspec.engine.sequence import ActiveSequence
from localspec.engine.slots import Slots
from localspec.errors import ContextFullError, EngineError, LocalspecError, UsageError
from localspec.speculative.evidence import Evidence

logger = logging.getLogger(__name__)

Emit = Callable[[RequestEvent], None]

_MOST_STEP_ROWS: Final = 1 + MAX_NUM_SPECULATIVE_TOKENS
# While others wait for their next token, a chunk of a prompt may take a pass so long: as many seconds, or so many times
# what a plain step of theirs takes. Smaller chunks than the last would read no prompt in reasonable time.
_PATIENCE_S: Final = 0.1
_PATIENCE_STEPS: Final = 6.0
_LEAST_CHUNK: Final = 32
# A pass with so many tokens of prompts tells how fast prompts are read; each moves the estimate by this share.
_WIDE_PASS: Final = 48
_PROMPT_SPEED_STEP: Final = 0.2


@dataclass(slots=True)
class _Waiting:
    admitted: Admitted
    prompt: list[int] | None = None  # once it was encoded

    @property
    def request(self) -> GenerateRequest:
        return self.admitted.request


@dataclass(slots=True)
class _Stepping:
    """A sequence in its step, with its draft and the rows that the step has of its own."""

    sequence: ActiveSequence
    draft: DraftUnderWay
    n_rows: int = 0


class Scheduler:
    """Runs requests over one loaded pair, in steps. Every request that was submitted gets one terminal event."""

    def __init__(self, pair: LoadedPair, emit: Emit, *, n_slots: int = 1, verifies_blocks: bool = True) -> None:
        """`verifies_blocks` False: every draft is verified token by token, for comparison."""
        self._emit = emit
        self._verifies_blocks = verifies_blocks
        self._waiting: deque[_Waiting] = deque()
        self._active: list[ActiveSequence] = []  # the oldest first
        self._slots = Slots(pair, n_slots)
        self._prompt_token_s: float | None = None  # seconds of the target for a token of a prompt, once it read one
        self._know(pair)

    def use(self, pair: LoadedPair) -> None:
        """Go on with a pair of the same target, whose caches are kept; there must be no request.

        What was learned of drafts is forgotten; the target's pass times are not.
        """
        assert self.is_idle
        self._slots.use_draft_of(pair)
        self._know(pair)

    def _know(self, pair: LoadedPair) -> None:
        self._pair = pair
        self._evidence = Evidence(pair.target.pass_times, pair.draft.pass_times if pair.draft else None, pair.agreement)
        self._assembly = Assembly(pair, self._evidence, verifies_blocks=self._verifies_blocks)

    @property
    def is_idle(self) -> bool:
        """True when a step would do nothing."""
        return not self._active and not self._waiting

    def usage(self) -> EngineUsage:
        """What the slots hold now."""
        return EngineUsage(self._slots.usage(), len(self._waiting), self._pair.target.context.n_ctx)

    def submit(self, request: GenerateRequest) -> None:
        """Queue a request."""
        seed = request.sampling.seed
        seed = secrets.randbits(32) if seed is None else seed
        mode, note = self._assembly.mode_of(request)
        self._waiting.append(_Waiting(Admitted(request, seed, MetricsRecorder())))
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
                self._emit(Cancelled(request_id, (), waiting.admitted.metrics.snapshot()))
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
        self._admit_what_fits()
        self._learn_context()
        running = self._with_room()
        chunk = self._largest_chunk(running)
        # Cells that there were when a request was admitted may be those of other replies by now.
        room = min(self._pair.target.context.n_batch, self._slots.n_free_cells)
        ready: list[ActiveSequence] = []
        reading: list[ActiveSequence] = []
        for sequence in sorted(running, key=lambda each: each.n_pending):
            if self._is_ready(sequence, chunk, room):
                ready.append(sequence)
                room -= sequence.n_pending
                chunk -= sequence.n_pending - 1
            elif sequence in self._active:
                reading.append(sequence)
        stepping = self._draft(ready)
        prefilling = self._add_prompts(reading, chunk)
        if self._pair.target.context.n_pending:
            self._run_pass(stepping, prefilling)

    def _is_ready(self, sequence: ActiveSequence, chunk: int, room: int) -> bool:
        """Whether it and its drafters have read what they need for a step; the drafters read on otherwise."""
        with self._guarded(sequence):
            drafters_are_ready = sequence.prefill_drafters(max(1, chunk))
            if drafters_are_ready and sequence.n_pending <= self._most_pending(sequence, chunk, room):
                if sequence.request.max_tokens == 0:
                    self._deliver(sequence, sequence.only_read())
                    return False
                self._learn_draft_context(sequence)
                return True
            if sequence.n_pending == 1:  # only the draft model is reading
                self._emit(sequence.prefilling())
        return False

    def _draft(self, ready: list[ActiveSequence]) -> list[_Stepping]:
        """Begin the steps of these sequences: their drafts, and the rows of both in the batch."""
        # Each has an equal part of the batch and of the cache, beyond what it has to read anyway.
        n_rows = min(self._pair.target.context.n_batch, self._slots.n_free_cells)
        n_to_share = max(0, n_rows - sum(each.n_pending for each in ready))
        stepping = []
        for sequence in ready:
            room = sequence.n_pending + n_to_share // len(ready)
            stepping.append(_Stepping(sequence, DraftUnderWay(sequence.propose(room), sequence.slot.draft)))
        draft_together([each.draft for each in stepping])
        for each in stepping:
            with self._guarded(each.sequence):
                if each.draft.failure is not None:
                    raise each.draft.failure
                each.n_rows = each.sequence.add_step(each.draft.draft)
        return [each for each in stepping if each.n_rows]

    def _add_prompts(self, reading: list[ActiveSequence], chunk: int) -> list[tuple[ActiveSequence, int]]:
        """Prompts take what steps leave of the batch, the shortest first: nobody waits long for a short one."""
        context = self._pair.target.context
        prefilling = []
        for sequence in reading:
            room = min(chunk, context.n_batch - context.n_pending, self._slots.n_free_cells - context.n_pending)
            if sequence.n_pending > 1 and room > 0:
                n_tokens = sequence.add_prefill(room)
                chunk -= n_tokens
                prefilling.append((sequence, n_tokens))
        return prefilling

    def _run_pass(self, stepping: list[_Stepping], prefilling: list[tuple[ActiveSequence, int]]) -> None:
        context = self._pair.target.context
        n_rows = context.n_pending
        started = time.perf_counter()
        try:
            context.decode()
        except LocalspecError as error:
            self._decode_failed([*(each.sequence for each in stepping), *(each[0] for each in prefilling)], error)
            return
        decode_s = time.perf_counter() - started
        if sum(n_tokens for _, n_tokens in prefilling) >= _WIDE_PASS:
            self._learn_prompt_speed(decode_s / n_rows)
        batch_width = len(stepping) + len(prefilling)
        for sequence, n_tokens in prefilling:
            sequence.prefilled(n_tokens, decode_s)
            self._emit(sequence.prefilling())
        all_step_rows = sum(each.n_rows for each in stepping)
        n_drafting = sum(each.draft.has_read for each in stepping)
        for each in stepping:
            with self._guarded(each.sequence):
                events = each.sequence.verify(
                    decode_s=decode_s,
                    draft_pass_s=each.draft.pass_s,
                    n_rows=n_rows,
                    n_other_rows=all_step_rows - each.n_rows,
                    batch_width=batch_width,
                    n_drafting=n_drafting,
                )
                self._deliver(each.sequence, events)

    def _learn_prompt_speed(self, token_s: float) -> None:
        """Wide passes take less for a row than what narrow ones promise."""
        before = self._prompt_token_s or token_s
        self._prompt_token_s = before + _PROMPT_SPEED_STEP * (token_s - before)

    def _largest_chunk(self, running: list[ActiveSequence]) -> int:
        """How much of prompts the next pass may read, so that replies keep moving."""
        n_batch = self._pair.target.context.n_batch
        n_replying = sum(sequence.has_begun and sequence.n_pending == 1 for sequence in running)
        if not n_replying:
            return n_batch
        times = self._evidence.target_times
        patience_s = max(_PATIENCE_S, _PATIENCE_STEPS * times.seconds(n_replying))
        if self._prompt_token_s is not None:
            n_tokens = int((patience_s - times.seconds(n_replying)) / self._prompt_token_s)
            return max(_LEAST_CHUNK, min(n_batch, n_tokens))
        widest = n_replying * 2
        while widest < n_batch and times.seconds(widest) < patience_s:
            widest *= 2
        return max(_LEAST_CHUNK, min(n_batch, widest // 2))

    def _most_pending(self, sequence: ActiveSequence, chunk: int, room: int) -> int:
        """A step may carry the rest of a prompt, so that the first token needs no pass of its own."""
        if self._pair.target.max_rollback is not None or sequence.request.max_tokens == 0:
            return 1  # snapshots of a recurrent state are few: none for tokens of the prompt
        return max(1, min(chunk, room - _MOST_STEP_ROWS))

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

    # --- what attention takes ----------------------------------------------------------------------------------------

    def _learn_context(self) -> None:
        """Whose prompt has just been read shows what attention takes over so long a text."""
        for sequence in list(self._active):
            if self._shows_context_times(sequence):
                with self._guarded(sequence):
                    learn_context_times(self._evidence.target_times, sequence.cache, n_outputs_max=_MOST_STEP_ROWS)

    def _shows_context_times(self, sequence: ActiveSequence) -> bool:
        """Whether its drafts adapt to times, and its first step comes next."""
        n_batch = self._pair.target.context.n_batch
        if sequence.has_begun or sequence.n_pending > self._most_pending(sequence, n_batch, n_batch):
            return False
        request = sequence.request
        return not request.fixed_length and self._assembly.mode_of(request)[0] is not Mode.PLAIN

    def _learn_draft_context(self, sequence: ActiveSequence) -> None:
        draft, times = self._pair.draft, self._evidence.draft_times
        cache = sequence.slot.draft
        if draft is None or times is None or cache is None or not self._shows_context_times(sequence):
            return
        ratio = draft.model.attention_size / self._pair.target.model.attention_size
        times.assume_context(self._evidence.target_times, ratio)
        with suppress(LocalspecError):  # a draft model that fails costs speed, never the reply
            learn_context_times(times, cache, n_outputs_max=1)

    # --- admission, room and end -------------------------------------------------------------------------------------

    def _admit_what_fits(self) -> None:
        """Begin the requests that have waited for longest, as long as there are a slot and cells for their prompts."""
        while self._waiting and self._slots.has_free and not any(each.is_paused for each in self._active):
            waiting = self._waiting[0]
            try:
                if waiting.prompt is None:
                    waiting.prompt = self._encode(waiting.request)
                # What running replies have still to read is theirs already.
                n_promised = sum(each.n_pending for each in self._active)
                n_available = self._slots.n_free_cells + self._slots.n_idle_cells - n_promised
                if self._active and len(waiting.prompt) >= n_available:
                    return
                self._waiting.popleft()
                self._admit(waiting.admitted, waiting.prompt)
            except Exception as error:
                if self._waiting and self._waiting[0] is waiting:
                    self._waiting.popleft()
                self._emit(Failed(waiting.request.request_id, _for_the_user(error, waiting.request)))

    def _encode(self, request: GenerateRequest) -> list[int]:
        n_ctx = self._pair.target.context.n_ctx
        prompt = self._pair.encoder.encode(request.prompt, n_ctx=n_ctx, n_reply=request.max_tokens)
        if not prompt:
            raise UsageError("The prompt is empty.", hint="Write something for the model to continue.")
        if len(prompt) >= n_ctx:
            raise ContextFullError.for_prompt(len(prompt), n_ctx)
        return prompt

    def _admit(self, admitted: Admitted, prompt: list[int]) -> None:
        request = admitted.request
        # Those that wait begin at once where there are slots for them.
        self._evidence.batch_width = min(len(self._slots), len(self._active) + 1 + len(self._waiting))
        slot = self._slots.take(request.request_id, prompt, reuses_cache=request.reuses_cache)
        try:
            sequence = self._assembly.sequence(admitted, prompt, slot)
        except BaseException:
            self._slots.release(slot)
            raise
        self._active.append(sequence)
        self._emit(sequence.prefilling())

    def _with_room(self) -> list[ActiveSequence]:
        """The sequences that take part in this step: every one has cells for what it adds.

        Room is made at the cost of caches that nobody uses, then of the youngest replies: they pause, and read again
        what they had when there is room. Nothing of them is lost but time.
        """
        for sequence in self._active:
            n_needed = len(sequence.history) + _MOST_STEP_ROWS * len(self._active)
            if sequence.is_paused and self._slots.make_room(n_needed):
                sequence.is_paused = False
        running = [sequence for sequence in self._active if not sequence.is_paused]
        n_batch = self._pair.target.context.n_batch
        self._slots.make_room(sum(min(each.n_pending, n_batch) + MAX_NUM_SPECULATIVE_TOKENS for each in running))
        while len(running) > 1 and not self._slots.make_room(len(running)):
            running.pop().pause()
        return running

    def _end(self, sequence: ActiveSequence, event: TerminalEvent) -> None:
        self._active.remove(sequence)
        self._slots.release(sequence.slot)
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
