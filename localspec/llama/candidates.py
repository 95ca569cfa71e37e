"""The array of candidates, `llama_token_data_array`, that native samplers filter, reorder and rescale."""

from __future__ import annotations

import ctypes
from typing import Any, Final

import llama_cpp
import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]
Logits = NDArray[np.float32]

# A llama_token_data is three words of 4 bytes: id, logit, p.
_N_WORDS: Final = ctypes.sizeof(llama_cpp.llama_token_data) // 4


class Candidates:
    """One array, reused for every row. The first `n` of its `capacity` entries are the candidates."""

    def __init__(self, capacity: int) -> None:
        self._words = np.empty((capacity, _N_WORDS), np.int32)
        self._ids, self._logits = _columns(self._words)
        self._home = self._words.ctypes.data
        self._array = llama_cpp.llama_token_data_array(selected=-1)
        self._reference = ctypes.byref(self._array)
        # The array's pointer as a number.
        self._address = ctypes.c_void_p.from_buffer(self._array, llama_cpp.llama_token_data_array.data.offset)
        self._address.value = self._home

    @property
    def first(self) -> int:
        """The id of the first candidate."""
        return int(self._ids[0])

    def write(self, ids: NDArray[Any], logits: Logits, first: int = 0) -> int:
        """Put tokens into the entries from `first` on; returns the index behind the last."""
        end = first + len(ids)
        self._ids[first:end] = ids
        self._logits[first:end] = logits
        return end

    def apply(self, sampler: Any, n: int) -> tuple[Ids, Logits]:
        """Run a native sampler over the first `n` entries; ids and logits that it leaves, until the next call."""
        array = self._array
        array.size, array.sorted = n, False
        llama_cpp.llama_sampler_apply(sampler, self._reference)
        n = array.size
        address = self._address.value
        if address == self._home or address is None:
            return self._ids[:n], self._logits[:n]
        # The interface lets a sampler move the candidates to memory of its own.
        words: Any = (ctypes.c_int32 * (n * _N_WORDS)).from_address(address)
        self._address.value = self._home
        return _columns(np.frombuffer(words, np.int32).reshape(n, _N_WORDS).copy())

    def keep(self, kept: NDArray[np.bool_]) -> int:
        """Drop those of the first len(kept) entries that are not `kept`; returns how many stay."""
        staying = self._words[: len(kept)][kept]
        self._words[: len(staying)] = staying
        return len(staying)


def _columns(words: NDArray[np.int32]) -> tuple[Ids, Logits]:
    return words[:, 0], words.view(np.float32)[:, 1]
