"""llama.cpp's own word on a grammar: what it lets through, byte by byte. Tokens of the tiny vocabulary are bytes."""

from __future__ import annotations

import ctypes
import math
import random
from types import TracebackType
from typing import Any, Self

from localspec.llama.grammar import grammar_sampler
from localspec.llama.model import Model

END = 257  # ends the reply
_N_BYTES = 256
_LONGEST = 3000
_LONG = 300
# Wherever one of these can begin, it ends something that could go on without end.
_CLOSERS = ('"', "}", "]", "</parameter>", "<|end|>", "</think>", "é")


class GrammarProbe:
    """A grammar in llama.cpp. `allows` asks about one reply, `walk` makes one up."""

    def __init__(self, model: Model, source: str) -> None:
        self._model = model
        self._fresh = grammar_sampler(model, source)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import llama_cpp

        llama_cpp.llama_sampler_free(self._fresh)

    def allows(self, text: str) -> bool:
        """Whether the whole text is a reply by the grammar."""
        return self.n_allowed(text) is None

    def n_allowed(self, text: str) -> int | None:
        """How many bytes of the text are let through before the first that is not; None: the whole reply is."""
        tokens = (*self._model.tokenize(text, add_special=False, parse_special=False), END)
        sampler = _clone(self._fresh)
        try:
            for n, token in enumerate(tokens):
                if token not in _allowed(sampler, [token]):
                    return n
                if token != END:
                    _accept(sampler, token)
        finally:
            _free(sampler)
        return None

    def walk(self, choose: random.Random) -> str:
        """A reply of choices among all bytes that the grammar lets through, printable ones where it can be."""
        sampler, written, script = _clone(self._fresh), bytearray(), b""
        try:
            while True:
                allowed = _allowed(sampler, [*range(_N_BYTES), END])
                assert allowed, bytes(written)
                assert len(written) < _LONGEST, bytes(written)
                urge = 0.35 if len(written) < _LONG else 0.95
                if END in allowed and (len(allowed) == 1 or choose.random() < urge):
                    return written.decode()
                bytes_allowed = [byte for byte in allowed if byte < _N_BYTES]
                if not script or script[0] not in bytes_allowed:
                    script = b""
                    closers = [each for each in _CLOSERS if each.encode()[0] in bytes_allowed]
                    if closers and choose.random() < urge:
                        script = choose.choice(closers).encode()
                if script:
                    byte, script = script[0], script[1:]
                else:
                    printable = [byte for byte in bytes_allowed if 32 <= byte < 127]
                    byte = choose.choice(printable or bytes_allowed)
                written.append(byte)
                _accept(sampler, byte)
        finally:
            _free(sampler)


def _allowed(sampler: Any, tokens: list[int]) -> list[int]:
    """Which of these tokens may come next."""
    import llama_cpp

    data = (llama_cpp.llama_token_data * len(tokens))()
    for place, token in enumerate(tokens):
        data[place].id, data[place].logit = token, 1.0
    candidates = llama_cpp.llama_token_data_array(data=data, size=len(tokens), selected=-1, sorted=False)
    llama_cpp.llama_sampler_apply(sampler, ctypes.byref(candidates))
    return [
        candidates.data[place].id for place in range(candidates.size) if math.isfinite(candidates.data[place].logit)
    ]


def _clone(sampler: Any) -> Any:
    import llama_cpp

    return llama_cpp.llama_sampler_clone(sampler)


def _accept(sampler: Any, token: int) -> None:
    import llama_cpp

    llama_cpp.llama_sampler_accept(sampler, token)


def _free(sampler: Any) -> None:
    import llama_cpp

    llama_cpp.llama_sampler_free(sampler)
