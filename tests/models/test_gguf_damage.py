"""Headers that are wrong in ways that nobody thought of: a header or a typed error, soon, and in little memory."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localspec.errors import ModelFileError, UnsupportedModelError
from localspec.models.gguf import read_header
from tests.models.gguf_bytes import small, write

SMALL = small()
MUTATION = st.one_of(
    st.tuples(st.just("set"), st.integers(0, len(SMALL) - 1), st.binary(min_size=1, max_size=9)),
    st.tuples(st.just("insert"), st.integers(0, len(SMALL)), st.binary(min_size=1, max_size=40)),
    st.tuples(st.just("delete"), st.integers(0, len(SMALL) - 1), st.binary(min_size=1, max_size=40)),
    st.tuples(st.just("cut"), st.integers(0, len(SMALL)), st.just(b"")),
)


def mutated(raw: bytes, kind: str, place: int, piece: bytes) -> bytes:
    if kind == "cut":
        return raw[:place]
    if kind == "insert":
        return raw[:place] + piece + raw[place:]
    return raw[:place] + (piece if kind == "set" else b"") + raw[place + len(piece) :]


@given(st.lists(MUTATION, min_size=1, max_size=4))
@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=2000)
def test_damaged_files_give_a_header_or_a_typed_error_quickly(
    tmp_path: Path, mutations: list[tuple[str, int, bytes]]
) -> None:
    raw = SMALL
    for kind, place, piece in mutations:
        raw = mutated(raw, kind, place, piece)
    path = write(tmp_path / "model.gguf", raw)
    try:
        header = read_header(path)
    except (ModelFileError, UnsupportedModelError):
        return
    assert header.data_offset <= header.file_size == len(raw)
    assert all(header.data_offset + each.offset + each.n_bytes <= len(raw) for each in header.tensors)


@given(st.binary(max_size=300))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_noise_after_the_magic_gives_typed_errors(tmp_path: Path, noise: bytes) -> None:
    path = write(tmp_path / "model.gguf", b"GGUF\x03\0\0\0" + noise)
    with contextlib.suppress(ModelFileError, UnsupportedModelError):
        read_header(path)


@pytest.mark.skipif(os.name == "nt", reason="peak memory is asked for as on POSIX")
@pytest.mark.timeout(3600)
def test_generated_headers_take_little_time_and_memory() -> None:
    """10,000 headers and the worst cases known; LOCALSPEC_TEST_N_HEADERS=50000 takes a quarter of a minute."""
    n_headers = int(os.environ.get("LOCALSPEC_TEST_N_HEADERS") or 10_000)
    command = [sys.executable, "-W", "error", "-m", "tests.models.generated_headers", str(n_headers)]
    root = Path(__file__).parents[2]
    ran = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=3600, check=False)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    print(found)
    assert found["n_headers"] == n_headers
    assert found["n_read"] > n_headers / 20
    assert found["n_refused"] > n_headers / 5
    assert found["peak_bytes"] < 200e6
    assert found["slowest_s"] < 20
