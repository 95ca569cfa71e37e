import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.engine.detokenizer import Detokenizer


def detokenizer(pieces: list[bytes]) -> Detokenizer:
    return Detokenizer(pieces.__getitem__)


def texts(pieces: list[bytes]) -> list[str]:
    decoder = detokenizer(pieces)
    return [*map(decoder.push, range(len(pieces))), decoder.flush()]


# Bytes near the edges of UTF-8: leads, continuations, surrogates, overlong forms, the last code point and beyond.
AWKWARD = st.sampled_from(
    [0x00, 0x7F, 0x80, 0x9F, 0xA0, 0xBF, 0xC0, 0xC2, 0xE0, 0xE2, 0xED, 0xF0, 0x90, 0xF4, 0xF5, 0xFF]
)
RAW = st.lists(st.one_of(st.binary(max_size=5), st.lists(AWKWARD, max_size=5).map(bytes)), max_size=30)


@given(RAW)
@settings(deadline=None)
def test_any_bytes_in_any_split_equal_decoding_the_whole(pieces: list[bytes]) -> None:
    assert "".join(texts(pieces)) == b"".join(pieces).decode("utf-8", "replace")


@given(st.text(max_size=40), st.lists(st.integers(0, 160), max_size=20))
@settings(deadline=None)
def test_valid_text_never_shows_a_broken_character(text: str, cuts: list[int]) -> None:
    raw = text.encode("utf-8", "replace")
    edges = [0, *sorted(cut for cut in cuts if cut < len(raw)), len(raw)]
    got = texts([raw[start:end] for start, end in itertools.pairwise(edges)])
    assert "".join(got) == raw.decode()


@given(RAW)
@settings(deadline=None)
def test_never_more_than_three_bytes_wait(pieces: list[bytes]) -> None:
    decoder = detokenizer(pieces)
    seen = b""
    shown = ""
    for token, piece in enumerate(pieces):
        seen += piece
        shown += decoder.push(token)
        assert any(seen[: len(seen) - n].decode("utf-8", "replace") == shown for n in range(4))


def test_an_emoji_over_four_tokens_appears_with_its_last_byte() -> None:
    assert texts([bytes([byte]) for byte in "🦙!".encode()]) == ["", "", "", "🦙", "!", ""]


@pytest.mark.parametrize("bad", [b"\xff", b"\x80", b"\xc0", b"\xf4\x90", b"\xe0\x80", b"\xed\xa0x"])
def test_bytes_that_cannot_become_a_character_do_not_wait(bad: bytes) -> None:
    assert texts([bad])[0] == bad.decode("utf-8", "replace")


def test_a_cut_character_comes_with_the_flush_and_leaves_nothing_behind() -> None:
    pieces = [b"a\xf0\x9f", b"b"]
    decoder = detokenizer(pieces)
    assert decoder.push(0) == "a"
    assert decoder.flush() == "\ufffd"
    assert decoder.push(1) == "b"
    assert decoder.flush() == ""
