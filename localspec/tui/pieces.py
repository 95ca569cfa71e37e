"""A growing reply in pieces: only the last one changes, so a step costs the same in a long reply as in a short one.

The cuts are where they do not show: at a blank line between blocks, before an item of a top-level list, inside a code
block (its fence is closed and opened again). Where a block offers none of these for too long, at the end of a line,
and in a line without end at a space.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from textual.content import Content

from localspec.engine.events import TextSpan
from localspec.tui.markdown_text import markdown_lines
from localspec.tui.origins import origin_content
from localspec.tui.printable import printable
from localspec.tui.typeset import BLANK, Typeset

# Characters. A piece is cut once it is longer than the first, wherever it can be; at the second wherever it is.
_SOFT_LIMIT: Final = 800
_HARD_LIMIT: Final = 2400

_FENCE: Final = re.compile(r"^(?P<indent>[ \t]*)(?:(?:[*+-]|\d{1,9}[.)])[ \t]+)?(?P<mark>`{3,}|~{3,})(?P<info>[^`]*)$")
_LIST_ITEM: Final = re.compile(r"^(?:[*+-]|\d{1,9}[.)])[ \t]")
_TABLE_RULE: Final = re.compile(r"^\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)+\|?[ \t]*$")


@dataclass(frozen=True, slots=True)
class MarkdownPiece:
    """Some blocks of a reply. A gap stands above it unless it goes on with the list or code block before."""

    source: str
    has_gap: bool = False
    is_continued: bool = False

    def lines(self, width: int) -> list[Content]:
        """See `Typeset`."""
        lines = markdown_lines(self.source, width, is_continued=self.is_continued)
        return [BLANK, *lines] if self.has_gap and lines else lines


@dataclass(frozen=True, slots=True)
class OriginPiece:
    """Some text of a reply, as it was written, each token in the style of its origin."""

    spans: tuple[TextSpan, ...]

    def lines(self, width: int) -> list[Content]:
        """See `Typeset`."""
        return origin_content(self.spans).wrap(width)


class OriginPieces:
    """Cuts spans at newlines."""
