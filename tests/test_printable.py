"""Nothing that a model writes may reach the terminal as a command."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from localspec.printable import one_line, printable


def test_ordinary_text_is_left_alone() -> None:
    text = "Grüße, 世界!\n\tإلى اللقاء 👩\u200d👩\u200d👧 naïve\u0301"
    assert printable(text) == text


def test_an_escape_sequence_becomes_text() -> None:
    assert printable("\x1b]0;title\x07\x1b[31mred\x9b0m\x7f") == "␛]0;title␇␛[31mred�0m␡"


def test_line_ends_become_newlines() -> None:
    assert printable("a\r\nb\u2028c\u2029d\re") == "a\nb\nc\nde"


def test_a_line_cannot_be_reordered() -> None:
    assert printable("\u202eexe.txt\u202c \u2066a\u2069") == "�exe.txt� �a�"


def test_half_a_character_can_still_be_written_out() -> None:
    assert printable("\ud83d").encode() == "�".encode()


@given(st.text(st.characters(codec=None)))
def test_only_newline_and_tab_are_left_of_the_control_characters(text: str) -> None:
    left = {character for character in printable(text) if unicodedata.category(character) in ("Cc", "Cs")}
    assert left <= {"\n", "\t"}


@given(st.lists(st.text()))
def test_a_stream_may_be_passed_in_pieces(pieces: list[str]) -> None:
    assert "".join(printable(piece) for piece in pieces) == printable("".join(pieces))


def test_a_name_fits_a_line() -> None:
    assert one_line("  two\r\n\tlines\u2028\x1b[1m ") == "two lines ␛[1m"
