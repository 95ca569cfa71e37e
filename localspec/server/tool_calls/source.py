"""Reading a reply that arrives in pieces, as straight-line code: generators that wait wherever text is missing.

A reader is a generator over a `Source`. It yields when it needs more text to decide, and goes on when there is some or
the reply has ended. Since it decides by characters alone, where the pieces are cut makes no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

T = TypeVar("T")
Reading = Generator[None, None, T]

WHITESPACE = " \t\r\n"


class Source:
    """The text that was not read yet. `place` counts characters from the reply's start.

    What was read since `hold()` is kept, and `rewind()` goes back there, until `release()`.
    """

    def __init__(self) -> None:
        self.has_ended = False
        self._text = ""
        self._at = 0
        self._held: int | None = None

    def feed(self, text: str) -> None:
        keep_from = self._at if self._held is None else self._held
        self._text = self._text[keep_from:] + text
        self._at -= keep_from
        if self._held is not None:
            self._held = 0

    @property
    def rest(self) -> str:
        """All text that has arrived and is not read."""
        return self._text[self._at :]

    def take(self, n: int) -> str:
        """The next `n` characters, which must have arrived."""
        taken = self._text[self._at : self._at + n]
        self._at += n
        return taken

    def hold(self) -> None:
        self._held = self._at

    def release(self) -> None:
        self._held = None

    def rewind(self) -> None:
        assert self._held is not None
        self._at, self._held = self._held, None

    @property
    def is_empty(self) -> bool:
        return self._at >= len(self._text)

    def starts_with(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def peek(self, n: int = 1) -> str:
        return self._text[self._at : self._at + n]


def next_char(source: Source) -> Reading[str]:
    """The next character, left where it is; "" at the reply's end."""
    while source.is_empty:
        if source.has_ended:
            return ""
        yield
    return source.peek()


def take_literal(source: Source, text: str) -> Reading[bool]:
    """Whether `text` comes next. It is read if so, and nothing is if not."""
    while True:
        if source.starts_with(text):
            source.take(len(text))
            return True
        if source.has_ended or not text.startswith(source.peek(len(text))):
            return False
        yield


def take_space(source: Source) -> Reading[str]:
    """White space that comes next, all of it."""
    taken = ""
    while (char := (yield from next_char(source))) and char in WHITESPACE:
        taken += source.take(1)
    return taken


def take_until(source: Source, markers: Sequence[str], emit: Callable[[str], None]) -> Reading[str]:
    """Pass the text before the first of `markers` to `emit`; the marker, left unread, or "" at the reply's end.

    No marker may contain the beginning of another one, except as its own beginning.
    """
    longest = max((len(marker) for marker in markers), default=1)
    while True:
        rest = source.rest
        places = [(place, -len(marker), marker) for marker in markers if (place := rest.find(marker)) >= 0]
        if places:
            place, _, marker = min(places)
        elif source.has_ended:
            place, marker = len(rest), ""
        else:
            place, marker = _undecided(rest, markers, longest), ""
        if place:
            emit(source.take(place))
        if marker or source.has_ended:
            return marker
        yield


def take_short(source: Source, markers: Sequence[str], longest: int) -> Reading[str | None]:
    """The text before the first of `markers`, which is left unread, if one follows within `longest` characters.

    Otherwise None, and nothing is read.
    """
    window = longest + max(map(len, markers))
    while True:
        rest = source.peek(window)
        places = [place for marker in markers if 0 <= (place := rest.find(marker)) <= longest]
        if places:
            return source.take(min(places))
        if source.has_ended or len(rest) == window:
            return None
        yield


def take_closing(source: Source, text: str) -> Reading[bool]:
    """As `take_literal`, but a reply that is cut short within `text` counts too."""
    if (yield from take_literal(source, text)):
        return True
    rest = source.rest
    if not (source.has_ended and rest and text.startswith(rest)):
        return False
    source.take(len(rest))
    return True


def _undecided(text: str, markers: Sequence[str], longest: int) -> int:
    """Where the end of the text may be the beginning of a marker; its length if it is not."""
    for start in range(max(0, len(text) - longest + 1), len(text)):
        if any(marker.startswith(text[start:]) for marker in markers):
            return start
    return len(text)
