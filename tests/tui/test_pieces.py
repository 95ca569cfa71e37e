"""A long reply is cut where it does not show, and every step costs the same."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.engine.events import TextSpan
from localspec.speculative.rejection import Origin
from localspec.tui.markdown_text import markdown_lines
from localspec.tui.origins import ORIGIN_STYLES, OriginPiece, OriginPieces
from localspec.tui.pieces import HARD_LIMIT, SOFT_LIMIT, MarkdownPiece, MarkdownPieces, Pieces
from localspec.tui.typeset import Typeset

WIDTH = 60


def spans(text: str, seed: int = 1) -> Iterator[TextSpan]:
    """The text in small pieces of changing origin."""
    rng = random.Random(seed)
    position = 0
    while position < len(text):
        length = rng.randint(1, 12)
        yield TextSpan(text[position : position + length], rng.choice(list(Origin)))
        position += length


def fed(pieces: Pieces, text: str) -> list[Typeset]:
    """All pieces of a text that came step by step, as the screen keeps them."""
    shown: list[Typeset] = []
    for span in spans(text):
        first, *rest = pieces.feed([span])
        shown[-1:] = [first, *rest]
    return shown


def plain(pieces: Sequence[Typeset]) -> list[str]:
    return [line.plain.rstrip() for piece in pieces for line in piece.lines(WIDTH)]


PARAGRAPH = "A paragraph of *some* words, which wraps over a few lines of the window and then ends.\n\n"
BULLETS = (
    "".join(f"- item {n} with `code` and words enough to wrap over the end of its line\n" for n in range(60)) + "\n"
)
LOOSE = "".join(f"{n}. item\n\n   with a paragraph\n\n" for n in range(1, 60))
NESTED = "".join(f"- item {n}\n  - nested {n}\n    - deeper {n}\n" for n in range(60)) + "\n"
CODE = "```python\n" + "".join(f"def f{n}(x):\n    return x + {n}\n\n" for n in range(90)) + "```\n\n"
QUOTE = "> quoted words\n> and more\n\n" * 90


@pytest.mark.parametrize(
    "text",
    [
        PARAGRAPH * 60,
        BULLETS,
        LOOSE,
        NESTED,
        CODE,
        QUOTE,
        PARAGRAPH + BULLETS + "After.\n\n" + CODE + "# End\n" + LOOSE,
    ],
    ids=["paragraphs", "bullets", "loose list", "nested list", "code", "quotes", "all of them"],
)
def test_the_cuts_do_not_show(text: str) -> None:
    pieces = fed(MarkdownPieces(), text)
    assert len(pieces) > 2
    assert plain(pieces) == [line.plain.rstrip() for line in markdown_lines(text, WIDTH)]


def test_code_in_a_list_goes_on_at_the_margin_and_ends_where_it_ends() -> None:
    text = "- item\n  ```js\n" + "  let x = 1;\n" * 400 + "  ```\n- after\n"
    lines = plain(fed(MarkdownPieces(), text))
    assert lines.count("   let x = 1;") + lines.count(" let x = 1;") == 400
    assert lines[-1] == "• after"
    assert not any("`" in line for line in lines)


def test_a_long_table_repeats_its_header() -> None:
    text = "| n | text |\n|---|---|\n" + "| 1 | cell |\n" * 500 + "\nafter\n"
    lines = plain(fed(MarkdownPieces(), text))
    assert sum(line.replace(" ", "") == "1│cell" for line in lines) == 500
    assert sum(line.replace(" ", "") == "n│text" for line in lines) > 1
    assert lines[-1] == "after"
    assert not any("|" in line for line in lines)


def test_a_line_without_end_is_broken_at_spaces() -> None:
    pieces = fed(MarkdownPieces(), "word " * 4000)
    words = " ".join(plain(pieces)).split()
    assert words == ["word"] * 4000


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
    assert max(lengths) <= HARD_LIMIT + 20


def test_every_origin_has_a_style_that_differs_without_colour() -> None:
    effects = {
        tuple(word for word in style.split() if word in ("bold", "italic", "underline"))
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
