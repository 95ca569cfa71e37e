"""A gap in a text as a prompt: prefix, suffix and, where there is room, other files, by the model's own marks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from localspec.engine.requests import InfillPrompt
from localspec.llama.fill_in import FillInTokens

__all__ = ["infill_tokens"]

# The reply needs room too; so much where nobody says how long it may be.
_USUAL_REPLY: Final = 256
# What comes before the cursor says more about the gap than what comes after it.
_SHARE_OF_PREFIX: Final = 0.75
_MARKS: Final = 4  # prefix, suffix, middle, beginning of text
_PROJECT: Final = "project\n"
_THIS_FILE: Final = "file\n"
_BETWEEN_FILES: Final = "\n\n--- snippet ---\n\n"


def infill_tokens(
    prompt: InfillPrompt,
    marks: FillInTokens,
    tokenize: Callable[[str], list[int]],
    *,
    bos: int | None,
    n_ctx: int,
    n_reply: int | None,
) -> list[int]:
    """The prompt's tokens, at most what leaves room for the reply in a context of `n_ctx`; see `InfillPrompt`.

    `tokenize` turns text into tokens as it is, and `bos` begins the text where the model wants that.
    """
    begun = tokenize(prompt.prompt)
    room = max(0, n_ctx - min(n_reply or _USUAL_REPLY, n_ctx // 2) - _MARKS - len(begun))
    prefix, suffix = tokenize(prompt.prefix), tokenize(prompt.suffix)
    n_prefix = min(len(prefix), max(int(room * _SHARE_OF_PREFIX), room - len(suffix)))
    n_suffix = min(len(suffix), room - n_prefix)
    extra = _extra(prompt, marks, tokenize)
    n_extra = min(len(extra), room - n_prefix - n_suffix)
    return [
        *([bos] if bos is not None else []),
        *extra[len(extra) - n_extra :],
        marks.prefix,
        *prefix[len(prefix) - n_prefix :],
        *begun,
        marks.suffix,
        *suffix[:n_suffix],
        marks.middle,
    ]


def _extra(prompt: InfillPrompt, marks: FillInTokens, tokenize: Callable[[str], list[int]]) -> list[int]:
    if not prompt.extra:
        return []
    tokens: list[int] = []
    if marks.repository is not None:
        tokens += [marks.repository, *tokenize(_PROJECT)]
    for file in prompt.extra:
        if marks.file is not None:
            tokens += [marks.file, *tokenize(f"{file.name}\n")]
        else:
            tokens += tokenize(_BETWEEN_FILES)
        tokens += tokenize(file.text)
    if marks.file is not None:
        tokens += [marks.file, *tokenize(_THIS_FILE)]
    return tokens
