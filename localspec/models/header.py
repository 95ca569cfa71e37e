"""What a GGUF file says about its model: metadata, tensor table, sizes."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, overload

from localspec.errors import ModelFileError

__all__ = ["LENGTH_BYTES", "GgufHeader", "MetadataValue", "StringArray", "TensorInfo"]

LENGTH_BYTES: Final = 8  # of the length before each string


class StringArray(Sequence[str]):
    """The strings of one metadata array (tokens, merges), kept as bytes and decoded when asked for.

    Bytes that are not UTF-8 read as U+FFFD: a vocabulary may hold any bytes. Comparisons look at the bytes.
    """

    __slots__ = ("_ends", "_raw")

    def __init__(self, raw: bytes, ends: array[int]) -> None:
        self._raw = raw  # as in the file: a u64 length before each string
        self._ends = ends

    def __len__(self) -> int:
        return len(self._ends)

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
        """The bytes of string `index`, which is not negative."""
        return self._raw[self._start(index) + LENGTH_BYTES : self._ends[index]]

    def first_difference(self, other: StringArray, start: int = 0) -> int | None:
        """The first index from `start` on, within both arrays, at which they differ."""
        end = min(len(self), len(other))
        # With their lengths among the bytes, equal bytes are equal strings: one comparison for the usual case.
        if start >= end or self._span(start, end) == other._span(start, end):
            return None
        return next(index for index in range(start, end) if self.bytes_at(index) != other.bytes_at(index))

    def _start(self, index: int) -> int:
        return self._ends[index - 1] if index else 0

    def _span(self, start: int, end: int) -> bytes:
        return self._raw[self._start(start) : self._ends[end - 1]]


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
    """What a GGUF file says about itself. Offsets and sizes in bytes."""

    path: Path
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
