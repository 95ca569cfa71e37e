"""What is kept of a header plans as the header does, for every architecture; and damage in it is noticed."""

from __future__ import annotations

from array import array
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.memory.estimate import ContextShape, Footprint
from localspec.models.bare_header import pack, unpack
from localspec.models.gguf import read_header
from localspec.models.header import GgufHeader, TensorInfo
from tests.memory.shape_models import SHAPES
from tests.memory.shapes import write_shape

GIB = 1 << 30


@pytest.mark.parametrize("name", SHAPES)
def test_it_takes_the_same_memory_as_the_whole_header(name: str, tmp_path: Path) -> None:
    for tokens in (False, True):
        header = read_header(write_shape(tmp_path / "m.gguf", SHAPES[name](), "q8_0", tokens=tokens))
        kept = pack(header)
        assert 0 < len(kept) < 32_000
        bare = unpack(kept, header.path)
        assert bare is not None
        ours, theirs = Footprint(header), Footprint(bare)
        assert ours.shape == theirs.shape
        for context in (ContextShape(512), ContextShape(8192, "q8_0"), ContextShape(32768, n_outputs=1)):
            for free in ((), (24 * GIB,), (8 * GIB, 12 * GIB)):
                for n in (-1, 0, 5):
                    assert ours.memory(context, n_gpu_layers=n, gpu_free_bytes=free) == theirs.memory(
                        context, n_gpu_layers=n, gpu_free_bytes=free
                    )


def _header(**changes: object) -> GgufHeader:
    tensor = TensorInfo("blk.0.ffn_up.weight", (32, 32), "f16", 0, 2048)
    header = GgufHeader(Path("m.gguf"), 3, {"general.architecture": "llama", "llama.block_count": 1}, (tensor,), 0, 0)
    return replace(header, **changes)  # type: ignore[arg-type]


def test_what_no_model_has_is_not_kept() -> None:
    known = {"general.architecture": "llama"}
    assert pack(_header())
    assert pack(_header(tensors=())) == ""
    assert pack(_header(metadata={**known, "llama.head_count": array("i", [1]) * 100_000})) == ""
    assert len(pack(_header(metadata={**known, "llama.text": "x" * 1_000_000}))) < 1_000
    tensors = tuple(TensorInfo(f"{n:08}".encode().hex() * 50, (1,), "f32", 0, n * n) for n in range(60_000))
    assert pack(_header(tensors=tensors)) == ""


@given(st.text(max_size=300) | st.binary(max_size=300).map(lambda raw: raw.decode("latin-1")))
def test_what_was_not_packed_is_none(text: str) -> None:
    assert unpack(text, Path("m.gguf")) is None


@given(st.data())
def test_damage_is_none_or_another_header_and_never_an_error(data: st.DataObject) -> None:
    kept = pack(_header())
    at = data.draw(st.integers(0, len(kept) - 1))
    unpack(kept[:at] + data.draw(st.characters(min_codepoint=33, max_codepoint=126)) + kept[at + 1 :], Path("m.gguf"))
    unpack(kept[:at], Path("m.gguf"))
