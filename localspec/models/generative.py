"""Whether a file holds a model that can write text: by header alone. Others are refused with what they are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from localspec.errors import UnsupportedModelError
from localspec.models.header import GgufHeader
from localspec.models.vocabulary import read_vocabulary

__all__ = ["NotGenerative", "not_generative", "refuse_unless_generative"]


@dataclass(frozen=True, slots=True)
class NotGenerative:
    """Why a file holds no model that can write text: `what`, which follows its name, and what to use instead.

    `is_incomplete`: only its weights or its tokenizer are missing, so that what is there can be judged or planned.
    `runs`: it is a decoder nevertheless, for embeddings.
    """

    what: str
    hint: str
    is_incomplete: bool = False
    runs: bool = False


_FOR_CHAT: Final = "Choose a model that was made for chat."
_EMBEDS: Final = NotGenerative("is an embedding model: it turns text into vectors and cannot write", _FOR_CHAT)
_POOLED_BY_DECODERS: Final = (1, 3)  # llama.cpp's pooling types: the mean of the tokens, the last one
_HEAD: Final = NotGenerative(
    "is a draft head: it reads another model's hidden states and is no model by itself",
    "Choose a whole, smaller model of the target's family as the draft.",
)
_DIFFUSES: Final = NotGenerative("is a diffusion model: it does not write from left to right", _FOR_CHAT)
_SPEAKS: Final = NotGenerative("is a speech model: it makes sound, not text", _FOR_CHAT)
_SEES: Final = NotGenerative(
    "is the image encoder of another model, not a model by itself",
    "Choose the model's main file; the name of this one often starts with mmproj.",
)
_TRANSLATES: Final = NotGenerative(
    "is an encoder-decoder model, which localspec does not run", "Choose a decoder-only model made for chat."
)
# By architecture. Whether llama.cpp knows an architecture at all is for llama.cpp to say.
_NOT_GENERATIVE: Final = {
    **dict.fromkeys(["bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2"], _EMBEDS),
    **dict.fromkeys(["jina-bert-v3", "eurobert", "gemma-embedding", "llama-embed", "t5encoder"], _EMBEDS),
    **dict.fromkeys(["eagle3", "dflash", "gemma4-assistant"], _HEAD),
    **dict.fromkeys(["dream", "llada", "llada-moe", "rnd1"], _DIFFUSES),
    **dict.fromkeys(["wavtokenizer-dec", "qwen3tts", "pockettts"], _SPEAKS),
    "clip": _SEES,
    "t5": _TRANSLATES,
}
_NOT_A_MODEL: Final = {
    "adapter": NotGenerative("is a LoRA adapter, not a model by itself", "Choose the model that it belongs to."),
    "imatrix": NotGenerative(
        "is an importance matrix for quantizing, not a model", "Choose the quantized model itself."
    ),
    "mmproj": _SEES,
}
_NAMELESS: Final = NotGenerative("names no architecture, so nothing can run it", "Choose another file of this model.")
_NO_WEIGHTS: Final = NotGenerative(
    "holds a vocabulary only, no weights", "Choose the file with the model's weights.", is_incomplete=True
)
_NO_TOKENIZER: Final = NotGenerative(
    "has no tokenizer, so text cannot be read or written", "Choose another file of this model.", is_incomplete=True
)


def refuse_unless_generative(header: GgufHeader, *, incomplete_ok: bool = False, embedding_ok: bool = False) -> None:
    """Refuse a file that holds no model that can write text. `incomplete_ok`: weights or tokenizer may be missing.

    `embedding_ok`: a decoder that was made for embeddings may pass. It runs like any other, though nobody reads what it
    writes; encoders do not run.

    Raises:
        UnsupportedModelError: says what the file is and what to use instead.
        ModelFileError: a value in its metadata has the wrong type.
    """
    problem = not_generative(header)
    is_fine = problem is None or (incomplete_ok and problem.is_incomplete) or (embedding_ok and problem.runs)
    if problem is not None and not is_fine:
        raise UnsupportedModelError(f"{header.path} {problem.what}.", hint=problem.hint)


def not_generative(header: GgufHeader) -> NotGenerative | None:
    """Why a file holds no model that can write text; None where it may hold one.

    Raises:
        ModelFileError: a value in its metadata has the wrong type.
    """
    architecture, kind = header.architecture, header.text("general.type")
    part, n_parts = header.integer("split.no") or 0, header.integer("split.count") or 1
    problem = None
    if part > 0:
        what = f"is part {part + 1} of {n_parts} of a model"
        problem = NotGenerative(what, "Name its first part; the others are found beside it.")
    elif not header.tensors and n_parts == 1:  # the first part of several may hold metadata only
        problem = _NO_WEIGHTS  # before all kinds: vocabularies are compared whatever the model does with them
    elif kind in _NOT_A_MODEL:
        problem = _NOT_A_MODEL[kind]
    elif not architecture:
        problem = _NAMELESS
    elif architecture in _NOT_GENERATIVE:
        problem = _NOT_GENERATIVE[architecture]
    elif header.flag(f"{architecture}.attention.causal") is False:
        problem = _EMBEDS
    elif read_vocabulary(header) is None:
        problem = _NO_TOKENIZER
    elif (pooling := header.integer(f"{architecture}.pooling_type") or 0) > 0:
        problem = replace(_EMBEDS, runs=pooling in _POOLED_BY_DECODERS)
    return problem
