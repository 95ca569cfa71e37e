"""Markdown as lines of text: what a reply looks like.

A block is a run of lines, not a tree of widgets. Textual's own Markdown widget mounts one widget for each paragraph,
list item and table cell, and every layout visits all of them: 70 ms per step after 3 kB of reply, 350 ms after 16 kB.
Links are not clickable: their address stands beside them. Raw HTML shows as it was written. Images are named, never
fetched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound
from textual.content import Content, Span
from textual.highlight import highlight

from localspec.tui.markdown_table import Table
from localspec.tui.printable import printable
from localspec.tui.typeset import BLANK, LineWriter, Margin

_TAB_SIZE: Final = 4
_BULLETS: Final = ("•", "◦", "▪")
_CODE: Final = "on $surface"
_HEADINGS: Final = {"h1": "bold $accent underline", "h2": "bold $accent", "h3": "bold"}
_INLINE: Final = {"em_open": "italic", "strong_open": "bold", "s_open": "strike"}

# The parser drops what lies deeper than its limit of nesting. More markers than this on one line are text.
_MAX_MARKERS: Final = 16
_MARKER: Final = r"(?:[>*+-]|\d{1,9}[.)])[ \t]*"
_TOO_DEEP: Final = re.compile(rf"^([ \t]*(?:{_MARKER}){{{_MAX_MARKERS}}})(?={_MARKER})", re.MULTILINE)


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False, "maxNesting": 100}).enable(["table", "strikethrough"])


def markdown_lines(source: str, width: int, *, is_continued: bool = False) -> list[Content]:
    """Lay out Markdown. `is_continued`: a code block at the top continues one that stands above, without its title."""
    writer = _MarkdownWriter(width, is_continued=is_continued)
    writer.write(_parser().parse(_TOO_DEEP.sub(r"\1\\", source)))
    return writer.out.lines


class _MarkdownWriter:
    """Walks the parser's tokens. Blocks at the same level are a blank line apart, except inside a tight list."""

    def __init__(self, width: int, *, is_continued: bool) -> None:
        self.out = LineWriter(width)
        self._is_continued = is_continued
        self._list_depth = 0
        self._heading: str | None = None
        self._is_hidden = False  # a paragraph of a tight list
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
            "inline": self._inline,
        }

    def write(self, tokens: Sequence[Token]) -> None:
        for token in tokens:
            if handler := self._handlers.get(token.type):
                handler(token)

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

    def _close_heading(self, token: Token) -> None:
        self._heading = None
        self.out.gap()

    def _open_paragraph(self, token: Token) -> None:
        self._is_hidden = token.hidden
        if not token.hidden:
            self.out.gap()

    def _close_paragraph(self, token: Token) -> None:
        if not token.hidden:
            self.out.gap()

    def _open_list(self, token: Token) -> None:
        if self._list_depth == 0:
            self.out.gap()
        self._list_depth += 1

    def _close_list(self, token: Token) -> None:
        self._list_depth -= 1
        if self._list_depth == 0:
            self.out.gap()

    def _open_item(self, token: Token) -> None:
        marker = f"{token.info}{token.markup}" if token.info else _BULLETS[(self._list_depth - 1) % len(_BULLETS)]
        first = Content.styled(f"{marker} ", "$text-muted")
        self.out.margins.append(Margin(first, Content(" " * first.cell_length)))

    def _close_margin(self, token: Token) -> None:
        if not self.out.margins[-1].is_started:  # an item without text still shows its bullet
            self.out.write(BLANK)
        self.out.margins.pop()

    def _open_quote(self, token: Token) -> None:
        self.out.gap()
        bar = Content.styled("▎ ", "$text-muted")
        self.out.margins.append(Margin(bar, bar))

    def _close_quote(self, token: Token) -> None:
        self._close_margin(token)
        self.out.gap()

    def _rule(self, token: Token) -> None:
        self.out.gap()
        self.out.write(Content.styled("─" * self.out.text_width, "$text-muted"))
        self.out.gap()

    def _code(self, token: Token) -> None:
        is_continued = self._is_continued and not self.out.lines
        self.out.gap()
        width = self.out.text_width
        lines = code_lines(token.content, language_of(token.info), width)
        if (title := title_of(token.info)) and not is_continued:
            lines.insert(0, _filled(Content.styled(f" {title}", "$text-muted"), width))
        self.out.write_lines(lines)
        self.out.gap()

    def _open_table(self, token: Token) -> None:
        self._table = Table()

    def _open_row(self, token: Token) -> None:
        if self._table is not None:
            self._table.add_row()

    def _close_table(self, token: Token) -> None:
        if self._table is not None:
            self.out.gap()
            self.out.write_lines(self._table.lines(self.out.text_width))
            self.out.gap()
        self._table = None


def inline_content(children: Sequence[Token]) -> Content:
    """Text with emphasis, code, links and line breaks. A single newline of the source stays one, as in a chat."""
    text: list[str] = []
    spans: list[Span] = []
    open_styles: list[tuple[int, str, str]] = []  # where it starts, the style, the address of a link
    position = 0

    def add(piece: str, style: str = "") -> None:
        nonlocal position
        # Entities such as &#x202e; become characters only in the parser.
        piece = printable(piece)
        text.append(piece)
        if style:
            spans.append(Span(position, position + len(piece), style))
        position += len(piece)

    for child in children:
        match child.type:
            case "softbreak" | "hardbreak":
                add("\n")
            case "code_inline":
                add(child.content, f"$text-accent {_CODE}")
            case "image":
                add(f"[image: {child.content}] ({child.attrs.get('src', '')})", "$text-muted")
            case "link_open":
                open_styles.append((position, "underline", str(child.attrs.get("href", ""))))
            case kind if kind in _INLINE:
                open_styles.append((position, _INLINE[kind], ""))
            case kind if kind.endswith("_close") and open_styles:
                start, style, address = open_styles.pop()
                spans.append(Span(start, position, style))
                if address and address not in "".join(text)[start:position]:
                    add(f" ({address})", "$text-muted")
            case _:
                add(child.content)
    return Content("".join(text), spans)


def code_lines(code: str, language: str, width: int) -> list[Content]:
    """Highlighted code on its own ground, one cell in from both sides; long lines are folded."""
    source = printable(code).expandtabs(_TAB_SIZE).removesuffix("\n")
    folded = [piece for line in highlight(source, language=language).split("\n", allow_blank=True) for piece in line.fold(width - 2)]
    return [_filled(Content(" ") + line, width) for line in folded]


def title_of(info: str) -> str:
    """The language that a fence names, as a title."""
    return printable(info).split(maxsplit=1)[0][:24] if info.strip() else ""


@lru_cache(maxsize=64)
def language_of(info: str) -> str:
    """A language that can be highlighted, from a fence's info string. Asking for unknown ones is slow: they are kept."""
    name = title_of(info)
    try:
        get_lexer_by_name(name)
    except ClassNotFound:
        return "text"
    return name


def _filled(line: Content, width: int) -> Content:
    return line.pad_right(max(0, width - line.cell_length)).stylize_before(_CODE)
