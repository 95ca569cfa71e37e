"""A header without its texts, small enough to be kept for every model: what memory plans need of it, and no more.

Kept are the numbers under the architecture's name, the size of the vocabulary and the tensor table without offsets: a
few kB where a whole header has several MB.
"""

from __future__ import annotations

import base64
import json
import zlib
from array import array
from pathlib import PurePath
from typing import Any, Final

from localspec.models.header import GgufHeader, MetadataValue, StringArray, TensorInfo

__all__ = ["pack", "unpack"]

_ARCHITECTURE: Final = "general.architecture"
_MAX_ITEMS: Final = 4_096  # of a list of numbers; there is one for each layer at most
_MAX_CHARACTERS: Final = 200  # of a text
_MAX_PACKED: Final = 256 * 1024
_MAX_JSON_BYTES: Final = 16 << 20


def pack(header: GgufHeader) -> str:
    """The bare header as ASCII text; "" where it has no tensors, or is not like that of any model in use."""
    prefix = f"{header.architecture}."
    metadata: dict[str, Any] = {}
    for key, value in header.metadata.items():
        if not key.startswith(prefix) or isinstance(value, StringArray):
            continue
        if isinstance(value, array):
            if len(value) > _MAX_ITEMS:
                return ""
            metadata[key] = [value.typecode, value.tolist()]
        elif not isinstance(value, str) or len(value) <= _MAX_CHARACTERS:
            metadata[key] = value
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, StringArray) and tokens:
        metadata[f"{prefix}vocab_size"] = len(tokens)
    tensors = [[each.name, each.shape, each.type_name, each.n_bytes] for each in header.tensors]
    if not tensors:
        return ""
    told = json.dumps([header.architecture, metadata, tensors], separators=(",", ":")).encode()
    packed = base64.b85encode(zlib.compress(told, 9)).decode("ascii") if len(told) <= _MAX_JSON_BYTES else ""
    return packed if len(packed) <= _MAX_PACKED else ""


def unpack(text: str, path: PurePath) -> GgufHeader | None:
    """The header that was packed, as that of `path`; offsets are 0, and so is the size of the file. None: damaged."""
    try:
        stream = zlib.decompressobj()
        told = stream.decompress(base64.b85decode(text), _MAX_JSON_BYTES)
        architecture, found, rows = json.loads(told)
        metadata: dict[str, MetadataValue] = {_ARCHITECTURE: str(architecture)}
        for key, value in found.items():
            metadata[key] = array(value[0], value[1]) if isinstance(value, list) else value
        tensors = tuple(
            TensorInfo(str(name), tuple(map(int, shape)), str(kind), 0, int(n_bytes))
            for name, shape, kind, n_bytes in rows
        )
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError, zlib.error):
        return None
    return GgufHeader(path, 3, metadata, tensors, 0, 0)
