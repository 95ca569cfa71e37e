"""What a server says of itself, and how a connection to it begins or does not."""

from __future__ import annotations

import pickle
import queue
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from localspec.engine.events import Failed, Loaded, LoadFailed, Loading, SwapFailed
from localspec.engine.questions import AskUsage, Refusal
from localspec.errors import (
    EndpointAnswerError,
    EndpointRefusedError,
    EndpointUnreachableError,
    EngineError,
    LoadCancelledError,
    LocalspecError,
    UsageError,
)
from localspec.remote import server_facts
from localspec.remote.connection import Patience
from localspec.remote.engine import stand_in
from tests.remote.conftest import Client
from tests.remote.server import Answer, FakeServer, json_answer, refusal

Clients = Callable[..., Client]


def test_any_server_with_one_model_is_enough(client_of: Clients) -> None:
    loaded = client_of().load()
    assert (loaded.target_name, loaded.draft_name, loaded.n_ctx) == ("a-model", None, 0)
    assert loaded.has_chat_template
    assert not loaded.takes_modes


def test_llama_server_tells_its_context(server: FakeServer, client_of: Clients) -> None:
    server.speaks_llama_cpp()
    loaded = client_of().load()
    assert (loaded.target_name, loaded.n_ctx, loaded.takes_modes) == ("tiny.gguf", 512, False)


def test_localspec_tells_its_draft_model_and_takes_modes(server: FakeServer, client_of: Clients) -> None:
    server.speaks_localspec()
    loaded = client_of().load()
    assert (loaded.target_name, loaded.draft_name, loaded.n_ctx, loaded.takes_modes) == ("ours", "a draft", 512, True)


def test_vllm_tells_its_context_elsewhere(server: FakeServer, client_of: Clients) -> None:
    server.models = [{"id": "Qwen/Qwen3", "owned_by": "vllm", "max_model_len": 4096}]
    server.pages["/health"] = [Answer([b""], headers={})]
    loaded = client_of().load()
    assert (loaded.target_name, loaded.n_ctx) == ("Qwen/Qwen3", 4096)


def test_a_path_is_shown_as_the_name_of_its_file_and_asked_for_as_it_is(server: FakeServer, client_of: Clients) -> None:
    server.models = [{"id": "/somewhere/deep/tiny.gguf"}]
    client = client_of()
    assert client.load().target_name == "tiny.gguf"
    client.ask()
    assert server.chats[0].body["model"] == "/somewhere/deep/tiny.gguf"


def test_several_models_are_listed_and_one_is_to_be_chosen(server: FakeServer, client_of: Clients) -> None:
    server.models = [{"id": f"m{n}\x1b[31m"} for n in range(20)]
    error = client_of().load_error()
    assert isinstance(error, UsageError)
    assert "20 models: m0" in error.message
    assert "and 8 more" in error.message
    assert error.message.isprintable()
    assert "--model" in error.hint
    assert client_of(model="m3\x1b[31m").load().target_name == "m3\x1b[31m"


def test_a_model_is_found_by_its_other_names(server: FakeServer, client_of: Clients) -> None:
    server.models = [{"id": "a"}, {"id": "b", "aliases": ["best"], "meta": {"n_ctx": 77}}]
    loaded = client_of(model="best").load()
    assert (loaded.target_name, loaded.n_ctx) == ("best", 77)


def test_a_name_that_is_not_listed_is_asked_for_all_the_same(client_of: Clients) -> None:
    """Some servers list less than they have, and llama-server takes any name."""
    assert client_of(model="another").load().target_name == "another"


@pytest.mark.parametrize("status", [404, 405, 501])
def test_a_server_without_a_list_needs_a_name(server: FakeServer, client_of: Clients, status: int) -> None:
    server.pages["/v1/models"] = [refusal(status, "no such page")]
    assert isinstance(client_of().load_error(), EndpointRefusedError)
    assert client_of(model="x").load().target_name == "x"


def test_an_empty_list_needs_a_name(server: FakeServer, client_of: Clients) -> None:
    server.models = []
    assert "--model" in client_of().load_error().hint


def test_a_model_that_still_loads_is_waited_for(
    server: FakeServer, client_of: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_facts, "_LOOK_AGAIN_S", 0.01)
    server.speaks_llama_cpp()
    loading = refusal(503, "Loading model", type="unavailable_error", code=503)
    server.pages["/v1/models"] = [loading, loading, json_answer({"data": server.models})]
    server.pages["/health"] = [loading, json_answer({"status": "ok"})]
    client = client_of()
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    client.engine.load(stand_in(client.engine.endpoint), events.put)
    seen = [events.get(timeout=10) for _ in range(5)]
    assert [type(event) for event in seen] == [Loading, Loading, Loading, Loading, Loaded]
    assert "loads its model" in seen[1].what


def test_a_server_that_is_busy_for_another_reason_is_not_waited_for(server: FakeServer, client_of: Clients) -> None:
    server.pages["/v1/models"] = [refusal(503, "No healthy upstream")]
    error = client_of().load_error()
    assert isinstance(error, EndpointRefusedError)
    assert error.status == 503


@pytest.mark.parametrize(
    "answer",
    [
        json_answer([]),
        json_answer({"data": 7}),
        json_answer({"hello": "world"}),
        Answer([b"<html>Log in to the network</html>"], headers={"Content-Type": "text/html"}),
        Answer([b"{"], headers={}),
        Answer([b"[" * 100_000], headers={}),
        Answer([b"x" * (1 << 20)] * 9, headers={}),
    ],
)
def test_what_is_no_list_of_models_is_refused(server: FakeServer, client_of: Clients, answer: Answer) -> None:
    server.pages["/v1/models"] = [answer]
    error = client_of().load_error()
    assert isinstance(error, EndpointAnswerError)
    assert server.url in error.message
    assert error.hint


def test_entries_that_are_none_are_left_out(server: FakeServer, client_of: Clients) -> None:
    server.models = [{"id": 7}, {"id": ""}, {"id": "x" * 1000}, {"id": "good"}, {}]
    server.pages["/v1/models"] = [json_answer({"data": [*server.models, None, "text"]})]
    assert client_of().load().target_name == "good"


@pytest.mark.parametrize("n_ctx", [-1, 0, "512", 2**40, None, [512]])
def test_a_context_that_cannot_be_is_unknown(server: FakeServer, client_of: Clients, n_ctx: Any) -> None:
    server.models = [{"id": "m", "meta": {"n_ctx": n_ctx}}]
    assert client_of().load().n_ctx == 0


def test_nobody_listens(client_of: Clients) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    error = client_of(f"http://127.0.0.1:{port}/v1").load_error()
    assert isinstance(error, EndpointUnreachableError)
    assert f"http://127.0.0.1:{port}/v1 cannot be reached: Connection refused." == error.message
    assert "start the server" in error.hint


def test_a_host_that_does_not_exist(client_of: Clients) -> None:
    error = client_of("http://nowhere.invalid/v1").load_error()
    assert isinstance(error, EndpointUnreachableError)
    assert "http://nowhere.invalid/v1 cannot be reached" in error.message
    assert error.hint


def test_a_server_without_tls(server: FakeServer, client_of: Clients) -> None:
    error = client_of(server.url.replace("http:", "https:")).load_error()
    assert isinstance(error, EndpointUnreachableError)
    assert "http://" in error.hint


def test_a_server_that_never_answers(server: FakeServer, client_of: Clients) -> None:
    server.pages["/v1/models"] = [Answer(holds=True, raw=True)]
    error = client_of(patience=Patience(question_s=0.3)).load_error()
    assert isinstance(error, EndpointUnreachableError)
    assert "0.3 s" in error.message


def test_an_answer_that_trickles_in_is_not_waited_for(server: FakeServer, client_of: Clients) -> None:
    server.pages["/v1/models"] = [Answer([b" "] * 100, pause_s=0.05)]
    error = client_of(patience=Patience(question_s=0.5)).load_error()
    assert isinstance(error, EndpointUnreachableError)


@pytest.mark.parametrize(
    "sent", [b"SSH-2.0-OpenSSH_9.6\r\n", b"\x00\x01\x02", b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 50_000]
)
def test_what_speaks_something_else(server: FakeServer, client_of: Clients, sent: bytes) -> None:
    server.pages["/v1/models"] = [Answer([sent], raw=True)]
    assert isinstance(client_of().load_error(), EndpointUnreachableError)


def test_a_redirect_is_told_and_not_followed(server: FakeServer, client_of: Clients) -> None:
    """The key is for the server that was named."""
    server.pages["/v1/models"] = [Answer(status=307, headers={"Location": f"{server.root}/elsewhere/models?a=b"})]
    error = client_of(key="s3cret").load_error()
    assert isinstance(error, EndpointRefusedError)
    assert f"{server.root}/elsewhere/models" in error.hint
    assert [each.path for each in server.seen] == ["/v1/models"]


def test_a_key_is_sent_and_repeated_nowhere(server: FakeServer, client_of: Clients) -> None:
    client = client_of(key="s3cret")
    client.load()
    assert {each.headers["authorization"] for each in server.seen} == {"Bearer s3cret"}
    server.pages["/v1/models"] = [refusal(401, "Incorrect API key provided: s3cret.")]
    error = client.load_error()
    assert "s3cret" not in f"{error.message} {error.hint}"
    assert "Check the key" in error.hint


def test_without_a_key_none_is_sent_and_the_variable_is_named(server: FakeServer, client_of: Clients) -> None:
    server.pages["/v1/models"] = [refusal(401, "Missing key")]
    error = client_of().load_error()
    assert isinstance(error, EndpointRefusedError)
    assert error.status == 401
    assert "LOCALSPEC_ENDPOINT_KEY" in error.hint
    assert "authorization" not in server.seen[0].headers


def test_proxies_do_not_concern_this_machine(
    server: FakeServer, client_of: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    assert client_of().load().target_name == "a-model"


def test_other_machines_are_asked_through_the_proxy(
    server: FakeServer, client_of: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", server.root)
    server.pages["http://far.invalid/v1/models"] = [json_answer({"data": [{"id": "far"}]})]
    assert client_of("http://far.invalid/v1").load().target_name == "far"


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "nonsense://x", "http://127.0.0.1:1", "http://[::1"])
def test_a_proxy_that_cannot_be_used(client_of: Clients, monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)
    error = client_of("http://far.invalid/v1").load_error()
    assert isinstance(error, EndpointUnreachableError)
    assert error.hint


def test_flags_of_localspec_are_for_its_own_server(server: FakeServer, client_of: Clients) -> None:
    error = client_of(own_flags=["--mode"]).load_error()
    assert isinstance(error, UsageError)
    assert "--mode" in error.message
    server.speaks_localspec()
    assert client_of(own_flags=["--mode"]).load().takes_modes


def test_a_load_that_is_asked_for_again_replaces_the_one_before(server: FakeServer, client_of: Clients) -> None:
    server.pages["/v1/models"] = [Answer(holds=True, raw=True), json_answer({"data": [{"id": "second"}]})]
    client = client_of()
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    client.engine.load(stand_in(client.engine.endpoint), events.put)
    assert isinstance(events.get(timeout=10), Loading)
    while not server.seen:
        time.sleep(0.01)
    assert client.load().target_name == "second"
    cancelled = events.get(timeout=10)
    assert isinstance(cancelled, LoadFailed)
    assert isinstance(cancelled.error, LoadCancelledError)


def test_what_a_server_cannot_be_asked_is_refused(client: Client) -> None:
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    client.engine.ask(AskUsage(), answers.put)
    refused = answers.get(timeout=10)
    assert isinstance(refused, Refusal)
    assert isinstance(refused.error, UsageError)
    client.engine.swap_draft(None, answers.put)
    kept = answers.get(timeout=10)
    assert isinstance(kept, SwapFailed)
    assert kept.loaded is not None
    assert client.engine.process_id is None


def test_a_reply_before_the_server_was_asked_fails(client_of: Clients) -> None:
    last = client_of().ask()[-1]
    assert isinstance(last, Failed)
    assert isinstance(last.error, EngineError)


def test_errors_survive_a_pickle(server: FakeServer, client_of: Clients) -> None:
    server.pages["/v1/models"] = [refusal(429, "slow down")]
    error = client_of().load_error()
    assert isinstance(error, EndpointRefusedError)
    again: LocalspecError = pickle.loads(pickle.dumps(error))
    assert (type(again), again.message, again.hint) == (type(error), error.message, error.hint)
    assert getattr(again, "status", None) == 429
