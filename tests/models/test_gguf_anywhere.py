"""Headers from anywhere: through a function that reads pieces, as over a network."""

from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import ModelFileError
from localspec.models import header_cursor
from localspec.models.gguf import parse_header, read_header
from tests.models.gguf_bytes import gguf, small, strings, tensor
from tests.models.vocabularies import VOCABULARIES

PATH = PurePosixPath("owner/repo/model.gguf")


class Remote:
    """A file that is read in pieces, of which every byte is counted; `at_most` bytes come at once."""

    def __init__(self, raw: bytes, at_most: int = 2**40) -> None:
        self.raw = raw
        self.at_most = at_most
        self.n_bytes_read = 0
        self.n_reads = 0

    def read(self, offset: int, n_bytes: int) -> bytes:
        assert 0 <= offset < len(self.raw)
        assert 0 < n_bytes <= len(self.raw) - offset
        piece = self.raw[offset : offset + min(n_bytes, self.at_most)]
        self.n_bytes_read += len(piece)
        self.n_reads += 1
        return piece


def test_the_header_of_128_thousand_tokens_takes_less_than_12_megabytes() -> None:
    """As large as that of Llama 3: texts of seven bytes on average, as many merges twice as long, and the weights."""
    tokens = [f"t{number:06}"[: 5 + number % 5] + "x" * (number % 4) for number in range(128_256)]
    merges = [f"{number:x} {number + 1:x}" for number in range(280_147)]
    head = gguf([strings("tokenizer.ggml.tokens", tokens), strings("tokenizer.ggml.merges", merges)])
    assert 6e6 < len(head) < 11e6
    remote = Remote(head + b"\0" * 80_000_000)
    header = parse_header(PATH, len(remote.raw), remote.read)
    assert len(header.strings("tokenizer.ggml.tokens") or ()) == 128_256
    assert remote.n_bytes_read < 12e6
    assert remote.n_bytes_read - len(head) <= 2 * 2**20
    assert remote.n_reads <= 10


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_real_headers_are_the_same_from_anywhere(vocabulary: str) -> None:
    raw = VOCABULARIES[vocabulary].read_bytes()
    remote = Remote(raw, at_most=100_000)
    there, here = parse_header(PATH, len(raw), remote.read), read_header(VOCABULARIES[vocabulary])
    assert remote.n_bytes_read <= len(raw)
    assert there.path == PATH
    assert set(there.metadata) == set(here.metadata)
    for key, value in here.metadata.items():
        assert list(there.metadata[key]) == list(value) if hasattr(value, "__iter__") else there.metadata[key] == value


@given(st.integers(1, 50), st.integers(1, 4))
def test_however_small_the_pieces_are(at_most: int, n_more: int) -> None:
    raw = small()
    remote = Remote(raw + b"\0" * n_more, at_most)
    header = parse_header(PATH, len(remote.raw), remote.read)
    expected = parse_header(PATH, len(raw), Remote(raw).read)
    assert (header.tensors, header.data_offset) == (expected.tensors, expected.data_offset)
    assert list(header.strings("tokenizer.ggml.tokens") or ()) == list(expected.strings("tokenizer.ggml.tokens") or ())


@given(st.lists(st.binary(max_size=30), max_size=40), st.integers(1, 64))
def test_texts_that_pieces_cut_anywhere(texts: list[bytes], least: int) -> None:
    raw = gguf([strings("a", texts), strings("b", texts[:3])])
    usual = header_cursor._LEAST_READ_BYTES, header_cursor._MOST_READ_BYTES
    header_cursor._LEAST_READ_BYTES = header_cursor._MOST_READ_BYTES = least
    try:
        found = parse_header(PATH, len(raw), Remote(raw).read).strings("a")
    finally:
        header_cursor._LEAST_READ_BYTES, header_cursor._MOST_READ_BYTES = usual
    assert found is not None
    assert [found.bytes_at(number) for number in range(len(found))] == texts


def test_no_byte_of_the_weights_is_needed() -> None:
    raw = gguf([], [tensor("x", (2**20,))], b"")
    offsets: list[int] = []

    def read(offset: int, n_bytes: int) -> bytes:
        offsets.append(offset)
        return (raw + b"\xff" * n_bytes)[offset : offset + n_bytes]

    header = parse_header(PATH, len(raw) + 4 * 2**20, read)
    assert header.tensors[0].n_bytes == 4 * 2**20
    assert offsets == [0]


def test_a_source_that_ends_early_and_one_that_sends_too_much() -> None:
    raw = small()
    with pytest.raises(ModelFileError, match=r"owner/repo/model\.gguf became shorter"):
        parse_header(PATH, len(raw), lambda offset, _: raw[offset:100])
    with pytest.raises(ModelFileError, match="is cut: it has"):
        parse_header(PATH, len(raw) - 1, Remote(raw).read)
    talkative = parse_header(PATH, len(raw), lambda offset, _: raw[offset:] + b"x" * 100)
    assert talkative.tensors == parse_header(PATH, len(raw), Remote(raw).read).tensors


def test_what_the_source_raises_passes_through() -> None:
    def broken(offset: int, n_bytes: int) -> bytes:
        raise ConnectionError("the line is down")

    with pytest.raises(ConnectionError, match="down"):
        parse_header(PATH, 1000, broken)


def test_local_files_are_not_read_further_than_their_header(tmp_path: Path) -> None:
    path = tmp_path / "large.gguf"
    with path.open("wb") as file:
        file.write(gguf([], [tensor("x", (2**33,))]))
        file.truncate(2**36)  # sparse
    assert read_header(path).tensors[0].n_bytes == 2**35
