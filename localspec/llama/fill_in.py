"""The tokens by which a model is asked to fill a gap in a text, where it was trained for that."""

from __future__ import annotations

from dataclasses import dataclass

import llama_cpp

from localspec.llama.model import Model


@dataclass(frozen=True, slots=True)
class FillInTokens:
    """Marks before the prefix, the suffix and the gap, and where there are such, before a repository and each file."""

    prefix: int
    suffix: int
    middle: int
    repository: int | None
    file: int | None


def fill_in_tokens(model: Model) -> FillInTokens | None:
    """Those of a model; None where it was not trained to fill in."""
    vocab = model.vocab_handle
    prefix, suffix, middle = (
        llama_cpp.llama_vocab_fim_pre(vocab),
        llama_cpp.llama_vocab_fim_suf(vocab),
        llama_cpp.llama_vocab_fim_mid(vocab),
    )
    if min(prefix, suffix, middle) < 0:
        return None
    repository, file = llama_cpp.llama_vocab_fim_rep(vocab), llama_cpp.llama_vocab_fim_sep(vocab)
    return FillInTokens(prefix, suffix, middle, repository if repository >= 0 else None, file if file >= 0 else None)
