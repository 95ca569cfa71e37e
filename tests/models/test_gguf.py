import os
import pickle
import struct
import time
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader, GGUFValueType
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localspec.errors import ModelFileError, UnsupportedModelError
from localspec.models.gguf import read_header
from localspec.models.header import GgufHeader, StringArray
from localspec.models.header_cursor import MAX_HEADER_BYTES
from localspec.models.tensor_types import TENSOR_TYPES
from tests.models.gguf_bytes import ARRAY, BOOL, STRING, U32, U64, entry, gguf, small, strings, tensor, text, write
from tests.models.vocabularies import VOCABULARIES
from tests.tiny_models import write_tiny_model


def header_of(tmp_path: Path, raw: bytes) -> GgufHeader:
    return read_header(write(tmp_path / "model.gguf", raw))


def refusal(tmp_path: Path, raw: bytes) -> ModelFileError | UnsupportedModelError:
    path = write(tmp_path / "model.gguf", raw)
    with pytest.raises((ModelFileError, UnsupportedModelError)) as caught:
        read_header(path)
    assert str(path) in caught.value.message
    assert caught.value.hint
    assert len(caught.value.message) < 500
    return pickle.loads(pickle.dumps(caught.value))


# --- what is read -----------------------------------------------------------------------------------------------------


def test_every_kind_of_value(tmp_path: Path) -> None:
    header = header_of(tmp_path, small())
    values = {key: value for key, value in header.metadata.items() if key.startswith("a.")}
    assert list(values.pop("a.bools")) == [1, 0, 1]
    assert list(values.pop("a.i32s")) == [-1, 0, 7]
    assert values == {
        "a.u8": 255,
        "a.i8": -1,
        "a.u16": 65535,
        "a.i16": -1,
        "a.u32": 2**32 - 1,
        "a.i32": -1,
        "a.u64": 2**64 - 1,
        "a.i64": -1,
        "a.f32": 0.5,
        "a.f64": -0.25,
        "a.bool": True,
    }
    assert header.architecture == "llama"
    assert header.text("general.name") == "Ünï"
    assert header.version == 3
    assert header.file_size == len(small())
    assert list(header.strings("tokenizer.ggml.tokens") or ()) == ["", "a", "é", "\ufffd\ufffd", "🦙"]


def test_tensors_have_shape_type_place_and_size(tmp_path: Path) -> None:
    header = header_of(tmp_path, small())
    x, y = header.tensors
    assert (x.name, x.shape, x.type_name, x.offset, x.n_bytes, x.n_elements) == ("x.weight", (32, 2), "q8_0", 0, 68, 64)
    assert (y.name, y.shape, y.type_name, y.offset, y.n_bytes, y.n_elements) == ("y", (3,), "f32", 96, 12, 3)
    raw = small()
    assert raw[header.data_offset : header.data_offset + x.n_bytes] == b"\1" * 68
    assert raw[header.data_offset + y.offset :] == b"\2" * 12


def test_version_two_is_read_and_a_file_without_tensors_is_fine(tmp_path: Path) -> None:
    header = header_of(tmp_path, gguf([entry("general.architecture", STRING, text("x"))], version=2))
    assert (header.version, header.tensors, header.architecture) == (2, (), "x")
    assert header_of(tmp_path, gguf([])).architecture == ""


def test_a_string_array_is_a_sequence_of_text() -> None:
    array = read_header(VOCABULARIES["llama-spm"]).strings("tokenizer.ggml.tokens")
    assert array is not None
    assert isinstance(array, StringArray)
    assert (array[1], array[-1], array[0:3]) == ("<s>", array[len(array) - 1], ["<unk>", "<s>", "</s>"])
    assert array.index("</s>") == 2
    with pytest.raises(IndexError):
        array[len(array)]


@given(st.lists(st.text(max_size=3), max_size=12), st.lists(st.text(max_size=3), max_size=12), st.integers(0, 6))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_first_difference_equals_comparing_one_by_one(
    tmp_path: Path, ours: list[str], theirs: list[str], start: int
) -> None:
    theirs = ours[: len(theirs) // 2] + theirs
    header = header_of(tmp_path, gguf([strings("a", ours), strings("b", theirs)]))
    a, b = header.strings("a"), header.strings("b")
    assert a is not None
    assert b is not None
    differing = [n for n in range(start, min(len(ours), len(theirs))) if ours[n] != theirs[n]]
    assert a.first_difference(b, start) == b.first_difference(a, start) == (differing[0] if differing else None)


def assert_agrees_with_the_gguf_package(path: Path) -> None:
    header, other = read_header(path), GGUFReader(path)
    assert set(header.metadata) == {key for key in other.fields if not key.startswith("GGUF.")}
    for key, value in header.metadata.items():
        field = other.fields[key]
        if field.types[0] != GGUFValueType.ARRAY:
            assert value == field.contents(), key
        elif field.types[1] == GGUFValueType.STRING:
            assert isinstance(value, StringArray)
            assert [value.bytes_at(n) for n in range(len(value))] == [bytes(field.parts[n]) for n in field.data], key
        else:
            assert np.array_equal(np.array(value), np.concatenate([field.parts[n] for n in field.data])), key
    assert [
        (t.name, t.shape, t.type_name.upper(), header.data_offset + t.offset, t.n_bytes, t.n_elements)
        for t in header.tensors
    ] == [
        (t.name, tuple(map(int, t.shape)), t.tensor_type.name.upper(), t.data_offset, t.n_bytes, t.n_elements)
        for t in other.tensors
    ]


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_real_vocabularies_agree_with_the_gguf_package(vocabulary: str) -> None:
    assert_agrees_with_the_gguf_package(VOCABULARIES[vocabulary])


def test_a_written_model_agrees_with_the_gguf_package(tmp_path: Path) -> None:
    assert_agrees_with_the_gguf_package(write_tiny_model(tmp_path / "tiny.gguf"))


def test_tensor_types_have_the_sizes_of_the_gguf_package() -> None:
    known = {kind: (name.lower(), block, size) for kind, (name, block, size) in TENSOR_TYPES.items()}
    for kind, (block, size) in GGML_QUANT_SIZES.items():
        assert known[int(kind)] == (GGMLQuantizationType(kind).name.lower(), block, size)


def test_a_large_vocabulary_takes_little_time(tmp_path: Path) -> None:
    tokens: list[str | bytes] = [f"token {number}" for number in range(250_000)]
    path = write(tmp_path / "large.gguf", gguf([strings("tokens", tokens), strings("merges", tokens)]))
    started = time.process_time()
    header = read_header(path)
    assert time.process_time() - started < 1.5
    assert (header.strings("tokens") or ())[249_999] == "token 249999"


def test_getters_name_key_and_type(tmp_path: Path) -> None:
    header = header_of(tmp_path, small())
    assert (
        header.text("missing")
        is header.integer("missing")
        is header.flag("missing")
        is header.strings("missing")
        is None
    )
    assert (header.integer("a.u8"), header.flag("a.bool")) == (255, True)
    for getter, key in (
        (header.text, "a.u8"),
        (header.integer, "a.bool"),
        (header.integer, "a.f32"),
        (header.flag, "a.u8"),
        (header.strings, "a.i32s"),
        (header.strings, "general.name"),
    ):
        with pytest.raises(ModelFileError, match=key):
            getter(key)


# --- what is refused --------------------------------------------------------------------------------------------------


def test_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "folder.gguf").mkdir()
    for name, message in (
        ("missing.gguf", "does not exist"),
        ("folder.gguf", "is a folder"),
        ("a\0b", "cannot be read"),
    ):
        with pytest.raises(ModelFileError, match=message) as caught:
            read_header(tmp_path / name)
        assert caught.value.hint


@pytest.mark.skipif(os.name == "nt", reason="named pipes and permissions of POSIX")
def test_a_pipe_does_not_block_and_an_unreadable_file_says_so(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(ModelFileError, match="not a regular file"):
        read_header(tmp_path / "pipe.gguf")
    path = write(tmp_path / "secret.gguf", small())
    path.chmod(0)
    if not os.access(path, os.R_OK):
        with pytest.raises(ModelFileError, match="cannot be read: Permission denied"):
            read_header(path)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "is empty"),
        (b"GG", "is not a GGUF file"),
        (b"GGUF", "ends inside its header"),
        (b"GGUF\x03\0\0\0", "ends inside its header"),
        (struct.pack("<Q", 40) + b'{"__metadata__":{}}', "safetensors"),
        (b"PK\x03\x04archive", "zip"),
        (b"\x1f\x8b\x08", "gzip"),
        (b"\n<!DOCTYPE html><html>", "web page"),
        (b"<html><body>404", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1", "Git LFS pointer"),
        (b"tjgg\x03\0\0\0", "before 2023"),
        (b'{"model_type": "llama"}', "JSON"),
        (b"\0" * 4096, "zeros"),
        (b"MZ\x90\0", r"starts with b'MZ\x90\x00'"),
    ],
)
def test_what_is_no_gguf_says_what_it_looks_like(tmp_path: Path, raw: bytes, message: str) -> None:
    error = refusal(tmp_path, raw)
    assert isinstance(error, ModelFileError)
    assert message in error.message


@pytest.mark.parametrize(
    ("version", "message"), [(0, "version 0"), (1, "version 1"), (4, "version 4"), (3 << 24, "big-endian")]
)
def test_versions_that_cannot_be_read(tmp_path: Path, version: int, message: str) -> None:
    error = refusal(tmp_path, gguf([], version=version))
    assert isinstance(error, UnsupportedModelError)
    assert message in error.message


def test_a_cut_download_names_both_sizes(tmp_path: Path) -> None:
    raw = small()
    error = refusal(tmp_path, raw[:-1])
    assert f"it has {len(raw) - 1:,} bytes, its header promises {len(raw):,}" in error.message
    assert "fetch it again" in error.hint


def test_every_cut_is_noticed(tmp_path: Path) -> None:
    raw = small()
    for n_bytes in range(len(raw)):
        refusal(tmp_path, raw[:n_bytes])


HUGE = struct.pack("<Q", 2**63)
DAMAGED = {
    "a key longer than the file": (gguf([HUGE + b"key and value"]), "ends inside its header"),
    "a text longer than the file": (gguf([entry("k", STRING, HUGE + b"x")]), "ends inside its header"),
    "more entries than bytes": (gguf([], n_entries=2**40), "metadata entries"),
    "more tensors than bytes": (gguf([], n_tensors=2**64 - 1), "tensors"),
    "more numbers than bytes": (gguf([entry("k", ARRAY, struct.pack("<IQ", U64, 2**61))]), "numbers in 'k'"),
    "more texts than bytes": (gguf([entry("k", ARRAY, struct.pack("<IQ", STRING, 2**40))]), "texts in 'k'"),
    "a list of lists": (gguf([entry("k", ARRAY, struct.pack("<IQ", ARRAY, 1) + b"\0" * 99)]), "list of lists"),
    "an unknown type": (gguf([entry("k", 13, b"\0" * 16)]), "unknown type 13"),
    "an unknown item type": (gguf([entry("k", ARRAY, struct.pack("<IQ", 99, 1) + b"\0" * 9)]), "unknown type 99"),
    "a key twice": (gguf([entry("k", BOOL, b"\0")] * 2), "'k' is there twice"),
    "an empty key": (gguf([entry("", BOOL, b"\0\0")]), "is empty"),
    "a key that is not UTF-8": (gguf([entry(b"\xff\xfe", BOOL, b"\0")]), "not UTF-8"),
    "a text that is not UTF-8": (gguf([entry("k", STRING, text(b"caf\xe9"))]), "not UTF-8"),
    "an architecture that is no text": (gguf([entry("general.architecture", U32, b"\0" * 4)]), "general.architecture"),
    "an architecture that moves the cursor": (
        gguf([entry("general.architecture", STRING, text("\x1b[2J"))]),
        "architecture",
    ),
    "an alignment of 0": (gguf([entry("general.alignment", U32, struct.pack("<I", 0))]), "power of two"),
    "an alignment of 24": (gguf([entry("general.alignment", U32, struct.pack("<I", 24))]), "power of two"),
    "an alignment of 64 bits": (gguf([entry("general.alignment", U64, struct.pack("<Q", 32))]), "32-bit"),
    "a tensor twice": (gguf([], [tensor("x", (1,)), tensor("x", (1,), offset=32)], b"\0" * 64), "there twice"),
    "five dimensions": (gguf([], [tensor("x", (1, 1, 1, 1, 1))], b"\0" * 64), "5 dimensions"),
    "a row that is no block": (gguf([], [tensor("x", (31,), kind=8)], b"\0" * 64), "q8_0 cannot have"),
    "a product past 63 bits": (gguf([], [tensor("x", (2**40, 2**40))], b"\0" * 64), "cannot have"),
    "an offset out of place": (gguf([], [tensor("x", (1,), offset=32)], b"\0" * 64), "is at 32 where 0"),
    "data past the end": (gguf([], [tensor("x", (2**40,))], b"\0" * 64), "its header promises"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damage_is_named(tmp_path: Path, case: str) -> None:
    raw, message = DAMAGED[case]
    error = refusal(tmp_path, raw)
    assert isinstance(error, ModelFileError)
    assert message in error.message


@pytest.mark.parametrize(("kind", "words"), [(4, "no longer reads"), (31, "no longer reads"), (99, "not known here")])
def test_tensor_types_that_cannot_be_sized(tmp_path: Path, kind: int, words: str) -> None:
    error = refusal(tmp_path, gguf([], [tensor("x", (32,), kind=kind)], b"\0" * 64))
    assert isinstance(error, UnsupportedModelError)
    assert words in error.message


def test_names_from_the_file_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    for raw in (
        gguf([entry("\x1b[2J" * 999, 13, b"\0" * 16)]),
        gguf([], [tensor("\x1b[2J" * 999, (1,), kind=99)], b"\0" * 64),
        b"\x1b[2J",
    ):
        assert refusal(tmp_path, raw).message.isprintable()


def test_a_header_without_end_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    n_bytes = 2**33
    with path.open("wb") as file:
        file.write(gguf([entry("k", STRING, struct.pack("<Q", n_bytes // 2))]))
        file.truncate(n_bytes)  # sparse
    with pytest.raises(ModelFileError, match="at most 67,108,864"):
        read_header(path)


def test_millions_of_empty_texts_take_seconds_at_most(tmp_path: Path) -> None:
    n_texts = MAX_HEADER_BYTES // 8 - 100
    path = tmp_path / "model.gguf"
    with path.open("wb") as file:
        file.write(gguf([entry("k", ARRAY, struct.pack("<IQ", STRING, n_texts))]))
        file.truncate(MAX_HEADER_BYTES)
    started = time.process_time()
    assert len(read_header(path).strings("k") or ()) == n_texts
    assert time.process_time() - started < 20
