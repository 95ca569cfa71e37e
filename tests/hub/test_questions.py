"""Searching and listing: what is asked, what comes of it, and how each failure is explained."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path

import huggingface_hub.constants
import pytest

from localspec.errors import (
    HubAccessError,
    HubError,
    HubUnreachableError,
    LocalspecError,
    NotOnHubError,
    OfflineError,
    UsageError,
)
from localspec.hub import session
from localspec.hub.client import Hub
from localspec.models.references import HubReference
from tests.hub.server import COMMIT, FakeHub, Fault

MakeHub = Callable[..., Hub]
GGUF = b"GGUF and more"


def test_a_search_asks_for_gguf_repositories_and_their_facts(server: FakeHub, hub: Hub) -> None:
    server.found = [{"id": "o/r", "downloads": 3}, {"id": "o/s"}]
    assert [each.repo for each in hub.search("qwen coder", limit=1)] == ["o/r"]
    (seen,) = server.seen
    assert seen.path == "/api/models"
    assert seen.query["search"] == ["qwen coder"]
    assert seen.query["filter"] == ["gguf"]
    assert seen.query["sort"] == ["downloads"]
    assert "gguf" in seen.query["expand"]


def test_models_are_listed_with_sizes_and_parts(server: FakeHub, hub: Hub) -> None:
    server.add_files(
        "o/r", {"m-Q4_K_M.gguf": b"x" * 10, "m-F16-00001-of-00002.gguf": b"y" * 5, "m-F16-00002-of-00002.gguf": b"z"}
    )
    models = hub.models("o/r")
    assert [(each.quantization, each.n_bytes, len(each.files)) for each in models] == [("Q4_K_M", 10, 1), ("F16", 6, 2)]
    assert {each.revision for each in models} == {COMMIT}


def test_a_reference_is_found_like_in_llama_cpp(server: FakeHub, hub: Hub) -> None:
    server.add("o/r", **{"m-Q2_K_gguf": GGUF, "m-Q4_K_M_gguf": GGUF, "mmproj-F16_gguf": GGUF})
    assert hub.find(HubReference("o/r")).quantization == "Q4_K_M"
    assert hub.find(HubReference("o/r", "Q2_K")).files[0].name == "m-Q2_K.gguf"
    assert hub.find(HubReference("o/r", file="mmproj-F16.gguf")).files[0].name == "mmproj-F16.gguf"


def test_only_this_hub_is_asked(server: FakeHub, hub_at: MakeHub) -> None:
    server.add("o/r", **{"m-Q8_0_gguf": GGUF})
    hub_at("hf_secret").models("o/r")
    (seen,) = server.seen
    assert seen.headers["authorization"] == "Bearer hf_secret"
    assert seen.headers["user-agent"].startswith("localspec/")


# --- what there is not ------------------------------------------------------------------------------------------------


def test_a_missing_quantization_names_those_that_there_are(server: FakeHub, hub: Hub) -> None:
    server.add("o/r", **{"m-Q2_K_gguf": GGUF, "m-Q8_0_gguf": GGUF})
    with pytest.raises(NotOnHubError, match=r"o/r has no Q4_K_M\.") as missing:
        hub.find(HubReference("o/r", "Q4_K_M"))
    assert missing.value.hint == "It has Q2_K, Q8_0."
    assert missing.value.exit_code == 3
    with pytest.raises(NotOnHubError, match=r"no file x\.gguf") as missing:
        hub.find(HubReference("o/r", file="x.gguf"))
    assert "Q8_0" in missing.value.hint


def test_a_repository_without_models_says_what_it_has(server: FakeHub, hub: Hub) -> None:
    server.add("o/none", README_md=b"")
    server.add("o/vision", **{"mmproj-F16_gguf": GGUF})
    with pytest.raises(NotOnHubError, match="no model in GGUF") as missing:
        hub.find(HubReference("o/none"))
    assert "-GGUF" in missing.value.hint
    with pytest.raises(NotOnHubError) as missing:
        hub.find(HubReference("o/vision"))
    assert "mmproj-F16.gguf" in missing.value.hint
    assert hub.models("o/none") == []


@pytest.mark.parametrize("token", [None, "hf_x"])
def test_a_missing_repository_is_missing_or_private(hub_at: MakeHub, token: str | None) -> None:
    with pytest.raises(NotOnHubError, match=r"o/absent is not on 127\.0\.0\.1") as missing:
        hub_at(token).models("o/absent")
    assert ("your token may see it" if token else "hf auth login") in missing.value.hint


def test_a_gated_repository_says_where_to_accept_its_licence(server: FakeHub, hub_at: MakeHub) -> None:
    server.needs_token = "hf_good"
    for status in (401, 403):
        server.add("o/gated", **{"m-Q8_0_gguf": GGUF}).refusal = Fault(status, {"X-Error-Code": "GatedRepo"}, b"{}")
        with pytest.raises(HubAccessError, match="o/gated is gated") as refused:
            hub_at().models("o/gated")
        assert f"{server.endpoint}/o/gated" in refused.value.hint
        assert "hf auth login" in refused.value.hint
        assert refused.value.exit_code == 3
        assert len(hub_at("hf_good").models("o/gated")) == 1


@pytest.mark.parametrize(
    ("fault", "kind", "message", "hint"),
    [
        (Fault(401, body=b'{"error":"Invalid"}'), HubAccessError, "does not accept your token", "expired"),
        (Fault(403, body=b'{"error":"no scope\\u001b[2J"}'), HubAccessError, "denies access to o/r: no scope", "token"),
        (Fault(404), NotOnHubError, "o/r is not on", "name"),
        (
            Fault(403, {"X-Error-Message": "Access to this resource is disabled."}),
            NotOnHubError,
            "o/r was disabled",
            "another",
        ),
        (Fault(400, body=b"<html>bad</html>"), HubError, "refuses the request", "HF_ENDPOINT"),
        (Fault(403, body=b"[]"), HubAccessError, "denies access", "token"),
        (Fault(403, body=b'{"error":{"a":1},"errors":[5]}'), HubAccessError, "denies access", "token"),
        (Fault(403, body=b"[" * 60_000), HubAccessError, "denies access", "token"),
        (Fault(418), HubError, "418", "HF_ENDPOINT"),
        (Fault(304), HubError, "304", "HF_ENDPOINT"),
        (Fault(302), HubError, "302", "HF_ENDPOINT"),
        (Fault(302, {"Location": "gopher://x/"}), HubError, "cannot be reached", "network"),
        (Fault(200, body=b"<!doctype html><p>Log in to this network"), HubError, "web page", "log in"),
        (Fault(200, body=b"[" * 100_000), HubError, "no JSON", "HF_ENDPOINT"),
        (Fault(200, body=b"\xff\xfe"), HubError, "no JSON", "HF_ENDPOINT"),
        (Fault(200, body=b"5"), HubError, "o/r cannot be used", "HF_ENDPOINT"),
    ],
)
def test_every_refusal_is_explained(
    server: FakeHub, hub_at: MakeHub, fault: Fault, kind: type[LocalspecError], message: str, hint: str
) -> None:
    server.faults["api"] = [fault] * 3
    with pytest.raises(kind, match=message) as refused:
        hub_at("hf_x").models("o/r")
    assert type(refused.value) in {kind, HubUnreachableError}
    assert hint in refused.value.hint
    assert "\x1b" not in refused.value.message
    again = pickle.loads(pickle.dumps(refused.value))
    assert (type(again), str(again), again.hint) == (type(refused.value), str(refused.value), refused.value.hint)


def test_redirects_end(server: FakeHub, hub: Hub) -> None:
    around = Fault(307, {"Location": f"{server.endpoint}/api/models/o/r"})
    server.faults["api"] = [around] * 50
    with pytest.raises(HubError, match="redirects again and again"):
        hub.models("o/r")
    assert len(server.seen) < 10


# --- trouble that may pass --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_trouble_that_passes_is_not_noticed(server: FakeHub, hub: Hub, status: int) -> None:
    server.add("o/r", **{"m-Q8_0_gguf": GGUF})
    server.faults["api"] = [Fault(status), Fault(status)]
    assert len(hub.models("o/r")) == 1
    assert len(server.seen) == 3


def test_trouble_that_stays_is_told_after_some_attempts(server: FakeHub, hub: Hub) -> None:
    server.faults["api"] = [Fault(503, body=b'{"error":"Maintenance"}')] * 20
    with pytest.raises(HubUnreachableError, match=r"problem of its own \(503: Maintenance\)") as failed:
        hub.models("o/r")
    assert failed.value.exit_code == 1
    assert 2 <= len(server.seen) <= 5


def test_a_long_ban_is_told_at_once_and_survives_pickling(server: FakeHub, hub: Hub) -> None:
    server.faults["api"] = [Fault(429, {"Retry-After": "3000"})] * 3
    with pytest.raises(HubUnreachableError, match="asks to wait 3000 s") as failed:
        hub.search("x")
    assert "hf auth login" in failed.value.hint
    assert pickle.loads(pickle.dumps(failed.value)).retry_after_s == 3000
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({"Retry-After": "77"}, 77),
        ({"RateLimit": '"api";r=0;t=55', "RateLimit-Policy": '"fixed window";"api";q=500;w=300'}, 55),
        ({"Retry-After": "in 15 minutes"}, 900),
        ({"Retry-After": "9" * 400}, None),
        ({"Retry-After": "soon"}, None),
        ({"RateLimit": f'"api";r=0;t={"9" * 4000}'}, None),
        ({"RateLimit": f'"api";r=0;t={"9" * 5000}', "Retry-After": "50"}, 50),
        ({"RateLimit": '"api";r=5;t=55'}, None),
    ],
)
def test_how_long_to_wait_is_read_in_every_form(
    server: FakeHub, hub: Hub, headers: dict[str, str], wait_s: float | None
) -> None:
    if headers.get("Retry-After") == "in 15 minutes":  # from now: the tests before this one take minutes
        headers = {"Retry-After": formatdate(time.time() + 900, usegmt=True)}
    server.faults["api"] = [Fault(429, headers)] * 3
    with pytest.raises(HubUnreachableError) as failed:
        hub.search("x")
    assert failed.value.retry_after_s == (wait_s if wait_s is None else pytest.approx(wait_s, rel=0.5))


def test_a_silent_hub_is_not_waited_for(server: FakeHub, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "SILENCE_TIMEOUT_S", 0.1)
    server.faults["api"] = [Fault(200, {"Content-Length": "100"}, b"{")] * 5
    with pytest.raises(HubUnreachableError, match="no answer in time"):
        hub.models("o/r")


def test_no_hub_at_all(hub_at: MakeHub) -> None:
    with pytest.raises(HubUnreachableError, match=r"127\.0\.0\.1:9 cannot be reached") as failed:
        hub_at(endpoint="http://user:secret@127.0.0.1:9").search("x")
    assert "HTTPS_PROXY" in failed.value.hint
    assert "secret" not in str(failed.value)


def test_a_proxy_that_is_away_is_told(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with pytest.raises(HubUnreachableError, match="cannot be reached"):
        hub.search("x")


def test_a_proxy_is_used(server: FakeHub, hub_at: MakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", server.endpoint)
    server.found = [{"id": "o/r"}]
    assert [each.repo for each in hub_at(endpoint="http://hub.invalid").search("x")] == ["o/r"]
    assert server.seen[0].headers["host"] == "hub.invalid"


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_an_endless_answer_is_cut(server: FakeHub, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "MAX_JSON_BYTES", 1 << 20)
    server.faults["api"] = [Fault(200, body=json.dumps(["x" * 100] * 40_000).encode())]
    with pytest.raises(HubError, match="longer than 1 MiB"):
        hub.models("o/r")


def test_an_endless_refusal_is_not_read(server: FakeHub, hub: Hub) -> None:
    server.faults["api"] = [Fault(403, body=b"x" * (32 << 20))]
    started = time.monotonic()
    with pytest.raises(HubAccessError) as refused:
        hub.models("o/r")
    assert len(refused.value.message) < 500
    assert time.monotonic() - started < 20


# --- settings ---------------------------------------------------------------------------------------------------------


def test_offline_asks_nobody(server: FakeHub, hub_at: MakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    hub = hub_at()
    assert hub.is_offline
    for ask in (lambda: hub.search("x"), lambda: hub.models("o/r"), lambda: hub.find(HubReference("o/r"))):
        with pytest.raises(OfflineError) as refused:
            ask()
        assert "HF_HUB_OFFLINE" in refused.value.hint
    assert server.seen == []


def test_offline_as_huggingface_hub_was_imported_holds_too(
    server: FakeHub, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(OfflineError):
        hub.search("x")
    assert server.seen == []


def test_endpoint_and_token_come_from_the_environment(server: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", server.endpoint + "/")
    monkeypatch.setenv("HF_TOKEN", "hf_from_environment\n")
    Hub().search("x")
    assert server.seen[0].headers["authorization"] == "Bearer hf_from_environment"
    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
    Hub().search("x")
    assert "authorization" not in server.seen[1].headers


def test_a_token_of_hf_auth_login_is_used(server: FakeHub, hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hf_stored")
    hub.search("x")
    assert server.seen[0].headers["authorization"] == "Bearer hf_stored"


@pytest.mark.parametrize(
    "endpoint", ["ftp://x", "huggingface.co", "https://", "http://a b", "http://x:99999", "http://ü"]
)
def test_an_endpoint_that_is_none_is_refused(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    with pytest.raises(UsageError) as refused:
        Hub()
    assert "HF_ENDPOINT" in refused.value.hint


@pytest.mark.parametrize("token", ["with space", "zwei\nzeilen", "hf_ü"])
def test_a_token_that_is_none_is_refused_and_not_shown(hub_at: MakeHub, token: str) -> None:
    with pytest.raises(UsageError) as refused:
        hub_at(token).search("x")
    assert token not in str(refused.value)


@pytest.mark.parametrize("repo", ["", "x", "a/b/c", "../x", "a/..", "a--b/c", "a/b.git", "a/b?x=1", "a/b#c", "a b/c"])
def test_a_repository_that_is_none_is_refused(server: FakeHub, hub: Hub, repo: str) -> None:
    for ask in (hub.models, hub.remove, lambda text: hub.cached(HubReference(text))):
        with pytest.raises(UsageError):
            ask(repo)
    assert server.seen == []


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"HF_HUB_CACHE": "/a/hub"}, "/a/hub"),
        ({"HUGGINGFACE_HUB_CACHE": "/b"}, "/b"),
        ({"HF_HOME": "/c"}, "/c/hub"),
        ({"XDG_CACHE_HOME": "/d"}, "/d/huggingface/hub"),
        ({"HF_HUB_CACHE": "/a", "HF_HOME": "/c"}, "/a"),
    ],
)
def test_the_cache_is_where_the_environment_says_now(
    variables: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_HOME")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert Hub().cache_dir == Path(folder)
