"""What a GGUF file says about its model: metadata, tensor table, sizes."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final, TypeAlias, overload

from localspec.errors import ModelFileError

__all__ = ["LENGTH_BYTES", "GgufHeader", "MetadataValue", "StringArray", "TensorInfo"]

LENGTH_BYTES: Final = 8  # of the length before each string
_PIECE: Final = 4096  # strings that are compared or hashed at once


class StringArray(Sequence[str]):
    """The strings of one metadata array (tokens, merges), kept as bytes and decoded when asked for.

    Bytes that are not UTF-8 read as U+FFFD: a vocabulary may hold any bytes. Comparisons look at the bytes.

    `parts` are the strings as they came, some at a time: as in the file, a u64 length before each, and where each ends.
    """

    __slots__ = ("_firsts", "_n_strings", "_parts")

    def __init__(self, parts: Iterable[tuple[bytes, array[int]]]) -> None:
        self._parts = [part for part in parts if part[1]]
        self._firsts: list[int] = []
        self._n_strings = 0
        for _, ends in self._parts:
            self._firsts.append(self._n_strings)
            self._n_strings += len(ends)

    def __len__(self) -> int:
        return self._n_strings

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        return self.bytes_at(range(len(self))[index]).decode("utf-8", "replace")

    def __iter__(self) -> Iterator[str]:
        return (self[index] for index in range(len(self)))

    def bytes_at(self, index: int) -> bytes:
        """The bytes of string `index`, which is there and not negative."""
        number = bisect_right(self._firsts, index) - 1
        return self._cut(number, index, index + 1)[LENGTH_BYTES:]

    def first_difference(self, other: StringArray, start: int = 0) -> int | None:
        """The first index from `start` on, within both arrays, at which they differ."""
        end = min(len(self), len(other))
        # With their lengths among the bytes, equal bytes are equal strings: few comparisons for the usual case.
        for first, (ours, theirs) in zip(
            range(start, end, _PIECE), zip(self.pieces(start, end), other.pieces(start, end), strict=True), strict=True
        ):
            if ours != theirs:
                numbers = range(first, min(first + _PIECE, end))
                return next(number for number in numbers if self.bytes_at(number) != other.bytes_at(number))
        return None

    def pieces(self, start: int, end: int) -> Iterator[bytes]:
        """Strings `start` to `end` as bytes, each after its length, in pieces that never take much memory.

        Of two arrays, the pieces of the same range are equal only where all strings in them are.
        """
        for first in range(start, end, _PIECE):
            yield self._span(first, min(first + _PIECE, end))

    def _span(self, start: int, end: int) -> bytes:
        number = bisect_right(self._firsts, start) - 1
        spans = []
        while start < end:
            until = min(end, self._firsts[number] + len(self._parts[number][1]))
            spans.append(self._cut(number, start, until))
            number, start = number + 1, until
        return spans[0] if len(spans) == 1 else b"".join(spans)

    def _cut(self, number: int, start: int, end: int) -> bytes:
        """Strings `start` to `end` of one part."""
        raw, ends = self._parts[number]
        start, end = start - self._firsts[number], end - self._firsts[number]
        return raw[ends[start - 1] if start else 0 : ends[end - 1]]


MetadataValue: TypeAlias = "bool | int | float | str | StringArray | array[Any]"
"""Arrays of numbers are `array.array`; in those of booleans 0 stands for false."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One row of the tensor table. `shape` has the fastest dimension first; `offset` counts from the data's start."""

    name: str
    shape: tuple[int, ...]
    type_name: str
    offset: int
    n_bytes: int

    @property
    def n_elements(self) -> int:
        """Number of weights."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What a GGUF file says about itself. Offsets and sizes in bytes.

    `path` is that of the file, or owner/repo/file of one on the Hub. Of a model in several parts this is the first
    part's header with all tensors, and `file_size` is that of all parts; offsets are those within each part.
    """

    path: PurePath
    version: int
    metadata: Mapping[str, MetadataValue]
    tensors: tuple[TensorInfo, ...]
    data_offset: int
    file_size: int

    @property
    def architecture(self) -> str:
        """`general.architecture`, or "" where the file names none."""
        return self.text("general.architecture") or ""

    def text(self, key: str) -> str | None:
        """A string of the metadata, None where it is missing. A value of another type is a ModelFileError."""
        value = self.metadata.get(key)
        if value is None or isinstance(value, str):
            return value
        raise self._wrong_type(key, "text")

    def integer(self, key: str) -> int | None:
        """As `text`, for integers."""
        value = self.metadata.get(key)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        raise self._wrong_type(key, "an integer")

    def flag(self, key: str) -> bool | None:
        """As `text`, for booleans."""
        value = self.metadata.get(key)
        if value is None or isinstance(value, bool):
            return value
        raise self._wrong_type(key, "true or false")

    def strings(self, key: str) -> StringArray | None:
        """As `text`, for arrays of strings."""
        value = self.metadata.get(key)
        if value is None or isinstance(value, StringArray):
            return value
        raise self._wrong_type(key, "a list of texts")

    def _wrong_type(self, key: str, expected: str) -> ModelFileError:
        kind = type(self.metadata[key]).__name__
        return ModelFileError(
            f"{self.path}: its metadata {key} is of type {kind}; it must be {expected}.",
            hint="The file was written wrongly: use another file of this model.",
        )
