"""Markdown as lines of text: what a reply looks like.

A block is a run of lines, not a tree of widgets. Textual's own Markdown widget mounts one widget for each paragraph,
list item and table cell, and every layout visits all of them: 70 ms per step after 3 kB of reply, 350 ms after 16 kB.
Links are not clickable: their address stands beside them. Raw HTML shows as it was written. Images are named, never
fetched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from textual.content import Content

from localspec.tui.code import code_lines
from localspec.tui.markdown_inline import inline_content
from localspec.tui.markdown_table import Table
from localspec.tui.typeset import BLANK, LineWriter, Margin

_BULLETS: Final = ("•", "◦", "▪")
_HEADINGS: Final = {"h1": "bold $accent underline", "h2": "bold $accent", "h3": "bold"}

# The parser drops what lies deeper than its limit of nesting. More markers than this on one line are text.
_MAX_MARKERS: Final = 16
_MARKER: Final = r"(?:[>*+-]|\d{1,9}[.)])[ \t]*"
_TOO_DEEP: Final = re.compile(rf"^([ \t]*(?:{_MARKER}){{{_MAX_MARKERS}}})(?={_MARKER})", re.MULTILINE)

_DEFINITION: Final = re.compile(r"^[ \t>]*\[[^\]\n]+\]:", re.MULTILINE)


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False, "maxNesting": 100}).enable(["table", "strikethrough"])


def parse_markdown(source: str, references: Mapping[str, Any] | None = None) -> list[Token]:
    """The block tokens of a text. `references`: definitions of links that stand elsewhere."""
    return _parsed(source, {"references": dict(references or {})})


def link_definitions(source: str) -> Mapping[str, Any]:
    """The addresses that a text defines for its links, in the parser's form."""
    references: dict[str, Any] = {}
    if _DEFINITION.search(source):  # most texts have none, and need not be parsed
        _parsed(source, {"references": references})
    return references


def markdown_lines(
    source: str, width: int, *, n_hidden: int = 0, references: Mapping[str, Any] | None = None
) -> list[Content]:
    """Lay out Markdown without what its first `n_hidden` lines show; a code block that begins in them goes on."""
    writer = _MarkdownWriter(width, n_hidden)
    writer.write(parse_markdown(source, references))
    return writer.shown


def _parsed(source: str, environment: dict[str, Any]) -> list[Token]:
    return _parser().parse(_TOO_DEEP.sub(r"\1\\", source), environment)


class _MarkdownWriter:
    """Walks the parser's tokens. Blocks at the same level are a blank line apart, except inside a tight list."""

    def __init__(self, width: int, n_hidden: int) -> None:
        self.out = LineWriter(width)
        self._n_hidden = n_hidden  # lines of the source
        self._first_shown: int | None = None
        self._list_depth = 0
        self._heading: str | None = None
        self._table: Table | None = None
        self._handlers: dict[str, Callable[[Token], None]] = {
            "heading_open": self._open_heading,
            "heading_close": self._close_heading,
            "paragraph_open": self._open_paragraph,
            "paragraph_close": self._close_paragraph,
            "bullet_list_open": self._open_list,
            "ordered_list_open": self._open_list,
            "bullet_list_close": self._close_list,
            "ordered_list_close": self._close_list,
            "list_item_open": self._open_item,
            "list_item_close": self._close_margin,
            "blockquote_open": self._open_quote,
            "blockquote_close": self._close_quote,
            "fence": self._code,
            "code_block": self._code,
            "hr": self._rule,
            "table_open": self._open_table,
            "table_close": self._close_table,
            "tr_open": self._open_row,
            "th_open": self._open_header_cell,
            "inline": self._inline,
        }

    def write(self, tokens: Sequence[Token]) -> None:
        for token in tokens:
            if token.map and token.map[0] >= self._n_hidden:
                self._show_from_here()
            if handler := self._handlers.get(token.type):
                handler(token)

    @property
    def shown(self) -> list[Content]:
        """The lines that are not hidden."""
        return [] if self._first_shown is None else self.out.lines[self._first_shown :]

    def _show_from_here(self) -> None:
        if self._first_shown is None:
            self._first_shown = len(self.out.lines)

    def _inline(self, token: Token) -> None:
        content = inline_content(token.children or ())
        if self._table is not None:
            self._table.add_cell(content)
        elif self._heading is not None:
            self.out.write(content.stylize_before(_HEADINGS.get(self._heading, "bold")))
        else:
            self.out.write(content)

    def _open_heading(self, token: Token) -> None:
        self.out.gap()
        self._heading = token.tag

    def _close_heading(self, _token: Token) -> None:
        self._heading = None
        self.out.gap()

    def _open_paragraph(self, token: Token) -> None:
        if not token.hidden:  # hidden: in a tight list
            self.out.gap()

    def _close_paragraph(self, token: Token) -> None:
        self._open_paragraph(token)

    def _open_list(self, _token: Token) -> None:
        if self._list_depth == 0:
            self.out.gap()
        self._list_depth += 1

    def _close_list(self, _token: Token) -> None:
        self._list_depth -= 1
        if self._list_depth == 0:
            self.out.gap()

    def _open_item(self, token: Token) -> None:
        marker = f"{token.info}{token.markup}" if token.info else _BULLETS[(self._list_depth - 1) % len(_BULLETS)]
        first = Content.styled(f"{marker} ", "dim")
        self.out.margins.append(Margin(first, Content(" " * first.cell_length)))

    def _close_margin(self, _token: Token) -> None:
        if not self.out.margins[-1].is_started:  # an item without text still shows its bullet
            self.out.write(BLANK)
        self.out.margins.pop()

    def _open_quote(self, _token: Token) -> None:
        self.out.gap()
        bar = Content.styled("▎ ", "dim")
        self.out.margins.append(Margin(bar, bar))

    def _close_quote(self, _token: Token) -> None:
        self._close_margin(_token)
        self.out.gap()

    def _rule(self, _token: Token) -> None:
        self.out.gap()
        self.out.write(Content.styled("─" * self.out.text_width, "dim"))
        self.out.gap()

    def _code(self, token: Token) -> None:
        self.out.gap()
        title = token.info
        if token.map and token.map[0] < self._n_hidden:
            title = ""
            self.out.write(BLANK)  # stands for what is above, and is hidden
            if token.content:
                self._show_from_here()
        self.out.write_lines(code_lines(token.content, token.info, self.out.text_width, title=title))
        self.out.gap()

    def _open_table(self, _token: Token) -> None:
        self._table = Table()

    def _open_row(self, _token: Token) -> None:
        if self._table is not None:
            self._table.add_row()

    def _open_header_cell(self, token: Token) -> None:
        if self._table is not None:
            self._table.add_alignment(str(token.attrs.get("style", "")))

    def _close_table(self, _token: Token) -> None:
        if self._table is not None:
            self.out.gap()
            self.out.write_lines(self._table.lines(self.out.text_width))
            self.out.gap()
        self._table = None
