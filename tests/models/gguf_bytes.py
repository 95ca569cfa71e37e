"""GGUF files byte by byte, right or wrong, for the tests of the reader."""

import struct
from pathlib import Path

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def entry(key: str | bytes, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def strings(key: str, values: list[str | bytes]) -> bytes:
    return entry(key, ARRAY, struct.pack("<IQ", STRING, len(values)) + b"".join(map(text, values)))


def flag(key: str, value: bool) -> bytes:
    return entry(key, BOOL, bytes([value]))


def number(key: str, value: int) -> bytes:
    return entry(key, U32, value.to_bytes(4, "little"))


def name(key: str, value: str) -> bytes:
    return entry(key, STRING, text(value))


def tensor(name: str, shape: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def gguf(
    entries: list[bytes],
    tensors: list[bytes] | None = None,
    data: bytes = b"",
    *,
    version: int = 3,
    n_entries: int | None = None,
    n_tensors: int | None = None,
) -> bytes:
    table = tensors or []
    n_tensors = len(table) if n_tensors is None else n_tensors
    n_entries = len(entries) if n_entries is None else n_entries
    head = b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_entries) + b"".join(entries) + b"".join(table)
    return head + b"\0" * (-len(head) % 32) + data if table else head + data


def small() -> bytes:
    """A valid file with every kind of value, two tensors and their data."""
    return gguf(
        [
            entry("general.architecture", STRING, text("llama")),
            entry("general.name", STRING, text("Ünï")),
            entry("a.u8", U8, b"\xff"),
            entry("a.i8", I8, b"\xff"),
            entry("a.u16", U16, b"\xff\xff"),
            entry("a.i16", I16, b"\xff\xff"),
            entry("a.u32", U32, b"\xff" * 4),
            entry("a.i32", I32, b"\xff" * 4),
            entry("a.u64", U64, b"\xff" * 8),
            entry("a.i64", I64, b"\xff" * 8),
            entry("a.f32", F32, struct.pack("<f", 0.5)),
            entry("a.f64", F64, struct.pack("<d", -0.25)),
            entry("a.bool", BOOL, b"\x01"),
            entry("a.bools", ARRAY, struct.pack("<IQ", BOOL, 3) + b"\x01\x00\x01"),
            entry("a.i32s", ARRAY, struct.pack("<IQ3i", I32, 3, -1, 0, 7)),
            strings("tokenizer.ggml.tokens", ["", "a", "é", b"\xff\xfe", "🦙"]),
        ],
        [tensor("x.weight", (32, 2), kind=8), tensor("y", (3,), kind=0, offset=96)],
        b"\1" * 68 + b"\0" * 28 + b"\2" * 12,
    )


def write(path: Path, raw: bytes) -> Path:
    path.write_bytes(raw)
    return path
