"""A long reply is cut where it does not show, and every step costs the same."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.engine.events import TextSpan
from localspec.speculative.rejection import Origin
from localspec.tui.markdown_text import link_definitions, markdown_lines
from localspec.tui.origins import ORIGIN_STYLES, OriginPiece, OriginPieces
from localspec.tui.pieces import HARD_LIMIT, SOFT_LIMIT, MarkdownPiece, MarkdownPieces, Pieces
from localspec.tui.typeset import Typeset

WIDTH = 60


def spans(text: str, *, longest: int = 12) -> Iterator[TextSpan]:
    """The text in small pieces of changing origin."""
    rng = random.Random(1)
    position = 0
    while position < len(text):
        length = rng.randint(1, longest)
        yield TextSpan(text[position : position + length], rng.choice(list(Origin)))
        position += length


def fed(pieces: Pieces, text: str, *, longest: int = 12) -> list[Typeset]:
    """All pieces of a text that came step by step, as the screen keeps them."""
    shown: list[Typeset] = []
    for span in spans(text, longest=longest):
        first, *rest = pieces.feed([span])
        shown[-1:] = [first, *rest]
    return shown


def plain(pieces: Sequence[Typeset]) -> list[str]:
    return [line.plain.rstrip() for piece in pieces for line in piece.lines(WIDTH)]


def uncut(text: str) -> list[str]:
    return [line.plain.rstrip() for line in markdown_lines(text, WIDTH)]


PARAGRAPH = "A paragraph of *some* words, which wraps over a few lines of the window and then ends.\n\n"
ITEM = "item with `code` and words enough to wrap over the end of its line\n"
BASH = "```bash\nmake clean\n\nmake\n```\n"


def indented(text: str, margin: str) -> str:
    return "".join(f"{margin}{line}\n" for line in text.splitlines())


def python(n: int) -> str:
    return "```python\n" + "".join(f"def f{i}(x):\n    return x + {i}\n\n" for i in range(n)) + "```\n"


def numbered(n: int, rest: str = "") -> str:
    return "".join(f"{i}. {ITEM}{rest}" for i in range(1, n + 1))


LONG = {
    "paragraphs": PARAGRAPH * 60,
    "lines": "Roses are red\nviolets are blue\n" * 300,
    "headings": "## Heading\nText below it\n### Another\n" * 100,
    "underlined headings": "Title\n=====\nText\n\nOther\n---\n" * 100,
    "rules": "text\n\n---\n" * 200,
    "bullets": f"- {ITEM}" * 60,
    "loose bullets": f"- {ITEM}\n" * 60,
    "numbers": numbered(120),
    "items of two paragraphs": numbered(60, "\n   with a paragraph\n\n"),
    "nested list": f"- {ITEM}  - nested\n    - deeper\n" * 60,
    "nested in one item": f"- item\n{f'  - {ITEM}' * 60}- last\n",
    "numbers in one item": f"- item\n{indented(numbered(120), '  ')}- last\n",
    "numbers in numbers": numbered(60, "    1. deep\n    2. deeper\n"),
    "loose nested list": f"- {ITEM}\n  - nested\n\n  - nested\n\n" * 60,
    "wide indents": f"*   {ITEM}    +   nested\n        1)  deeper\n" * 60,
    "paragraphs in one item": f"1. item\n\n{indented(PARAGRAPH * 60, '   ')}2. last\n",
    "code": python(90),
    "tildes": "~~~~ py\n" + "x = 1\n```\n" * 300 + "~~~~\n",
    "code that is never closed": python(90).removesuffix("```\n"),
    "code in an item": f"- item\n{indented(python(90), '  ')}- last\n",
    "code in a loose item": f"- item\n\n{indented(python(90), '  ')}\n- last\n",
    "code as an item": f"- {indented(python(90), '  ').lstrip()}- last\n",
    "indented fence": f"text\n\n{indented(python(90), '  ')}",
    "indented code": "text\n\n" + "    x = 1\n\n" * 400,
    "steps": numbered(40, f"\n{indented(BASH, '   ')}\n"),
    "tight steps": numbered(9, indented(BASH, "   ")) * 6,
    "text right behind code": f"{BASH}text\n" * 60,
    "quotes": "> quoted words\n> and more\n\n" * 90,
    "one quote": "> quoted words\n>\n> and more\n>\n" * 90,
    "list in a quote": f"> - {ITEM}>   - nested\n" * 60,
    "code in a quote": f"> text\n>\n{indented(python(90), '> ')}> after\n",
    "code in a quote in an item": f"- item\n\n{indented(indented(python(90), '> '), '  ')}\n- last\n",
    "quote in an item": f"- item\n\n{indented(PARAGRAPH * 30, '  > ')}\n- last\n",
}


@pytest.mark.parametrize("longest", [1, 30])
@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_the_cuts_do_not_show(text: str, longest: int) -> None:
    text += "\nAfter it.\n"
    pieces = fed(MarkdownPieces(), text, longest=longest)
    assert len(pieces) > len(text) / HARD_LIMIT
    assert plain(pieces) == uncut(text)


BLOCKS = st.sampled_from(
    [
        PARAGRAPH,
        "# Title\n",
        "## A section\n\n",
        "---\n\n",
        "Some code:\n" + BASH,
        python(5),
        python(30),
        *(f"Some points:\n\n{text}\nAfter them.\n\n" for text in (f"- {ITEM}" * 4, numbered(12), f"- {ITEM}\n" * 4)),
        f"In depth:\n\n{f'- {ITEM}  - nested{chr(10)}    1. deep{chr(10)}    2. deeper{chr(10)}' * 5}\nAfter them.\n\n",
        f"Steps:\n\n{numbered(4, chr(10) + indented(BASH, '   ') + chr(10))}After them.\n\n",
        f"> quoted\n>\n{indented(python(8), '> ')}\n",
    ]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(BLOCKS, max_size=15).map("".join), st.sampled_from([1, 12, 100, 5000]))
def test_the_cuts_of_a_reply_do_not_show(text: str, longest: int) -> None:
    assert plain(fed(MarkdownPieces(), text, longest=longest)) == uncut(text)


def test_a_long_table_repeats_its_header() -> None:
    text = "| n | text |\n|---|---|\n" + "| 1 | cell |\n" * 500 + "\nafter\n"
    lines = plain(fed(MarkdownPieces(), text))
    assert sum(line.replace(" ", "") == "1│cell" for line in lines) == 500
    headers = [index for index, line in enumerate(lines) if line.replace(" ", "") == "n│text"]
    assert len(headers) > 1
    assert all(lines[index - 1] == "" for index in headers[1:])
    assert lines[-1] == "after"
    assert not any("|" in line for line in lines)


def test_pieces_of_code_are_shorter_because_highlighting_is_dear() -> None:
    lengths = [len(piece.source) for piece in fed(MarkdownPieces(), python(90)) if isinstance(piece, MarkdownPiece)]
    assert len(lengths) > 5
    assert max(lengths) < 0.65 * SOFT_LIMIT


def test_a_line_without_end_is_broken_at_spaces() -> None:
    pieces = fed(MarkdownPieces(), "word " * 4000)
    words = " ".join(plain(pieces)).split()
    assert words == ["word"] * 4000


def test_links_are_resolved_by_the_definitions_of_the_whole_reply() -> None:
    text = PARAGRAPH * 20 + "See [the docs][1].\n\n" + PARAGRAPH * 20 + "[1]: https://docs.example\n"
    assert "See the docs (https://docs.example)." in uncut(text)
    assert "See [the docs][1]." in plain(fed(MarkdownPieces(), text))
    assert plain(fed(MarkdownPieces(link_definitions(text)), text)) == uncut(text)


def test_the_text_of_a_reply_is_made_printable() -> None:
    (piece,) = MarkdownPieces().feed([TextSpan("a\x1b[31m\x9b", Origin.DRAFT)])
    assert isinstance(piece, MarkdownPiece)
    assert piece.source == "a␛[31m�"
    (piece,) = OriginPieces().feed([TextSpan("a\x1b[31m\x9b", Origin.DRAFT)])
    assert isinstance(piece, OriginPiece)
    assert piece.spans == (TextSpan("a␛[31m�", Origin.DRAFT),)


@pytest.mark.parametrize(
    "beginning",
    [
        "```" + "i" * 2000 + "\n",
        "`" * 2000 + "\n",
        "| " + "a" * 2000 + " | b |\n|---|---|\n",
        "- ```" + "i" * 2000 + "\n",
    ],
    ids=["title", "fence", "header", "nested"],
)
def test_a_long_beginning_is_not_repeated_line_by_line(beginning: str) -> None:
    text = beginning + "| one | line |\n" * 400
    assert len(fed(MarkdownPieces(), text)) < 2 * len(text) / SOFT_LIMIT + 3


SOURCE = st.lists(
    st.sampled_from(
        [
            "word ",
            "a",
            "\n",
            "\n\n",
            "- ",
            "1. ",
            "  ",
            "```",
            "```py\n",
            "~~~\n",
            "> ",
            "# ",
            "| a | b |\n",
            "|---|---|\n",
            "*",
            "`",
        ]
    ),
    max_size=60,
).map("".join)


@settings(max_examples=200, deadline=None)
@given(SOURCE, st.integers(1, 40))
def test_however_long_the_reply_the_last_piece_is_short(source: str, n: int) -> None:
    pieces: Pieces = MarkdownPieces()
    for _ in range(n):
        for piece in pieces.feed([TextSpan(source, Origin.DRAFT)])[:-1]:
            assert isinstance(piece, MarkdownPiece)
        last = pieces.feed([TextSpan("x", Origin.DRAFT)])[-1]
        assert isinstance(last, MarkdownPiece)
        assert len(last.source) <= 2 * HARD_LIMIT + len(source) + 20


@settings(max_examples=200, deadline=None)
@given(SOURCE.filter(bool))
def test_how_the_text_came_does_not_matter(source: str) -> None:
    text = source * 30
    (*_, last) = whole = MarkdownPieces().feed([TextSpan(text, Origin.DRAFT)])
    stepwise = fed(MarkdownPieces(), text)
    assert stepwise == list(whole)
    assert last == stepwise[-1]


def test_origins_are_cut_at_newlines_and_keep_every_sign() -> None:
    text = (PARAGRAPH * 3 + "1. x\n") * 30
    pieces = fed(OriginPieces(), text)
    assert len(pieces) > 5
    assert all(isinstance(piece, OriginPiece) for piece in pieces)
    shown = "\n".join("".join(span.text for span in piece.spans) for piece in pieces if isinstance(piece, OriginPiece))
    assert shown == text


def test_origins_of_a_line_without_end_stay_short() -> None:
    pieces = fed(OriginPieces(), "word " * 4000)
    lengths = [sum(len(span.text) for span in piece.spans) for piece in pieces if isinstance(piece, OriginPiece)]
    assert sum(lengths) == 20_000
    assert max(lengths) <= HARD_LIMIT + 40


@pytest.mark.parametrize("words", [["word", " "], [" word"], ["word "]])
def test_origins_of_a_long_line_are_cut_between_words(words: list[str]) -> None:
    spans = [TextSpan(word, Origin.TARGET) for word in words * 1500]
    pieces = [piece for piece in OriginPieces().feed(spans) if isinstance(piece, OriginPiece)]
    shown = ["".join(span.text for span in piece.spans) for piece in pieces]
    assert len(shown) > 2
    assert "".join(shown) == "".join(span.text for span in spans)
    assert all(text.endswith("word ") for text in shown[:-1])
    assert all(text.startswith("word") for text in shown[1:])


def test_origins_of_a_line_without_spaces_are_cut_anywhere() -> None:
    pieces = fed(OriginPieces(), "x" * 20_000)
    assert len(pieces) > 3


def test_every_origin_has_a_style_that_differs_without_colour() -> None:
    effects = {
        tuple(word for word in style.split() if word in ("bold", "dim", "italic", "underline"))
        for style in ORIGIN_STYLES.values()
    }
    assert set(ORIGIN_STYLES) == set(Origin)
    assert len(effects) == len(Origin)


def test_each_token_has_the_style_of_its_origin() -> None:
    piece = OriginPiece((TextSpan("*draft* ", Origin.DRAFT), TextSpan("bonus", Origin.BONUS)))
    (line,) = piece.lines(WIDTH)
    assert line.plain == "*draft* bonus"
    assert [(line.plain[span.start : span.end], span.style) for span in line.spans] == [
        ("*draft* ", ORIGIN_STYLES[Origin.DRAFT]),
        ("bonus", ORIGIN_STYLES[Origin.BONUS]),
    ]
