"""Headers by ranged reads: how much is transferred, and that nothing more ever is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath

import pytest

from localspec.errors import HubError, HubUnreachableError, ModelFileError, OfflineError
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
