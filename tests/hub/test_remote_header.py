"""Headers by ranged reads: how much is transferred, and that nothing more ever is."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from localspec.errors import HubError, HubUnreachableError, ModelFileError, OfflineError
from localspec.hub import header_store
from localspec.hub.client import Hub
from tests.hub.remote_gguf import large_model, small_model, split_model
from tests.hub.server import FakeHub, Fault

TOKENS: list[str | bytes] = ["a", "b", "c"]


def n_sent(server: FakeHub) -> int:
    return sum(server.n_sent.values())


def test_80_gb_with_128_thousand_tokens_cost_less_than_12_mb(server: FakeHub, hub: Hub) -> None:
    body = large_model()
    server.add("o/r", **{"m-Q8_0_gguf": body})
    (model,) = hub.models("o/r")
    found = hub.header(model)
    assert model.n_bytes > 79 * 10**9
    assert 6_000_000 < len(body.head) <= found.n_bytes_read < 12_000_000
    assert found.n_bytes_read <= n_sent(server) < 12_000_000
    tokens = found.header.strings("tokenizer.ggml.tokens")
    assert tokens is not None
    assert len(tokens) == 128_256
    assert tokens[-1] == "tok128255"
    assert found.header.tensors[0].n_bytes == body.size - len(body.head)
    assert found.header.path == PurePosixPath("o/r/m-Q8_0.gguf")


def test_pieces_are_small_and_come_from_storage_without_the_token(server: FakeHub, hub_at: Callable[..., Hub]) -> None:
    server.add("o/r", **{"m-Q8_0_gguf": large_model(n_tokens=50_000, n_merges=0, n_bytes=1 << 30)})
    hub = hub_at("hf_secret")
    hub.header(hub.models("o/r")[0])
    pieces = server.asked("storage")
    for each in pieces:
        first, last = map(int, each.headers["range"].removeprefix("bytes=").split("-"))
        assert last - first < 2 << 20
        assert "authorization" not in each.headers
        assert each.headers["accept-encoding"] == "identity"
    assert len(pieces) == len(server.asked("hub", "/resolve/")) > 1
    assert all(each.headers["authorization"] == "Bearer hf_secret" for each in server.asked("hub"))


def test_the_parts_of_a_set_become_one_header(server: FakeHub, hub: Hub) -> None:
    parts = split_model(3)
    server.add_files("o/r", {f"m-Q8_0-{number:05}-of-00003.gguf": body for number, body in enumerate(parts, 1)})
    found = hub.header(hub.models("o/r")[0])
    assert [each.name for each in found.header.tensors] == ["blk.0.weight", "blk.1.weight", "blk.2.weight"]
    assert found.header.file_size == sum(map(len, parts))
    assert found.header.integer("llama.block_count") == 3
    assert found.n_bytes_read == n_sent(server)


def test_parts_that_do_not_belong_together_are_refused(server: FakeHub, hub: Hub) -> None:
    one, two = split_model(2)[0], split_model(3)[1]
    server.add_files("o/r", {"m-00001-of-00002.gguf": one, "m-00002-of-00002.gguf": two})
    with pytest.raises(ModelFileError, match="o/r/m-00002"):
        hub.header(hub.models("o/r")[0])


def test_a_server_without_ranges_sends_80_gb_to_nobody(server: FakeHub, hub: Hub) -> None:
    body = large_model(n_tokens=100_000, n_merges=0)
    server.add("o/r", **{"m-Q8_0_gguf": body})
    server.faults["storage"] = [Fault(ignores_range=True) for _ in range(50)]
    found = hub.header(hub.models("o/r")[0])
    assert len(found.header.tensors) == 1
    assert found.n_bytes_read < 30_000_000
    assert n_sent(server) < 60_000_000  # and what was on its way in buffers when the connection was closed


def test_a_cut_in_the_middle_is_mended(server: FakeHub, hub: Hub) -> None:
    server.add("o/r", **{"m-Q8_0_gguf": large_model(n_tokens=50_000, n_merges=0)})
    server.faults["storage"] = [Fault(cut_after=1000), Fault(), Fault(503), Fault(cut_after=0)]
    assert len(hub.header(hub.models("o/r")[0]).header.tensors) == 1


def test_cuts_without_end_are_told(server: FakeHub, hub: Hub) -> None:
    server.add("o/r", **{"m-Q8_0_gguf": small_model(TOKENS)})
    server.faults["storage"] = [Fault(cut_after=0) for _ in range(50)]
    with pytest.raises(HubUnreachableError):
        hub.header(hub.models("o/r")[0])
    assert len(server.asked("storage")) < 10


@pytest.mark.parametrize(
    "claims",
    [
        {"Content-Range": "bytes 7-99/1000"},
        {"Content-Range": "nonsense"},
        {"Content-Encoding": "gzip"},
        {"Content-Encoding": "br\x1b[2J"},
    ],
)
def test_another_part_than_was_asked_for_is_refused(server: FakeHub, hub: Hub, claims: dict[str, str]) -> None:
    server.add("o/r", **{"m-Q8_0_gguf": small_model(TOKENS)})
    server.faults["storage"] = [Fault(claims=claims)]
    with pytest.raises(HubError, match=r"m-Q8_0\.gguf") as refused:
        hub.header(hub.models("o/r")[0])
    assert "\x1b" not in refused.value.message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<html>Log in</html>" * 9, "web page"),
        (b"GGUF\3\0\0\0" + b"\xff" * 64, "damaged"),
        (small_model(TOKENS)[:100], "ends inside its header"),
        (small_model(TOKENS)[:-9], "is cut"),
    ],
)
def test_what_is_no_model_is_told_like_a_local_file(server: FakeHub, hub: Hub, content: bytes, message: str) -> None:
    server.add("o/r", **{"m-Q8_0_gguf": content})
    with pytest.raises(ModelFileError, match=message) as refused:
        hub.header(hub.models("o/r")[0])
    assert "o/r/m-Q8_0.gguf" in refused.value.message


def test_what_is_in_the_cache_is_read_there(server: FakeHub, hub_at: Callable[..., Hub]) -> None:
    server.add("o/r", **{"m-Q8_0_gguf": small_model(TOKENS)})
    hub = hub_at()
    (model,) = hub.models("o/r")
    with pytest.raises(OfflineError):
        hub_at(offline=True).header(model)
    path = hub.download(model)
    n_requests = len(server.seen)
    found = hub_at(offline=True).header(model)
    assert (found.n_bytes_read, found.header.path) == (0, path)
    assert len(server.seen) == n_requests


def test_a_set_with_a_name_that_llama_cpp_refuses_is_refused_before_it_is_downloaded(server: FakeHub, hub: Hub) -> None:
    parts = split_model(2)
    server.add_files("o/r", {f"m-Q8_0-{number:05}-of-00002.GGUF": body for number, body in enumerate(parts, 1)})
    with pytest.raises(ModelFileError, match=r"does not end in -00001-of-00002\.gguf"):
        hub.header(hub.models("o/r")[0])


# --- what was read before ---------------------------------------------------------------------------------------------


def test_a_header_is_transferred_once(server: FakeHub, hub_at: Callable[..., Hub]) -> None:
    parts = split_model(3)
    server.add_files("o/r", {f"m-Q8_0-{number:05}-of-00003.gguf": body for number, body in enumerate(parts, 1)})
    server.add("o/s", **{"m-Q8_0_gguf": large_model(n_tokens=50_000, n_merges=100_000)})
    for repo in ("o/r", "o/s"):
        first = hub_at()
        (model,) = first.models(repo)
        assert first.known_header(model) is None
        found = first.header(model)
        n_before, n_asked = n_sent(server), len(server.asked("storage"))
        second = hub_at()
        again = second.header(second.models(repo)[0])
        assert (again.n_bytes_read, n_sent(server), len(server.asked("storage"))) == (0, n_before, n_asked)
        assert again.header == replace(found.header, metadata=again.header.metadata)
        assert set(again.header.metadata) == set(found.header.metadata)
        known = second.known_header(model)
        assert known is not None
        assert known == replace(again.header, metadata=known.metadata)
    tokens, tokens_again = (each.header.strings("tokenizer.ggml.tokens") for each in (found, again))
    assert tokens is not None
    assert tokens_again is not None
    assert (len(tokens), tokens.first_difference(tokens_again)) == (len(tokens_again), None)


def test_another_file_of_that_name_is_transferred(server: FakeHub, hub_at: Callable[..., Hub]) -> None:
    server.add("o/r", **{"m-Q8_0_gguf": small_model(["a", "b", "c"])})
    hub_at().header(hub_at().models("o/r")[0])
    server.add("o/r", **{"m-Q8_0_gguf": small_model(["a", "b", "d"])})  # of the same size
    found = hub_at().header(hub_at().models("o/r")[0])
    assert found.n_bytes_read > 0
    assert list(found.header.strings("tokenizer.ggml.tokens") or ()) == ["a", "b", "d"]


def test_damage_in_what_is_kept_costs_a_transfer_and_nothing_else(
    server: FakeHub, hub_at: Callable[..., Hub], tmp_path: Path
) -> None:
    server.add("o/r", **{"m-Q8_0_gguf": small_model(TOKENS)})
    hub_at().header(hub_at().models("o/r")[0])
    (kept,) = (tmp_path / "localspec" / "cache" / "remote-headers").iterdir()
    good = kept.read_bytes()
    for content in (
        b"",
        good[: len(good) // 2],
        good[:40] + b"\xff" + good[41:],
        bytes(32) + good[32:],
        good[:32] + b"x" * 100,
    ):
        kept.write_bytes(content)
        assert hub_at().header(hub_at().models("o/r")[0]).n_bytes_read > 0
        assert kept.read_bytes() == good
    kept.unlink()
    os.mkfifo(kept)
    assert hub_at().header(hub_at().models("o/r")[0]).n_bytes_read > 0


def test_the_folder_of_headers_is_bounded(
    server: FakeHub, hub_at: Callable[..., Hub], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "localspec" / "cache" / "remote-headers"
    names = [f"o/r{number}" for number in range(6)]
    for number, repo in enumerate(names):
        server.add(repo, **{"m-Q8_0_gguf": small_model([f"{number}-{random.Random(number).randbytes(2000).hex()}"])})
    hub = hub_at()
    hub.header(hub.models(names[0])[0])
    (first,) = folder.iterdir()
    monkeypatch.setattr(header_store, "MAX_BYTES", 3 * first.stat().st_size + 100)
    for repo in names[1:]:
        os.utime(first, (time.time() + 10, time.time() + 10))  # it was used in between
        hub.header(hub.models(repo)[0])
    assert len(list(folder.iterdir())) == 3
    assert hub.header(hub.models(names[0])[0]).n_bytes_read == 0
    assert hub.header(hub.models(names[-1])[0]).n_bytes_read == 0
    assert hub.header(hub.models(names[1])[0]).n_bytes_read > 0


def test_headers_that_cannot_be_kept_are_read_all_the_same(
    server: FakeHub, hub_at: Callable[..., Hub], tmp_path: Path
) -> None:
    (tmp_path / "localspec").mkdir()
    (tmp_path / "localspec" / "cache").write_bytes(b"a file where the folder belongs")
    server.add("o/r", **{"m-Q8_0_gguf": small_model(TOKENS)})
    for _ in range(2):
        assert hub_at().header(hub_at().models("o/r")[0]).n_bytes_read > 0
