"""Reading forward through the bytes of a GGUF header, in pieces, with every length checked before anything is taken."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable
from pathlib import PurePath
from typing import Any, Final, TypeAlias

from localspec.errors import ModelFileError
from localspec.models.header import LENGTH_BYTES, StringArray

__all__ = ["FETCH_AGAIN", "MAX_HEADER_BYTES", "MAX_TEXT_BYTES", "HeaderCursor", "ReadAt", "shown"]

MAX_HEADER_BYTES: Final = 64 * 1024 * 1024  # four times the largest vocabulary in use
MAX_TEXT_BYTES: Final = 8 * 1024 * 1024  # keys, names and texts that are not in arrays; decoded they take up to 4 times
FETCH_AGAIN: Final = "The download was cut or damaged: fetch it again."

ReadAt: TypeAlias = Callable[[int, int], bytes]
"""`read(offset, n_bytes)`: at most `n_bytes` bytes of a file from `offset` on, and none only at its end."""

# Pieces grow with what was read, since over a network each costs a round trip; what the last one has too much stays
# small beside the rest. Eight pieces, 9 MB, for the 8 MB header of a vocabulary of 128 thousand tokens.
_LEAST_READ_BYTES: Final = 512 * 1024
_MOST_READ_BYTES: Final = 2 * 1024 * 1024

_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")


class HeaderCursor:
    """Reads forward through a header, never past the end of the file or the largest header accepted.

    Only what lies ahead is kept: the bytes from `_start` on, of which `_at` have been passed. Whatever is not as it
    should be is a ModelFileError that names `path`.
    """

    def __init__(self, path: PurePath, size: int, read: ReadAt) -> None:
        self.path = path
        self.size = size
        self._read = read
        self._data = bytearray()
        self._start = 0
        self._at = 0
        self._n_text_bytes = 0

    @property
    def position(self) -> int:
        """The offset of the next byte."""
        return self._start + self._at

    def require(self, n_bytes: int) -> None:
        """Have the next `n_bytes` in memory."""
        if self._at + n_bytes <= len(self._data):
            return
        self._refuse_beyond(self.position + n_bytes)
        del self._data[: self._at]
        self._start, self._at = self.position, 0
        while len(self._data) < n_bytes:
            offset = self._start + len(self._data)
            piece_bytes = min(max(_LEAST_READ_BYTES, offset // 2), _MOST_READ_BYTES)
            wanted = min(max(n_bytes - len(self._data), piece_bytes), min(self.size, MAX_HEADER_BYTES) - offset)
            piece = self._read(offset, wanted)
            if not piece:
                raise ModelFileError(f"{self.path} became shorter while it was read.", hint=FETCH_AGAIN)
            self._data += piece[:wanted]

    def _refuse_beyond(self, end: int) -> None:
        if end > self.size:
            raise ModelFileError(
                f"{self.path} has {self.size:,} bytes and ends inside its header, which goes on to at least byte "
                f"{shown(end)}.",
                hint=FETCH_AGAIN,
            )
        if end > MAX_HEADER_BYTES:
            raise ModelFileError(
                f"{self.path}: its header goes on to byte {shown(end)}; at most {MAX_HEADER_BYTES:,} are accepted.",
                hint="The file is damaged or hostile: fetch it again from a source that you trust.",
            )

    def peek(self, n_bytes: int) -> bytes:
        """The next bytes, which stay the next."""
        self.require(n_bytes)
        with memoryview(self._data) as data:
            return bytes(data[self._at : self._at + n_bytes])

    def raw(self, n_bytes: int) -> bytes:
        """The next bytes."""
        value = self.peek(n_bytes)
        self._at += n_bytes
        return value

    def u32(self) -> int:
        """A number of 32 bits."""
        return int(_U32.unpack(self.raw(_U32.size))[0])

    def u64(self) -> int:
        """A number of 64 bits."""
        return int(_U64.unpack(self.raw(LENGTH_BYTES))[0])

    def text(self, what: str) -> str:
        """A length and a text, which errors call `what`."""
        n_bytes = self.u64()
        self._refuse_beyond(self.position + n_bytes)
        self._n_text_bytes += n_bytes
        if self._n_text_bytes > MAX_TEXT_BYTES:
            raise self.damaged(f"its texts take more than {MAX_TEXT_BYTES:,} bytes with {what}")
        raw = self.raw(n_bytes)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.damaged(f"{what} is not UTF-8: {raw[:40]!r}") from error

    def count(self, what: str, least_bytes: int, limit: int) -> int:
        """A number of items of at least `least_bytes` each, checked against what is left of the file."""
        count = self.u64()
        left = self.size - self.position
        if count * least_bytes > left:
            raise self.damaged(f"it promises {shown(count)} {what} in the {left:,} bytes that are left")
        if count > limit:
            raise self.damaged(f"it promises {shown(count)} {what}; at most {limit:,} are accepted")
        return count

    def numbers(self, count: int, code: str) -> array[Any]:
        """`count` numbers of the type that `array` calls `code`, as they are in the file (little-endian)."""
        n_bytes = count * array(code).itemsize
        self._refuse_beyond(self.position + n_bytes)
        items = array(code, [0]) * count  # growing it would take twice the memory
        if not count:
            return items
        with memoryview(items) as view, view.cast("B") as into:
            for start in range(0, n_bytes, _LEAST_READ_BYTES):
                piece = self.raw(min(_LEAST_READ_BYTES, n_bytes - start))
                into[start : start + len(piece)] = piece
        return items

    def strings(self, count: int) -> StringArray:
        """`count` texts, each after its length."""
        parts: list[tuple[bytes, array[int]]] = []
        length_at, left = _U64.unpack_from, count
        while left:
            self.require(LENGTH_BYTES)
            data, n_data, begin = self._data, len(self._data), self._at
            ends = array("I")
            append = ends.append
            following = at = begin
            for _ in range(left):  # the only loop over every token: nothing in it calls Python code
                if at + LENGTH_BYTES > n_data:
                    break
                following = at + LENGTH_BYTES + length_at(data, at)[0]
                if following > n_data:
                    break
                at = following
                append(at - begin)
            parts.append((self.raw(at - begin), ends))
            left -= len(ends)
            if not ends:  # one text that is longer than what is in memory
                self._refuse_beyond(self._start + following)
                if following - begin > MAX_TEXT_BYTES:
                    raise self.damaged(f"a text in a list has more than {MAX_TEXT_BYTES:,} bytes")
                self.require(following - begin)
        return StringArray(parts)

    def damaged(self, reason: str) -> ModelFileError:
        """The error to raise for what a well-formed file cannot have."""
        return ModelFileError(f"{self.path} is damaged: {reason}.", hint=FETCH_AGAIN)


def shown(number: int) -> str:
    """A number from a file, which may be huge, for a message."""
    return f"{number:,}" if number < 10**15 else f"{number:.1e}"
