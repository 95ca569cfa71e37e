"""The vocabulary of a model as llama.cpp reads it from a header: type, tokens, and what is put around a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from localspec.models.header import GgufHeader, StringArray

__all__ = ["Vocabulary", "read_vocabulary"]

# How llama.cpp reads `tokenizer.ggml.model`: type of vocabulary, and the ids of its start and end token by default.
_TYPES: Final[dict[str, tuple[str, int | None, int | None]]] = {
    "llama": ("SentencePiece", 1, 2),
    "bert": ("WordPiece", 101, None),
    "gpt2": ("BPE", 11, 11),
    "hybriddna": ("BPE", 11, 11),
    "whitespace": ("BPE", 11, 11),
    "gemma4": ("BPE", None, None),
    "t5": ("Unigram", None, 1),
    "rwkv": ("RWKV", None, None),
    "plamo2": ("PLaMo-2", 1, 2),
}
# Where the file does not say, llama.cpp puts the start token before a text for these types and pre-tokenizers.
_ADD_BOS_TYPES: Final = frozenset(["SentencePiece", "WordPiece"])
_ADD_BOS_PRE: Final = "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano tekken chameleon"
# For these it does so whatever the file says.
_ALWAYS_BOS_PRE: Final = frozenset(["gemma4", "granite-embed-multi-311m"])

_SHOWN_BYTES: Final = 200


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """`bos` and `eos` are the ids of the start and end token, and the flags whether a text gets them."""

    kind: str
    tokens: StringArray
    add_bos: bool
    bos: int | None
    add_eos: bool
    eos: int | None

    def text(self, token: int) -> str:
        """The text of a token, quoted and cut to a length."""
        return repr(self.tokens.bytes_at(token)[:_SHOWN_BYTES].decode("utf-8", "replace"))

    def shown(self, added: bool, token: int | None) -> str:
        """What is added at one end of a text, as "'<s>' (1)"."""
        return "none" if not added or token is None else f"{self.text(token)} ({token})"


def read_vocabulary(header: GgufHeader) -> Vocabulary | None:
    """The vocabulary in a header; None where it holds none.

    Raises:
        ModelFileError: the metadata of the tokenizer has the wrong type.
    """
    model = header.text("tokenizer.ggml.model")
    tokens = header.strings("tokenizer.ggml.tokens")
    if not model or not tokens:
        return None
    kind, bos, eos = _TYPES.get(model, (repr(model), None, None))
    pre = model if model == "gemma4" else header.text("tokenizer.ggml.pre")
    add_bos = header.flag("tokenizer.ggml.add_bos_token")
    add_eos = header.flag("tokenizer.ggml.add_eos_token")
    if add_bos is None:
        add_bos = kind in _ADD_BOS_TYPES or (kind == "BPE" and pre in _ADD_BOS_PRE.split())
    return Vocabulary(
        kind=kind,
        tokens=tokens,
        add_bos=add_bos or (kind == "BPE" and pre in _ALWAYS_BOS_PRE),
        bos=_special(header, "tokenizer.ggml.bos_token_id", bos, len(tokens)),
        add_eos=kind == "Unigram" if add_eos is None else add_eos,
        eos=_special(header, "tokenizer.ggml.eos_token_id", eos, len(tokens)),
    )


def _special(header: GgufHeader, key: str, default: int | None, n_tokens: int) -> int | None:
    """The id of a special token; one that is no token counts as not given."""
    for token in (header.integer(key), default):
        if token is not None and 0 <= token < n_tokens:
            return token
    return None
