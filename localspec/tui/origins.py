"""A reply as it was generated: every token in the style of its origin.

The styles differ without colour too: accepted drafts are plain, copies italic as quotations are, the target's
corrections underlined, bonus tokens bold, and the tokens of steps without a draft dim.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from textual.content import Content

from localspec.engine.events import TextSpan
from localspec.printable import printable
from localspec.speculative.rejection import Origin
from localspec.tui.pieces import HARD_LIMIT, SOFT_LIMIT
from localspec.tui.typeset import Typeset

ORIGIN_STYLES: Final[dict[Origin, str]] = {
    Origin.DRAFT: "$foreground",
    Origin.COPIED: "$secondary italic",
    Origin.RESIDUAL: "$warning underline",
    Origin.BONUS: "$accent bold",
    Origin.TARGET: "$foreground dim",
}
ORIGIN_MEANINGS: Final[dict[Origin, str]] = {
    Origin.DRAFT: "written by the draft model, and accepted",
    Origin.COPIED: "copied from the text so far, and accepted",
    Origin.RESIDUAL: "the target's, after a rejection",
    Origin.BONUS: "the target's, after a whole draft",
    Origin.TARGET: "the target's, without a draft",
}


@dataclass(frozen=True, slots=True)
class OriginPiece:
    """Some text of a reply as the model wrote it, Markdown signs included."""

    spans: tuple[TextSpan, ...]

    def lines(self, width: int) -> list[Content]:
        """See `Typeset`."""
        lines = Content.assemble(*((span.text, ORIGIN_STYLES[span.origin]) for span in self.spans)).wrap(width)
        while lines and not lines[-1].plain.strip():
            lines.pop()
        return lines


class OriginPieces:
    """Cuts spans at newlines; a line without end before a space, or anywhere if there is none either."""

    def __init__(self) -> None:
        self._spans: list[TextSpan] = []
        self._n_characters = 0

    def feed(self, spans: Iterable[TextSpan]) -> Sequence[Typeset]:
        """See `Pieces`."""
        done: list[OriginPiece] = []
        for span in spans:
            text = printable(span.text)
            if self._n_characters > SOFT_LIMIT and "\n" in text:
                before, _, text = text.partition("\n")
                self._spans.append(TextSpan(before, span.origin))
                done.append(self._cut())
            elif self._n_characters > HARD_LIMIT:
                if text.startswith(" "):  # it would stand at the beginning of the next line
                    self._spans.append(TextSpan(" ", span.origin))
                    text = text[1:]
                if self._spans[-1].text.endswith(" ") or self._n_characters > 2 * HARD_LIMIT:
                    done.append(self._cut())
            self._spans.append(TextSpan(text, span.origin))
            self._n_characters += len(text)
        return [*done, OriginPiece(tuple(self._spans))]

    def _cut(self) -> OriginPiece:
        piece = OriginPiece(tuple(self._spans))
        self._spans.clear()
        self._n_characters = 0
        return piece
