"""Code as lines: highlighted, on a ground of its own."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

# Pygments comes without types.
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Keyword, Name, Number, Operator, String
from pygments.util import ClassNotFound
from textual.content import Content, Span

from localspec.printable import printable

CODE_GROUND: Final = "on $surface"

_TAB_SIZE: Final = 4
_MAX_TITLE: Final = 24

# The most special type that has a style gives it. Keywords and comments differ without colour too.
_STYLES: Final[dict[Any, str]] = {
    Comment: "dim italic",
    Keyword: "$accent bold",
    Operator.Word: "$accent bold",
    Name.Decorator: "$accent",
    Name.Tag: "$accent",
    Name.Function: "bold",
    Name.Class: "bold",
    Number: "$warning",
    String: "$warning",
}


def code_lines(code: str, info: str, width: int, *, title: str = "") -> list[Content]:
    """A block of code, `width` cells wide and one cell in from both sides; long lines are folded.

    `info` is what its fence says of it, such as a language; `title` is shown above.
    """
    content = _highlighted(printable(code).expandtabs(_TAB_SIZE).removesuffix("\n"), _lexer(language_of(info)))
    lines = [piece for line in content.split("\n", allow_blank=True) for piece in line.fold(max(2, width - 2))]
    if name := language_of(title):
        lines.insert(0, Content.styled(name, "dim"))
    return [_filled(Content(" ") + line, width) for line in lines]


def language_of(info: str) -> str:
    """The language that a fence names, or ""."""
    words = printable(info).split(maxsplit=1)
    return words[0][:_MAX_TITLE] if words else ""


def _highlighted(code: str, lexer: Lexer) -> Content:
    spans: list[Span] = []
    position = 0
    for kind, text in lexer.get_tokens(code):
        if style := _style_of(kind):
            spans.append(Span(position, position + len(text), style))
        position += len(text)
    return Content(code, spans)


@lru_cache(maxsize=256)
def _style_of(kind: Any) -> str:
    while kind is not None and kind not in _STYLES:
        kind = kind.parent
    return _STYLES.get(kind, "")


@lru_cache(maxsize=64)
def _lexer(language: str) -> Lexer:
    """Looking for a language that does not exist is slow, and a reply asks at every step: the answer is kept."""
    # The text must come back unchanged, or the positions of the spans would be wrong.
    options = {"stripnl": False, "ensurenl": False}
    try:
        return get_lexer_by_name(language, **options)
    except ClassNotFound:
        return get_lexer_by_name("text", **options)


def _filled(line: Content, width: int) -> Content:
    return line.pad_right(max(0, width - line.cell_length)).stylize_before(CODE_GROUND)
