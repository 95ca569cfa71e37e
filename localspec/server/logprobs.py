"""Log-probabilities of tokens as OpenAI tells them: those of chats, and the older ones of completions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from localspec.engine.events import TokenChance, TokenLogprobs

__all__ = ["chat_logprobs", "completion_logprobs"]

# JSON has no infinity; OpenAI's own figure for what practically cannot come.
_LOWEST: Final = -9999.0


def chat_logprobs(tokens: Iterable[TokenLogprobs]) -> list[dict[str, Any]]:
    """The list `content` of a choice's logprobs. `bytes` are exact where a token holds part of a character."""
    return [{**_told(each.chosen), "top_logprobs": [_told(likely) for likely in each.likeliest]} for each in tokens]


def completion_logprobs(tokens: Iterable[TokenLogprobs], *, starts_at: int = 0) -> dict[str, Any]:
    """Four lists of one length; `starts_at` is where the first token begins in the text, in characters."""
    told: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    offset = starts_at
    for each in tokens:
        text = _text(each.chosen)
        told["tokens"].append(text)
        told["token_logprobs"].append(_logprob(each.chosen))
        told["top_logprobs"].append({_text(likely): _logprob(likely) for likely in each.likeliest})
        told["text_offset"].append(offset)
        offset += len(text)
    return told


def _told(chance: TokenChance) -> dict[str, Any]:
    return {"token": _text(chance), "logprob": _logprob(chance), "bytes": list(chance.piece)}


def _text(chance: TokenChance) -> str:
    return chance.piece.decode("utf-8", "replace")


def _logprob(chance: TokenChance) -> float:
    return max(chance.logprob, _LOWEST)
