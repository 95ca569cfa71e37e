"""The header of a GGUF file: metadata and tensor table, without the weights.

Layout (versions 2 and 3, little-endian): the magic "GGUF", u32 version, u64 number of tensors, u64 number of metadata
entries; the entries (key, u32 type, value); the tensor table (name, u32 number of dimensions, u64 each, u32 type, u64
offset); padding to `general.alignment`; the data. A string is a u64 length and UTF-8 bytes; an array a u32 type of its
items, a u64 count and the items. The rules are those that llama.cpp enforces when it opens a file.

A header is untrusted: every length is checked against the file before anything is read or made, so a damaged one costs
neither time nor memory.
"""

from __future__ import annotations

import math
import struct
import sys
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from localspec.errors import ModelFileError, UnsupportedModelError
from localspec.models.header import LENGTH_BYTES, GgufHeader, MetadataValue, StringArray, TensorInfo

__all__ = ["GgufHeader", "MetadataValue", "StringArray", "TensorInfo", "read_header"]

MAX_HEADER_BYTES: Final = 64 * 1024 * 1024  # four times the largest vocabulary in use
MAX_ENTRIES: Final = 65_536  # metadata entries, and tensors
MAX_DIMENSIONS: Final = 4

_READ_BYTES: Final = 1024 * 1024
_DEFAULT_ALIGNMENT: Final = 32
_FETCH_AGAIN: Final = "The download was cut or damaged: fetch it again."

_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")

_STRING: Final = 8
_ARRAY: Final = 9
# Metadata types of fixed size, by number: the code of both `struct` and `array`, which agree for these.
_NUMBERS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

# Tensor types by number: name, elements per block, bytes per block.
_TENSOR_TYPES: Final = {
    0: ("f32", 1, 4),
    1: ("f16", 1, 2),
    2: ("q4_0", 32, 18),
    3: ("q4_1", 32, 20),
    6: ("q5_0", 32, 22),
    7: ("q5_1", 32, 24),
    8: ("q8_0", 32, 34),
    9: ("q8_1", 32, 40),
    10: ("q2_K", 256, 84),
    11: ("q3_K", 256, 110),
    12: ("q4_K", 256, 144),
    13: ("q5_K", 256, 176),
    14: ("q6_K", 256, 210),
    15: ("q8_K", 256, 292),
    16: ("iq2_xxs", 256, 66),
    17: ("iq2_xs", 256, 74),
    18: ("iq3_xxs", 256, 98),
    19: ("iq1_s", 256, 50),
    20: ("iq4_nl", 32, 18),
    21: ("iq3_s", 256, 110),
    22: ("iq2_s", 256, 82),
    23: ("iq4_xs", 256, 136),
    24: ("i8", 1, 1),
    25: ("i16", 1, 2),
    26: ("i32", 1, 4),
    27: ("i64", 1, 8),
    28: ("f64", 1, 8),
    29: ("iq1_m", 256, 56),
    30: ("bf16", 1, 2),
    34: ("tq1_0", 256, 54),
    35: ("tq2_0", 256, 66),
    39: ("mxfp4", 32, 17),
    40: ("nvfp4", 64, 36),
    41: ("q1_0", 128, 18),
    42: ("q2_0", 64, 18),
}
_REMOVED_TENSOR_TYPES: Final = frozenset([4, 5, 31, 32, 33, 36, 37, 38])


def read_header(path: Path) -> GgufHeader:
    """Read the header of a local file and check that the file is as long as it promises.

    A file with a vocabulary and no tensors is fine.

    Raises:
        ModelFileError: missing, not a regular file, empty, not GGUF, damaged or cut.
        UnsupportedModelError: GGUF of a version, byte order or tensor type that cannot be read.
    """
    try:
        if path.is_dir():
            raise ModelFileError(f"{path} is a folder.", hint="Name the .gguf file inside it.")
        if path.exists() and not path.is_file():
            raise ModelFileError(f"{path} is not a regular file.", hint="Name a .gguf file.")
        with path.open("rb") as file:
            size = file.seek(0, 2)

            def read(offset: int, n_bytes: int) -> bytes:
                file.seek(offset)
                return file.read(n_bytes)

            return _parse(path, _Cursor(path, size, read))
    except FileNotFoundError as error:
        raise ModelFileError(f"{path} does not exist.", hint="Check the path.") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelFileError(f"{path} cannot be read: {reason}.", hint="Check the path and its permissions.") from error


class _Cursor:
    """Reads forward through a header, never past the end of the file or the largest header accepted.

    `read(offset, n_bytes)` returns at most `n_bytes`. What was read is kept: a header is read once, in large pieces.
    """

    def __init__(self, path: Path, size: int, read: Callable[[int, int], bytes]) -> None:
        self.path = path
        self.size = size
        self.position = 0
        self._read = read
        self._data = bytearray()

    def require(self, n_bytes: int) -> None:
        """Have the next `n_bytes` in memory."""
        end = self.position + n_bytes
        if end <= len(self._data):
            return
        if end > self.size:
            raise ModelFileError(
                f"{self.path} has {self.size:,} bytes and ends inside its header, which goes on to at least byte "
                f"{_shown(end)}.",
                hint=_FETCH_AGAIN,
            )
        if end > MAX_HEADER_BYTES:
            raise ModelFileError(
                f"{self.path}: its header goes on to byte {_shown(end)}; at most {MAX_HEADER_BYTES:,} are accepted.",
                hint="The file is damaged or hostile: fetch it again from a source that you trust.",
            )
        while len(self._data) < end:
            piece = self._read(len(self._data), max(_READ_BYTES, end - len(self._data)))
            if not piece:
                raise ModelFileError(f"{self.path} became shorter while it was read.", hint=_FETCH_AGAIN)
            self._data += piece

    def raw(self, n_bytes: int) -> bytes:
        self.require(n_bytes)
        self.position += n_bytes
        return bytes(self._data[self.position - n_bytes : self.position])

    def u32(self) -> int:
        return int(_U32.unpack(self.raw(_U32.size))[0])

    def u64(self) -> int:
        return int(_U64.unpack(self.raw(LENGTH_BYTES))[0])

    def text(self, what: str) -> str:
        raw = self.raw(self.u64())
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.damaged(f"{what} is not UTF-8: {raw[:40]!r}") from error

    def count(self, what: str, least_bytes: int, limit: int) -> int:
        """A number of items of at least `least_bytes` each, checked against what is left of the file."""
        count = self.u64()
        left = self.size - self.position
        if count * least_bytes > left:
            raise self.damaged(f"it promises {_shown(count)} {what} in the {left:,} bytes that are left")
        if count > limit:
            raise self.damaged(f"it promises {_shown(count)} {what}; at most {limit:,} are accepted")
        return count

    def strings(self, count: int) -> StringArray:
        start = self.position
        ends = array("Q")
        for _ in range(count):
            self.require(LENGTH_BYTES)
            (length,) = _U64.unpack_from(self._data, self.position)
            self.position += LENGTH_BYTES
            self.require(length)
            self.position += length
            ends.append(self.position - start)
        return StringArray(bytes(self._data[start : self.position]), ends)

    def damaged(self, reason: str) -> ModelFileError:
        return ModelFileError(f"{self.path} is damaged: {reason}.", hint=_FETCH_AGAIN)


def _shown(number: int) -> str:
    return f"{number:,}" if number < 10**15 else f"{number:.1e}"


def _parse(path: Path, cursor: _Cursor) -> GgufHeader:
    version = _version(path, cursor)
    n_tensors = cursor.count("tensors", 8 + 4 + 4 + 8, MAX_ENTRIES)
    n_entries = cursor.count("metadata entries", 8 + 1 + 4 + 1, MAX_ENTRIES)
    metadata: dict[str, MetadataValue] = {}
    for _ in range(n_entries):
        key = cursor.text("a metadata key")
        if not key or key in metadata:
            raise cursor.damaged(f"the metadata key {key[:80]!r} is {'there twice' if key else 'empty'}")
        metadata[key] = _value(cursor, key)
    alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise cursor.damaged(f"its alignment is {alignment!r}, not a power of two")
    tensors = tuple(_tensors(cursor, n_tensors, alignment))
    data_offset = _padded(cursor.position, alignment) if tensors else cursor.position
    promised = data_offset + tensors[-1].offset + tensors[-1].n_bytes if tensors else data_offset
    if promised > cursor.size:
        raise ModelFileError(
            f"{path} is cut: it has {cursor.size:,} bytes, its header promises {_shown(promised)}.", hint=_FETCH_AGAIN
        )
    header = GgufHeader(path, version, metadata, tensors, data_offset, cursor.size)
    if not header.architecture.isprintable():  # it is part of many messages
        raise cursor.damaged(f"its architecture is {header.architecture[:80]!r}")
    return header


def _version(path: Path, cursor: _Cursor) -> int:
    if cursor.size == 0:
        raise ModelFileError(f"{path} is empty.", hint=_FETCH_AGAIN)
    start = cursor.raw(min(cursor.size, 512))
    if start[:4] != b"GGUF":
        raise ModelFileError(
            f"{path} is not a GGUF file{_looks_like(start)}.",
            hint="Choose a file that ends in .gguf.",
        )
    cursor.position = 4
    version = cursor.u32()
    if version & 0xFFFF == 0 and version:
        raise UnsupportedModelError(
            f"{path} is a GGUF file in big-endian byte order.", hint="Use the little-endian file of this model."
        )
    if version not in (2, 3):
        raise UnsupportedModelError(
            f"{path} is a GGUF file of version {version}; versions 2 and 3 can be read.",
            hint="Use a newer file of this model." if version < 2 else "Update localspec, or use another file.",
        )
    return version


def _looks_like(start: bytes) -> str:
    text = start.lstrip().lower()
    if start[8:10] == b'{"' and int.from_bytes(start[:8], "little") < 2**32:
        kind = "a safetensors file"
    elif start.startswith(b"PK\x03\x04"):
        kind = "a zip archive, such as a PyTorch checkpoint"
    elif start.startswith(b"\x1f\x8b"):
        kind = "a gzip archive: unpack it"
    elif text.startswith((b"<!doctype", b"<html", b"<?xml")):
        kind = "a web page: the address was not that of the file itself"
    elif start.startswith(b"version https://git-lfs"):
        kind = "a Git LFS pointer: the file itself was not fetched"
    elif start[:4] in (b"lmgg", b"fmgg", b"tjgg"):
        kind = "a model in the GGML format of before 2023"
    elif text.startswith((b"{", b"[")):
        kind = "JSON"
    elif not start.strip(b"\0"):
        kind = "zeros: a download that has only reserved its space"
    else:
        return f"; it starts with {start[:4]!r}"
    return f" but looks like {kind}"


def _value(cursor: _Cursor, key: str) -> MetadataValue:
    kind = cursor.u32()
    if key == "general.alignment" and kind != 4:
        raise cursor.damaged("its alignment is not a 32-bit number")
    if kind == _STRING:
        return cursor.text(f"the metadata {key[:80]!r}")
    if kind == _ARRAY:
        return _array(cursor, key)
    if kind not in _NUMBERS:
        raise cursor.damaged(f"the metadata {key[:80]!r} has the unknown type {kind}")
    number = struct.Struct(f"<{_NUMBERS[kind]}")
    value: bool | int | float = number.unpack(cursor.raw(number.size))[0]
    return value


def _array(cursor: _Cursor, key: str) -> StringArray | array[Any]:
    kind = cursor.u32()
    if kind == _STRING:
        return cursor.strings(cursor.count(f"texts in {key[:80]!r}", 8, MAX_HEADER_BYTES))
    if kind == _ARRAY:
        raise cursor.damaged(f"the metadata {key[:80]!r} is a list of lists, which llama.cpp does not read")
    if kind not in _NUMBERS:
        raise cursor.damaged(f"the items of the metadata {key[:80]!r} have the unknown type {kind}")
    items = array(_NUMBERS[kind].replace("?", "B"))
    count = cursor.count(f"numbers in {key[:80]!r}", items.itemsize, MAX_HEADER_BYTES)
    items.frombytes(cursor.raw(count * items.itemsize))
    if sys.byteorder == "big":
        items.byteswap()
    return items


def _tensors(cursor: _Cursor, n_tensors: int, alignment: int) -> Iterator[TensorInfo]:
    names: set[str] = set()
    expected = 0
    for _ in range(n_tensors):
        name = cursor.text("a tensor's name")
        if name in names:
            raise cursor.damaged(f"the tensor {name[:80]!r} is there twice")
        names.add(name)
        n_dimensions = cursor.u32()
        if n_dimensions > MAX_DIMENSIONS:
            raise cursor.damaged(f"the tensor {name[:80]!r} has {n_dimensions:,} dimensions")
        shape = tuple(cursor.u64() for _ in range(n_dimensions))
        tensor = _sized(cursor, name, shape, cursor.u32(), cursor.u64())
        if tensor.offset != expected:
            raise cursor.damaged(
                f"the tensor {name[:80]!r} is at {_shown(tensor.offset)} where {_shown(expected)} is its place"
            )
        expected = _padded(tensor.offset + tensor.n_bytes, alignment)
        yield tensor


def _sized(cursor: _Cursor, name: str, shape: tuple[int, ...], kind: int, offset: int) -> TensorInfo:
    if kind not in _TENSOR_TYPES:
        removed = kind in _REMOVED_TENSOR_TYPES
        raise UnsupportedModelError(
            f"{cursor.path}: the tensor {name[:80]!r} has the type {kind}, which "
            f"{'llama.cpp no longer reads' if removed else 'is not known here'}.",
            hint="Use another quantization of this model."
            if removed
            else "Update localspec, or use another quantization.",
        )
    type_name, block_length, block_bytes = _TENSOR_TYPES[kind]
    row = shape[0] if shape else 1
    if row % block_length or math.prod(shape) >= 2**63:
        raise cursor.damaged(f"the tensor {name[:80]!r} has the shape {shape}, which the type {type_name} cannot have")
    return TensorInfo(name, shape, type_name, offset, math.prod(shape) // block_length * block_bytes)


def _padded(n_bytes: int, alignment: int) -> int:
    return -(-n_bytes // alignment) * alignment
