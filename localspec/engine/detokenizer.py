"""Tokens to text as they come: a character whose bytes are split over tokens waits for its rest."""

from __future__ import annotations

import codecs
from collections.abc import Callable

__all__ = ["Detokenizer"]


class Detokenizer:
    """Joins the bytes of tokens into UTF-8 text.

    At most three bytes wait, for the rest of their character; bytes that begin or continue none are U+FFFD at once.
    All text together is what `bytes.decode("utf-8", "replace")` makes of all bytes together.
    """

    def __init__(self, token_to_bytes: Callable[[int], bytes]) -> None:
        self._token_to_bytes = token_to_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        """The text that is complete with this token; often none, while a character is split."""
        return self._decoder.decode(self._token_to_bytes(token))

    def flush(self) -> str:
        """The end: whatever still waits becomes U+FFFD. The detokenizer is empty afterwards."""
        return self._decoder.decode(b"", final=True)
