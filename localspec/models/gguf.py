"""The header of a GGUF file: metadata and tensor table, without the weights.

Layout (versions 2 and 3, little-endian): the magic "GGUF", u32 version, u64 number of tensors, u64 number of metadata
entries; the entries (key, u32 type, value); the tensor table (name, u32 number of dimensions, u64 each, u32 type, u64
offset); padding to `general.alignment`; the data. A string is a u64 length and UTF-8 bytes; an array a u32 type of its
items, a u64 count and the items. The rules are those that llama.cpp enforces when it opens a file.

A header is untrusted: every length is checked against the file before anything is read or made, and what was read is
let go as soon as it is parsed. So a damaged one costs neither time nor memory, and the largest one accepted less than
200 MB.
"""

from __future__ import annotations

import math
import struct
import sys
from array import array
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any, Final

from localspec.errors import ModelFileError, UnsupportedModelError
from localspec.models.header import GgufHeader, MetadataValue, StringArray, TensorInfo
from localspec.models.header_cursor import FETCH_AGAIN, MAX_HEADER_BYTES, HeaderCursor, ReadAt, shown
from localspec.models.tensor_types import REMOVED_TENSOR_TYPES, TENSOR_TYPES

__all__ = ["GgufHeader", "MetadataValue", "ReadAt", "StringArray", "TensorInfo", "parse_header", "read_header"]

MAX_ENTRIES: Final = 65_536  # metadata entries, and tensors
MAX_DIMENSIONS: Final = 4

_MAGIC: Final = b"GGUF"
_DEFAULT_ALIGNMENT: Final = 32
_STRING: Final = 8
_ARRAY: Final = 9
# Metadata types of fixed size, by number: the code of both `struct` and `array`, which agree for these.
_NUMBERS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


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

            return parse_header(path, size, read)
    except FileNotFoundError as error:
        raise ModelFileError(f"{path} does not exist.", hint="Check the path.") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelFileError(f"{path} cannot be read: {reason}.", hint="Check the path and its permissions.") from error


def parse_header(path: PurePath, size: int, read: ReadAt) -> GgufHeader:
    """Read the header of a file of `size` bytes from anywhere, piece by piece, and no further than it goes.

    `path` names the file in messages and in the header. Errors are those of `read_header`, and what `read` raises.
    """
    return _parse(path, HeaderCursor(path, size, read))


def _parse(path: PurePath, cursor: HeaderCursor) -> GgufHeader:
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
            f"{path} is cut: it has {cursor.size:,} bytes, its header promises {shown(promised)}.", hint=FETCH_AGAIN
        )
    header = GgufHeader(path, version, metadata, tensors, data_offset, cursor.size)
    if not header.architecture.isprintable():  # it is part of many messages
        raise cursor.damaged(f"its architecture is {header.architecture[:80]!r}")
    return header


def _version(path: PurePath, cursor: HeaderCursor) -> int:
    if cursor.size == 0:
        raise ModelFileError(f"{path} is empty.", hint=FETCH_AGAIN)
    start = cursor.peek(min(cursor.size, 512))
    if not start.startswith(_MAGIC):
        raise ModelFileError(
            f"{path} is not a GGUF file{_looks_like(start)}.",
            hint="Choose a file that ends in .gguf.",
        )
    cursor.raw(len(_MAGIC))
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


def _value(cursor: HeaderCursor, key: str) -> MetadataValue:
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


def _array(cursor: HeaderCursor, key: str) -> StringArray | array[Any]:
    kind = cursor.u32()
    if kind == _STRING:
        return cursor.strings(cursor.count(f"texts in {key[:80]!r}", 8, MAX_HEADER_BYTES))
    if kind == _ARRAY:
        raise cursor.damaged(f"the metadata {key[:80]!r} is a list of lists, which llama.cpp does not read")
    if kind not in _NUMBERS:
        raise cursor.damaged(f"the items of the metadata {key[:80]!r} have the unknown type {kind}")
    code = _NUMBERS[kind].replace("?", "B")
    items = cursor.numbers(cursor.count(f"numbers in {key[:80]!r}", array(code).itemsize, MAX_HEADER_BYTES), code)
    if sys.byteorder == "big":
        items.byteswap()
    return items


def _tensors(cursor: HeaderCursor, n_tensors: int, alignment: int) -> Iterator[TensorInfo]:
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
                f"the tensor {name[:80]!r} is at {shown(tensor.offset)} where {shown(expected)} is its place"
            )
        expected = _padded(tensor.offset + tensor.n_bytes, alignment)
        yield tensor


def _sized(cursor: HeaderCursor, name: str, shape: tuple[int, ...], kind: int, offset: int) -> TensorInfo:
    if kind not in TENSOR_TYPES:
        removed = kind in REMOVED_TENSOR_TYPES
        raise UnsupportedModelError(
            f"{cursor.path}: the tensor {name[:80]!r} has the type {kind}, which "
            f"{'llama.cpp no longer reads' if removed else 'is not known here'}.",
            hint="Use another quantization of this model."
            if removed
            else "Update localspec, or use another quantization.",
        )
    type_name, block_length, block_bytes = TENSOR_TYPES[kind]
    row = shape[0] if shape else 1
    if row % block_length or math.prod(shape) >= 2**63:
        raise cursor.damaged(f"the tensor {name[:80]!r} has the shape {shape}, which the type {type_name} cannot have")
    return TensorInfo(name, shape, type_name, offset, math.prod(shape) // block_length * block_bytes)


def _padded(n_bytes: int, alignment: int) -> int:
    return -(-n_bytes // alignment) * alignment
