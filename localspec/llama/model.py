"""A loaded model: weights, vocabulary, chat template text. Owns one `llama_model` handle."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Iterable
from enum import IntEnum
from pathlib import Path
from typing import Self

import llama_cpp

from localspec.errors import DoesNotFitError, EngineError, LoadCancelledError, ModelFileError, UnsupportedModelError
from localspec.llama import library, log

# Returns False to cancel.
LoadProgress = Callable[[float], bool]


class Pooling(IntEnum):
    """How one vector comes of those of a text's tokens; numbered as in llama.cpp."""

    MEAN = 1
    FIRST = 2
    LAST = 3


class Model:
    """One GGUF file in memory. Close it after every context that uses it."""

    def __init__(self, path: Path, *, n_gpu_layers: int = -1, progress: LoadProgress | None = None) -> None:
        """Load the file; `n_gpu_layers` -1 offloads every layer that a device can take.

        Raises:
            UnsupportedModelError: llama.cpp does not know the architecture or the tokenizer.
            DoesNotFitError: the weights could not be allocated.
            LoadCancelledError: `progress` returned False.
            ModelFileError: anything else, in llama.cpp's words.
        """
        library.ensure_ready()
        self.path = path
        self._handle: int | None = _load(path, n_gpu_layers, progress)
        self._vocab = llama_cpp.llama_model_get_vocab(self._handle)
        self.n_vocab: int = llama_cpp.llama_vocab_n_tokens(self._vocab)
        self.n_ctx_train: int = llama_cpp.llama_model_n_ctx_train(self._handle)
        self.weights_bytes: int = llama_cpp.llama_model_size(self._handle)
        self.sliding_window: int = llama_cpp.llama_model_n_swa(self._handle)
        self.bos: int = llama_cpp.llama_vocab_bos(self._vocab)
        self.eos: int = llama_cpp.llama_vocab_eos(self._vocab)
        self.adds_eos: bool = llama_cpp.llama_vocab_get_add_eos(self._vocab)
        self.adds_bos: bool = llama_cpp.llama_vocab_get_add_bos(self._vocab)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the weights. Repeated calls do nothing."""
        handle, self._handle = self._handle, None
        if handle is not None:
            llama_cpp.llama_model_free(handle)

    @property
    def handle(self) -> int:
        """The native pointer, for contexts and samplers."""
        if self._handle is None:
            raise EngineError(f"The model {self.path.name} was used after it was closed.")
        return self._handle

    @property
    def vocab_handle(self) -> int:
        """The native vocabulary pointer; valid while the model is open."""
        _ = self.handle
        return self._vocab  # type: ignore[no-any-return]

    @property
    def name(self) -> str:
        """The name of its file without the ending: what users know it by, quantization included."""
        return self.path.stem

    @property
    def keeps_recurrent_state(self) -> bool:
        """True for recurrent and hybrid models, whose state cannot be rolled back at will."""
        return bool(llama_cpp.llama_model_is_recurrent(self.handle) or llama_cpp.llama_model_is_hybrid(self.handle))

    @property
    def attention_size(self) -> int:
        """Layers times embedding length: what attention over one token of context takes, in no unit."""
        return int(llama_cpp.llama_model_n_layer(self.handle)) * int(llama_cpp.llama_model_n_embd(self.handle))

    @property
    def pools(self) -> Pooling | None:
        """How a text's embedding is made, by the file's metadata; None: not at all (or it ranks, or is unknown)."""
        pooling = self._metadata(f"{self._metadata('general.architecture')}.pooling_type")
        return Pooling(int(pooling)) if pooling in {"1", "2", "3"} else None

    @property
    def embeds(self) -> bool:
        """True for a decoder that was made for embeddings: the mean of its tokens, or the last one, stands for a text.

        The first one stands for it in encoders only, which read in both directions.
        """
        causal = self._metadata(f"{self._metadata('general.architecture')}.attention.causal")
        return self.generates and self.pools in (Pooling.MEAN, Pooling.LAST) and causal != "false"

    def _metadata(self, key: str) -> str:
        """A value of the file's metadata as text; "" where there is none, or it is not short."""
        buffer = ctypes.create_string_buffer(128)
        llama_cpp.llama_model_meta_val_str(self.handle, key.encode(), buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace")

    @property
    def n_parameters(self) -> int:
        """Weights of the model, counted."""
        return int(llama_cpp.llama_model_n_params(self.handle))

    @property
    def n_embd(self) -> int:
        """Numbers in the vector that stands for a token."""
        return int(llama_cpp.llama_model_n_embd_out(self.handle))

    @property
    def generates(self) -> bool:
        """False for encoders and other models without a decoder."""
        return bool(llama_cpp.llama_model_has_decoder(self.handle)) and not llama_cpp.llama_model_has_encoder(
            self.handle
        )

    @property
    def chat_template(self) -> str | None:
        """The Jinja source in the file, or None."""
        source = llama_cpp.llama_model_chat_template(self.handle, None)
        return source.decode("utf-8", "replace") if source else None

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Token ids of the text.

        `add_special` adds what the model wants around a text (BOS, EOS); `parse_special` turns special tokens that
        are written out into their ids.

        Raises:
            EngineError: llama.cpp cannot tokenize it (longer than 2^31 tokens).
        """
        # A lone surrogate (from a file name or a broken terminal) has no UTF-8 form.
        data = text.encode("utf-8", "replace")
        n_max = len(data) + 8
        while True:
            tokens = (llama_cpp.llama_token * n_max)()
            n = llama_cpp.llama_tokenize(self.vocab_handle, data, len(data), tokens, n_max, add_special, parse_special)
            if n >= 0:
                return list(tokens[:n])
            if -n <= n_max:
                raise EngineError(f"llama.cpp could not tokenize a text of {len(data)} bytes.")
            n_max = -n

    def token_bytes(self, token: int, *, special: bool = False) -> bytes:
        """The bytes that the token stands for; control tokens are empty unless `special`."""
        return self._token_bytes(token, special)

    def text_of(self, token: int) -> str:
        """A special token written out; "" where there is none (-1)."""
        return self.token_bytes(token, special=True).decode("utf-8", "replace") if token >= 0 else ""

    @functools.lru_cache(maxsize=65_536)  # noqa: B019 - one model lives as long as its process, near enough
    def _token_bytes(self, token: int, special: bool) -> bytes:
        size = 64
        while True:
            buffer = ctypes.create_string_buffer(size)
            n = llama_cpp.llama_token_to_piece(self.vocab_handle, token, buffer, size, 0, special)
            if n >= 0:
                return buffer.raw[:n]
            size = -n

    @functools.cached_property
    def end_of_generation(self) -> frozenset[int]:
        """Every token that ends a reply (EOS, end of turn, end of message ...)."""
        is_end = llama_cpp.llama_vocab_is_eog
        return frozenset(token for token in range(self.n_vocab) if is_end(self.vocab_handle, token))


def _load(path: Path, n_gpu_layers: int, progress: LoadProgress | None) -> int:
    cancelled = False

    @llama_cpp.llama_progress_callback  # type: ignore[untyped-decorator, unused-ignore]
    def on_progress(fraction: float, _: ctypes.c_void_p) -> bool:
        nonlocal cancelled
        cancelled = progress is not None and not progress(fraction)
        return not cancelled

    params = llama_cpp.llama_model_default_params()
    params.n_gpu_layers = n_gpu_layers
    params.use_extra_bufts = not library.uses_amx()  # weights that are laid out anew for it
    params.progress_callback = on_progress
    with log.captured_errors() as errors:
        handle = llama_cpp.llama_model_load_from_file(os.fsencode(path), params)
    if handle is not None:
        return handle  # type: ignore[no-any-return]
    if cancelled:
        raise LoadCancelledError(f"Loading {path.name} was cancelled.")
    raise load_error(path, errors)


def load_error(path: Path, errors: Iterable[str]) -> UnsupportedModelError | DoesNotFitError | ModelFileError:
    """What llama.cpp's complaints about a file mean for its user."""
    complaint = "; ".join(_without_source_names(errors)) or "llama.cpp gave no reason"
    if "unknown model architecture" in complaint or "unknown pre-tokenizer" in complaint:
        return UnsupportedModelError(
            f"{path} cannot be run by {library.version()}: {complaint}.",
            hint="Update llama-cpp-python, or choose another model.",
        )
    if any(word in complaint for word in ("allocate", "out of memory", "bad_alloc", "failed to fit")):
        return DoesNotFitError(
            f"{path} does not fit in memory: {complaint}.",
            hint="Close other programs, offload fewer layers with --gpu-layers, or take a smaller quantization.",
        )
    return ModelFileError(
        f"{path} could not be loaded: {complaint}.", hint="Fetch the file again, or choose another quantization."
    )


def _without_source_names(errors: Iterable[str]) -> list[str]:
    """Drop the C++ function names before each message, and the general remarks that repeat the first."""
    texts = []
    for line in errors:
        text = line.rpartition("error loading model: ")[2].strip()
        head, colon, rest = text.partition(": ")
        text = rest if colon and "_" in head and " " not in head else text
        if text and "failed to load model" not in text and text not in texts:
            texts.append(text.rstrip("."))
    return texts[:3]
