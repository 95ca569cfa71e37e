"""A decoding context: the KV cache, forward passes over a batch, logits rows, rollback. Owns one `llama_context`."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Sequence
from typing import Any, Final, Self

import llama_cpp
import numpy as np
import psutil
from numpy.typing import NDArray

from localspec.errors import DoesNotFitError, EngineError, UsageError
from localspec.llama import log
from localspec.llama.model import Model

# ggml_type of the cache types.
_GGML_TYPES: Final = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "bf16": 30}
_NO_KV_SLOT: Final = 1

DEFAULT_N_BATCH: Final = 512


class Context:
    """The state of up to `n_seq_max` sequences over one model.

    A batch is built with `add` and run with `decode`; rows that were added with `output=True` then have logits, until
    the next `decode`. `native_s` counts the seconds spent in forward passes.
    """

    def __init__(
        self,
        model: Model,
        *,
        n_ctx: int,
        n_outputs_max: int,
        n_batch: int = DEFAULT_N_BATCH,
        n_seq_max: int = 1,
        kv_type: str = "f16",
        n_threads: int | None = None,
        n_recurrent_snapshots: int = 0,
    ) -> None:
        """Allocate the cache and the compute buffers. `n_outputs_max`: rows with logits per batch, at most.

        Raises:
            DoesNotFitError: they could not be allocated.
        """
        self._model = model
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = n_ctx
        params.n_batch = n_batch
        params.n_ubatch = n_batch
        params.n_seq_max = n_seq_max
        params.n_outputs_max = min(n_batch, n_outputs_max)
        params.n_rs_seq = n_recurrent_snapshots if model.keeps_recurrent_state else 0
        self.n_threads = n_threads or default_threads()
        params.n_threads = params.n_threads_batch = self.n_threads
        params.type_k = params.type_v = _GGML_TYPES[kv_type]
        params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_AUTO
        params.kv_unified = True  # every sequence may use the whole context
        params.swa_full = False  # layers with a sliding window keep what a step may take back, not the whole context
        params.no_perf = True
        with log.captured_errors() as errors:
            self._handle: int | None = llama_cpp.llama_init_from_model(model.handle, params)
        if self._handle is None and any("cache type" in line or "V cache" in line for line in errors):
            raise UsageError(
                f"{model.name} cannot have a {kv_type} cache: {'; '.join(errors)}.", hint="f16 works for every model."
            )
        if self._handle is None:
            raise DoesNotFitError(
                f"A context of {n_ctx} tokens ({kv_type} cache) for {model.name} could not be created: "
                f"{'; '.join(errors) or 'llama.cpp gave no reason'}.",
                hint="Give a smaller --ctx, a smaller cache type (q8_0), or fewer GPU layers.",
            )
        self._memory = llama_cpp.llama_get_memory(self._handle)
        self.n_ctx: int = min(n_ctx, llama_cpp.llama_n_ctx(self._handle))  # llama.cpp rounds up
        self.n_vocab = model.n_vocab
        self._row_type: Any = ctypes.c_float * self.n_vocab
        self._rows: dict[int, NDArray[np.float32]] = {}  # views of logits, by address
        self.n_batch: int = llama_cpp.llama_n_batch(self._handle)
        self.n_recurrent_snapshots: int = llama_cpp.llama_n_rs_seq(self._handle)
        self.native_s = 0.0
        self._batch = _Batch(self.n_batch)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the context. Repeated calls do nothing."""
        handle, self._handle = self._handle, None
        if handle is not None:
            llama_cpp.llama_free(handle)

    # --- forward passes ------------------------------------------------------------------------------------------

    @property
    def n_pending(self) -> int:
        """Rows that were added since the last decode."""
        return self._batch.n

    def add(self, tokens: Sequence[int], *, position: int, seq_id: int = 0, n_outputs: int = 0) -> int:
        """Add consecutive tokens of one sequence to the batch; the last `n_outputs` of them will have logits.

        Returns the batch row of the first token.
        """
        return self._batch.add(tokens, position, seq_id, n_outputs)

    def decode(self) -> None:
        """Run one forward pass over the batch and empty it.

        Raises:
            DoesNotFitError: the cache has no room for it; the cache is unchanged.
            EngineError: llama.cpp failed; `n_past` tells what the cache holds.
        """
        batch = self._batch
        started = time.perf_counter()
        code = llama_cpp.llama_decode(self._handle, batch.struct())
        if code == 0:
            llama_cpp.llama_synchronize(self._handle)
        self.native_s += time.perf_counter() - started
        n, batch.n = batch.n, 0
        if code == _NO_KV_SLOT:
            raise DoesNotFitError(
                f"The context of {self.n_ctx} tokens has no room for {n} more.",
                hint="Start a new chat, or give a larger context with --ctx.",
            )
        if code != 0:
            raise EngineError(f"llama.cpp failed to decode a batch of {n} tokens (code {code}).")

    def discard_batch(self) -> None:
        """Forget the rows that were added and not decoded."""
        self._batch.n = 0

    def logits(self, row: int) -> NDArray[np.float32]:
        """The logits of a batch row, float32 [n_vocab]: a view that the next `decode` overwrites."""
        pointer = llama_cpp.llama_get_logits_ith(self._handle, row)
        if not pointer:
            raise EngineError(f"Row {row} of the batch has no logits.")
        address = ctypes.addressof(pointer.contents)
        view = self._rows.get(address)
        if view is None:  # rows stay where they are: a view of each is made once
            values: Any = self._row_type.from_address(address)
            view = self._rows[address] = np.frombuffer(values, np.float32)
        return view

    # --- the cache -----------------------------------------------------------------------------------------------

    def n_past(self, seq_id: int = 0) -> int:
        """Tokens of the sequence in the cache."""
        return int(llama_cpp.llama_memory_seq_pos_max(self._memory, seq_id)) + 1

    def rollback(self, n_past: int, seq_id: int = 0) -> bool:
        """Drop the cache entries of the sequence from `n_past` on.

        Returns False where this memory cannot drop just those: then the sequence is cleared, and its tokens have to
        be decoded again.
        """
        if n_past <= 0:
            self.clear(seq_id)
            return n_past == 0
        if n_past >= self.n_past(seq_id):
            return True
        if llama_cpp.llama_memory_seq_rm(self._memory, seq_id, n_past, -1) and self._window_is_whole(n_past, seq_id):
            return True
        self.clear(seq_id)
        return False

    def _window_is_whole(self, n_past: int, seq_id: int) -> bool:
        """A sliding-window cache forgets old entries; after a long rollback the window may reach back to them."""
        window = self._model.sliding_window
        if window <= 0:
            return True
        oldest = llama_cpp.llama_memory_seq_pos_min(self._memory, seq_id)
        return bool(0 <= oldest <= max(0, n_past - window))

    def clear(self, seq_id: int = 0) -> None:
        """Forget the sequence. Never fails."""
        llama_cpp.llama_memory_seq_rm(self._memory, seq_id, -1, -1)

    def clear_all(self) -> None:
        """Forget every sequence."""
        llama_cpp.llama_memory_clear(self._memory, False)

    def probe_rollback(self) -> int | None:
        """How many tokens a rollback can drop: None for any number, else the most that works (0: none at all).

        Tried on the real memory, with a few tokens, since the architecture's name does not tell.
        """
        if self._model.keeps_recurrent_state:
            limit = self.n_recurrent_snapshots
            return limit if limit > 0 and self._rollback_works(min(limit, 2)) else 0
        return None if self._rollback_works(2) else 0

    def _rollback_works(self, n_dropped: int) -> bool:
        token = self._model.bos if self._model.bos >= 0 else 0
        self.clear_all()
        try:
            self.add([token] * 2, position=0)
            self.decode()
            self.add([token] * (1 + n_dropped), position=2)
            self.decode()
            return bool(llama_cpp.llama_memory_seq_rm(self._memory, 0, 3, -1)) and self.n_past(0) == 3
        finally:
            self.clear_all()


class _Batch:
    """The arrays behind a `llama_batch`, reused for every pass."""

    def __init__(self, capacity: int) -> None:
        self.n = 0
        self._capacity = capacity
        self._tokens = np.zeros(capacity, np.int32)
        self._positions = np.zeros(capacity, np.int32)
        self._outputs = np.zeros(capacity, np.int8)
        self._seq_ids = np.zeros(capacity, np.int32)
        self._n_seq_ids = np.ones(capacity, np.int32)
        # llama_batch wants a pointer to the sequence ids of each token: one each, side by side.
        base, width = self._seq_ids.ctypes.data, self._seq_ids.itemsize
        self._seq_id_pointers = np.arange(base, base + capacity * width, width, dtype=np.uintp)
        self._struct = llama_cpp.llama_batch(
            n_tokens=0,
            token=_pointer(self._tokens, ctypes.c_int32),
            embd=None,
            pos=_pointer(self._positions, ctypes.c_int32),
            n_seq_id=_pointer(self._n_seq_ids, ctypes.c_int32),
            seq_id=ctypes.cast(self._seq_id_pointers.ctypes.data, ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
            logits=_pointer(self._outputs, ctypes.c_int8),
        )

    def add(self, tokens: Sequence[int], position: int, seq_id: int, n_outputs: int) -> int:
        first, end = self.n, self.n + len(tokens)
        if end > self._capacity:
            raise EngineError(f"A batch of {end} rows was asked for; it holds {self._capacity}.")
        if len(tokens) == 1:  # the usual batch of a draft model: no slices for it
            self._tokens[first], self._positions[first] = tokens[0], position
            self._seq_ids[first], self._outputs[first] = seq_id, n_outputs > 0
        else:
            self._tokens[first:end] = tokens
            self._positions[first:end] = range(position, position + len(tokens))
            self._seq_ids[first:end] = seq_id
            self._outputs[first:end] = 0
            self._outputs[max(first, end - n_outputs) : end] = 1
        self.n = end
        return first

    def struct(self) -> Any:
        self._struct.n_tokens = self.n
        return self._struct


def _pointer(array: NDArray[Any], kind: Any) -> Any:
    return array.ctypes.data_as(ctypes.POINTER(kind))


def default_threads() -> int:
    """One thread per physical core that this process may use: decoding waits for memory, not for hyper-threads."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(psutil.cpu_count(logical=False) or allowed, allowed)
