from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.engine.events import TextSpan
from localspec.engine.stopping import StopStrings
from localspec.speculative.rejection import Origin

ORIGINS = tuple(Origin)


def spans_of(pieces: list[str]) -> list[TextSpan]:
    return [TextSpan(piece, ORIGINS[number % len(ORIGINS)]) for number, piece in enumerate(pieces)]


def characters(spans: list[TextSpan]) -> list[tuple[str, Origin]]:
    return [(character, span.origin) for span in spans for character in span.text]


def run(stops: list[str], pushes: list[list[TextSpan]]) -> tuple[list[TextSpan], str | None]:
    stopping = StopStrings(stops)
    released = [span for spans in pushes for span in stopping.push(spans)]
    return [*released, *stopping.flush()], stopping.matched


def first_stop(stops: list[str], text: str) -> tuple[int, str | None]:
    """By the definition: the earliest place where a stop string begins, the shortest of those that begin there."""
    found = [(start, len(stop), stop) for start in range(len(text)) for stop in stops if text.startswith(stop, start)]
    return (min(found)[0], min(found)[2]) if found else (len(text), None)


# A small alphabet makes overlaps, near misses and stops inside stops common.
WORD = st.text("ab\n", min_size=1, max_size=5)
PIECES = st.lists(st.text("ab\n", max_size=4), max_size=25)


@given(st.lists(WORD, max_size=4), PIECES, st.integers(1, 4))
@settings(deadline=None)
def test_any_chunking_equals_the_definition_on_the_whole_text(
    stops: list[str], pieces: list[str], per_push: int
) -> None:
    spans = spans_of(pieces)
    pushes = [spans[start : start + per_push] for start in range(0, len(spans), per_push)]
    end, matched = first_stop(stops, "".join(pieces))
    released, got = run(stops, pushes)
    assert got == matched
    assert characters(released) == characters(spans)[:end]


@given(st.lists(WORD, min_size=1, max_size=4), PIECES)
@settings(deadline=None)
def test_nothing_is_released_that_a_stop_could_still_begin_with_and_nothing_else_waits(
    stops: list[str], pieces: list[str]
) -> None:
    stopping = StopStrings(stops)
    text = shown = ""
    for span in spans_of(pieces):
        text += span.text
        shown += "".join(released.text for released in stopping.push([span]))
        if stopping.matched is not None:
            break
        waiting = text[len(shown) :]
        begins = [start for start in range(len(text)) if any(stop.startswith(text[start:]) for stop in stops)]
        complete, _ = first_stop(stops, text)
        assert shown + waiting == text
        assert len(shown) == min([complete, *begins])


def test_spans_keep_their_origin_when_cut() -> None:
    spans = [TextSpan("one S", Origin.DRAFT), TextSpan("TOP two", Origin.BONUS)]
    stopping = StopStrings(["STOP"])
    assert stopping.push(spans[:1]) == (TextSpan("one ", Origin.DRAFT),)
    assert stopping.push(spans[1:]) == ()
    assert stopping.matched == "STOP"
    stopping = StopStrings(["STOP"])
    stopping.push(spans[:1])
    assert stopping.push([TextSpan("o", Origin.TARGET)]) == (TextSpan("S", Origin.DRAFT), TextSpan("o", Origin.TARGET))


def test_a_stop_string_over_many_single_characters() -> None:
    stopping = StopStrings(["</answer>"])
    shown = [span.text for character in "x</answer>y" for span in stopping.push([TextSpan(character, Origin.TARGET)])]
    assert shown == ["x"]
    assert stopping.matched == "</answer>"
    assert stopping.push([TextSpan("more", Origin.TARGET)]) == ()
    assert stopping.flush() == ()


@pytest.mark.parametrize(
    ("stops", "text", "reply", "matched"),
    [
        (["\n\n", "\n"], "a\n\nb", "a", "\n"),
        (["bc", "abcd"], "xabcd", "x", "abcd"),
        (["bc", "abcd"], "xabce", "xa", "bc"),
        (["bc", "abcd"], "xabc", "xa", "bc"),
        (["aab"], "aaaab", "aa", "aab"),
        (["stop"], "a sto", "a sto", None),
        ([".", "*"], "a.b", "a", "."),
        (["é🦙"], "né🦙!", "n", "é🦙"),
    ],
)
def test_examples(stops: list[str], text: str, reply: str, matched: str | None) -> None:
    one_by_one = [[TextSpan(character, Origin.TARGET)] for character in text]
    for pushes in ([[TextSpan(text, Origin.TARGET)]], one_by_one):
        released, got = run(stops, pushes)
        assert "".join(span.text for span in released) == reply
        assert got == matched


def test_without_stop_strings_spans_pass_through_untouched() -> None:
    spans = spans_of(["a", "b"])

    def once() -> Iterator[TextSpan]:
        yield from spans

    stopping = StopStrings([])
    assert stopping.push(once()) == tuple(spans)
    assert stopping.flush() == ()
    assert stopping.matched is None
