"""Embeddings: one vector of length 1 for each text, by a model that was made for that. Owns one `llama_context`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Final, Self

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from localspec.errors import ContextFullError, DoesNotFitError, EngineError, UnsupportedModelError, UsageError
from localspec.llama import log
from localspec.llama.context import DEFAULT_N_BATCH, default_threads
from localspec.llama.model import Model, Pooling

# The longest text, where nobody says and the model could take more.
_DEFAULT_N_CTX: Final = 8192
# With embeddings, llama.cpp computes the logits of every row too: 152k floats each.
_N_BATCH_OF_MEANS: Final = 128


class Embedder:
    """Turns texts into vectors, one after the other: what one text gives does not depend on the others.

    Attention is causal, so a text longer than a batch is read in parts. Where the last token stands for the text, only
    that one is read for its vector; where it is the mean, that of the parts is taken, each by its length.
    """

    def __init__(self, model: Model, *, n_ctx: int | None = None, n_threads: int | None = None) -> None:
        """Allocate a context for texts of up to `n_ctx` tokens; None: the model's own, within reason.

        Raises:
            UnsupportedModelError: the model was not made for embeddings, or in a way that is not supported here.
            DoesNotFitError: the context could not be allocated.
        """
        if not model.embeds:
            raise UnsupportedModelError(
                f"{model.name} was not made for embeddings: by its metadata, neither the mean of its tokens nor the "
                "last of them stands for a text.",
                hint="Choose a decoder that was made for embeddings, such as Qwen3-Embedding.",
            )
        self._takes_mean = model.pools is Pooling.MEAN
        self._model = model
        self.n_ctx = n_ctx or min(model.n_ctx_train or _DEFAULT_N_CTX, _DEFAULT_N_CTX)
        self.n_embd: int = llama_cpp.llama_model_n_embd_out(model.handle)
        self._n_batch = min(self.n_ctx, _N_BATCH_OF_MEANS if self._takes_mean else DEFAULT_N_BATCH)
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = self.n_ctx
        params.n_batch = params.n_ubatch = self._n_batch
        params.n_seq_max = 1
        params.n_outputs_max = self._n_batch if self._takes_mean else 1
        params.n_threads = params.n_threads_batch = n_threads or default_threads()
        params.embeddings = True
        params.no_perf = True
        with log.captured_errors() as errors:
            self._handle: int | None = llama_cpp.llama_init_from_model(model.handle, params)
        if self._handle is None:
            raise DoesNotFitError(
                f"A context of {self.n_ctx} tokens for the embeddings of {model.name} could not be created: "
                f"{'; '.join(errors) or 'llama.cpp gave no reason'}.",
                hint="Give a smaller --ctx, or fewer GPU layers.",
            )
        if not llama_cpp.llama_get_causal_attn(self._handle):  # parts of a text would be another text
            self.close()
            raise UnsupportedModelError(
                f"{model.name} reads its texts in both directions, which localspec does not do.",
                hint="Choose a decoder that was made for embeddings, such as Qwen3-Embedding.",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the context. Repeated calls do nothing."""
        handle, self._handle = self._handle, None
        if handle is not None:
            llama_cpp.llama_free(handle)

    def tokenize(self, text: str, *, parse_special: bool = True) -> list[int]:
        """A text with what the model wants around it: unlike a prompt, it ends with EOS where the tokenizer says so.

        Raises:
            EngineError: llama.cpp cannot tokenize it.
        """
        return self._model.tokenize(text, add_special=True, parse_special=parse_special)

    def embed(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """The embedding of a text, float32 [n_embd], of length 1. Nothing is added to the tokens.

        Raises:
            UsageError: there is no token, or one that the vocabulary does not have.
            ContextFullError: there are more than `n_ctx`.
            EngineError: llama.cpp failed, or the vector has no direction.
        """
        self._check(tokens)
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._handle), False)
        vector = self._mean(tokens) if self._takes_mean else self._last(tokens)
        length = float(np.linalg.norm(vector))
        if not np.isfinite(length) or length == 0.0:
            raise EngineError(f"{self._model.name} gave a vector of length {length} for {len(tokens)} tokens.")
        return (vector / length).astype(np.float32)

    def _check(self, tokens: Sequence[int]) -> None:
        if self._handle is None:
            raise EngineError("An embedder was used after it was closed.")
        if not tokens:
            raise UsageError("There is nothing to embed: the text is empty.", hint="Give some text.")
        if len(tokens) > self.n_ctx:
            raise ContextFullError(
                f"The text has {len(tokens)} tokens; {self._model.name} embeds at most {self.n_ctx} here.",
                n_tokens=len(tokens),
                n_ctx=self.n_ctx,
                hint="Split it into shorter texts.",
            )
        strange = next((token for token in tokens if not 0 <= token < self._model.n_vocab), None)
        if strange is not None:
            raise UsageError(
                f"Token {strange} is not in the vocabulary of {self._model.n_vocab}.",
                hint="Give the text, or tokens of this model.",
            )

    def _mean(self, tokens: Sequence[int]) -> NDArray[np.float64]:
        total = np.zeros(self.n_embd, np.float64)
        for start in range(0, len(tokens), self._n_batch):
            part = tokens[start : start + self._n_batch]
            total += self._read(part, wants_vector=True) * len(part)
        return total / len(tokens)

    def _last(self, tokens: Sequence[int]) -> NDArray[np.float64]:
        before = tokens[:-1]
        for start in range(0, len(before), self._n_batch):
            self._read(before[start : start + self._n_batch], wants_vector=False)
        return self._read(tokens[-1:], wants_vector=True)

    def _read(self, tokens: Sequence[int], *, wants_vector: bool) -> NDArray[np.float64]:
        """Read the next tokens of the text; the pooled vector of these, float64 [n_embd], or an empty one."""
        llama_cpp.llama_set_embeddings(self._handle, wants_vector)
        array = (llama_cpp.llama_token * len(tokens))(*tokens)
        code = llama_cpp.llama_decode(self._handle, llama_cpp.llama_batch_get_one(array, len(tokens)))
        if code != 0:
            raise EngineError(f"llama.cpp failed to read a batch of {len(tokens)} tokens for embeddings (code {code}).")
        if not wants_vector:
            return np.empty(0)
        pointer = llama_cpp.llama_get_embeddings_seq(self._handle, 0)
        if not pointer:
            raise EngineError(f"llama.cpp gave no embedding of {len(tokens)} tokens.")
        values = (ctypes.c_float * self.n_embd).from_address(ctypes.addressof(pointer.contents))
        return np.array(values, np.float64)
