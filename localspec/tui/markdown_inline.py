"""The text inside a Markdown block: emphasis, code, links, line breaks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from markdown_it.token import Token
from textual.content import Content, Span

from localspec.printable import printable
from localspec.tui.code import CODE_GROUND

_CODE: Final = f"$text-accent {CODE_GROUND}"
_STYLES: Final = {"em_open": "italic", "strong_open": "bold", "s_open": "strike", "link_open": "underline"}


class _OpenStyle(NamedTuple):
    start: int
    style: str
    address: str  # of a link


def inline_content(children: Sequence[Token]) -> Content:
    """Styled text. A single newline of the source stays one, as in a chat; the address of a link stands behind it."""
    writer = _InlineWriter()
    for child in children:
        writer.write(child)
    return Content(writer.text, writer.spans)


class _InlineWriter:
    def __init__(self) -> None:
        self.text = ""
        self.spans: list[Span] = []
        self._open: list[_OpenStyle] = []

    def write(self, token: Token) -> None:
        match token.type:
            case "softbreak" | "hardbreak":
                self._add("\n")
            case "code_inline":
                self._add(token.content, _CODE)
            case "image":
                self._add(f"[image: {token.content}] ({token.attrs.get('src', '')})", "dim")
            case kind if kind in _STYLES:
                self._open.append(_OpenStyle(len(self.text), _STYLES[kind], str(token.attrs.get("href", ""))))
            case kind if kind.endswith("_close"):
                self._close()
            case _:
                self._add(token.content)

    def _add(self, text: str, style: str = "") -> None:
        # Again, although the source was made printable: the parser turns entities such as &#x202e; into characters.
        text = printable(text)
        if style:
            self.spans.append(Span(len(self.text), len(self.text) + len(text), style))
        self.text += text

    def _close(self) -> None:
        start, style, address = self._open.pop()
        self.spans.append(Span(start, len(self.text), style))
        if address and address not in self.text[start:]:
            self._add(f" ({address})", "dim")
