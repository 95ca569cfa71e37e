"""Who may ask: keys, hosts and origins, by what a middleware in front of a mere echo lets through."""

from __future__ import annotations

import base64
import hmac
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from localspec.errors import UsageError
from localspec.server import security
from localspec.server.security import AccessRules, access_rules, is_loopback, protected
from localspec.server.settings import ServerSettings
from tests.server.http_client import Exchange, HttpClient

KEY = "k-0123456789abcdef"
PAGE = "https://pages.example.org"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("reached")(scope, receive, send)


def client(**settings: Any) -> HttpClient:
    return HttpClient(protected(echo, ServerSettings(**settings)))


async def get(settings: dict[str, Any], path: str = "/v1/models", **headers: str) -> Exchange:
    return await client(**settings).get(
        path, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )


def is_reached(exchange: Exchange) -> bool:
    return exchange.status == 200 and bytes(exchange.body) == b"reached"


def refused_as(exchange: Exchange) -> tuple[int | None, str]:
    assert set(exchange.error) == {"message", "type", "param", "code"}
    return exchange.status, exchange.error["code"]


# --- keys -------------------------------------------------------------------------------------------------------------


def basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"anybody:{password}".encode()).decode()


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": f"Bearer {KEY}"},
        {"authorization": f"bearer  {KEY} "},
        {"authorization": "Bearer second"},
        {"x_api_key": KEY},
        {"authorization": "Bearer wrong", "x_api_key": KEY},
        {"authorization": basic(KEY)},
    ],
)
async def test_any_of_the_keys_opens_it(headers: dict[str, str]) -> None:
    assert is_reached(await get({"api_keys": (KEY, "second")}, **headers))


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": "Bearer "},
        {"authorization": KEY},
        {"authorization": f"Token {KEY}"},
        {"authorization": f"Bearer {KEY[:-1]}"},
        {"authorization": f"Bearer {KEY}x"},
        {"authorization": f"Bearer {KEY.upper()}"},
        {"authorization": "Bearer caf\xe9"},
        {"authorization": "Basic not-base64!"},
        {"authorization": "Basic " + base64.b64encode(b"\xff\xfe:\xff").decode()},
        {"authorization": basic("wrong")},
        {"x_api_key": ""},
    ],
)
async def test_nothing_else_does(headers: dict[str, str]) -> None:
    exchange = await get({"api_keys": (KEY,)}, **headers)
    assert refused_as(exchange) == (401, "invalid_api_key")
    assert exchange.headers["www-authenticate"] == "Bearer"
    assert KEY not in exchange.body.decode()


@given(st.text(st.characters(min_codepoint=33, max_codepoint=255), min_size=1, max_size=40))
async def test_a_key_that_was_not_given_out_never_opens_it(key: str) -> None:
    exchange = await get({"api_keys": (KEY,)}, authorization=f"Bearer {key}")
    assert is_reached(exchange) == (key == KEY)


async def test_a_person_in_a_browser_is_asked_for_the_key() -> None:
    exchange = await get({"api_keys": (KEY,)}, "/", accept="text/html,*/*")
    assert exchange.headers["www-authenticate"].startswith("Basic ")


@pytest.mark.parametrize(
    ("path", "reached"), [("/health", True), ("/v1/health", True), ("/healthy", False), ("/", False)]
)
async def test_whoever_watches_needs_no_key(path: str, reached: bool) -> None:
    assert is_reached(await get({"api_keys": (KEY,)}, path)) == reached


async def test_keys_are_compared_by_digests_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    truly_compare = hmac.compare_digest

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return truly_compare(one, other)

    monkeypatch.setattr(security.hmac, "compare_digest", compare)
    assert is_reached(await get({"api_keys": (KEY, "second", "third")}, authorization=f"Bearer {KEY}"))
    assert len(compared) == 3  # also those after the one that fits
    assert {len(each) for pair in compared for each in pair} == {32}


async def test_a_key_is_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    settings = ServerSettings(api_keys=(KEY,))
    with caplog.at_level(logging.DEBUG):
        await get({"api_keys": (KEY,)}, authorization=f"Bearer {KEY}")
        await get({"api_keys": (KEY,)}, authorization=f"Bearer {KEY}x")
    assert KEY not in caplog.text
    assert KEY not in repr(settings)
    assert KEY not in repr(access_rules(settings))


# --- hosts ------------------------------------------------------------------------------------------------------------

LOOPBACK = [
    "127.0.0.1",
    "127.0.0.1:8080",
    "127.8.9.1:1",
    "[::1]",
    "[::1]:8080",
    "localhost",
    "LOCALHOST:3",
    "localhost.",
]
LOOPBACK += ["app.localhost:8080"]
ELSEWHERE = ["evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "0.0.0.0:8080"]
ELSEWHERE += ["192.168.1.7", "[fe80::1]", "notlocalhost", "2130706433", "0x7f.1"]
NO_HOSTS = ["", "a b", "localhost:port", "localhost:123456", "[::1", "user@localhost", "localhost/x", "127.0.0.1, evil"]


@pytest.mark.parametrize("host", LOOPBACK)
async def test_on_loopback_its_own_names_are_taken(host: str) -> None:
    for bound in ("127.0.0.1", "::1", "localhost"):
        assert is_reached(await get({"host": bound}, host=host))


@pytest.mark.parametrize("host", [*ELSEWHERE, *NO_HOSTS])
async def test_on_loopback_nothing_else_is(host: str) -> None:
    exchange = await get({"host": "127.0.0.1"}, host=host)
    assert refused_as(exchange) == (403, "host_not_allowed")
    assert "evil" not in exchange.body.decode()


@pytest.mark.parametrize(
    ("host", "reached"),
    [
        ("192.168.1.7:8080", True),
        ("[fd00::7]:8080", True),
        ("127.0.0.1", True),
        ("models.example.org", True),
        ("MODELS.example.org.:443", True),
        ("box:8080", True),
        ("evil.example", False),
        ("models.example.org.evil.example", False),
    ],
)
async def test_in_a_network_addresses_and_given_names_are_taken(host: str, reached: bool) -> None:
    settings = {"host": "box", "allowed_hosts": ("models.example.org",), "api_keys": (KEY,)}
    assert is_reached(await get(settings, host=host, x_api_key=KEY)) == reached


@pytest.mark.parametrize(
    ("host", "loopback"),
    [(host, True) for host in ("127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost")]
    + [(host, False) for host in ("0.0.0.0", "::", "192.168.0.1", "example.org", "")],
)
def test_what_nobody_else_reaches(host: str, loopback: bool) -> None:
    assert is_loopback(host) == loopback


# --- origins ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://127.0.0.1:8080", "127.0.0.1:8080"),
        ("http://localhost:8080", "localhost:8080"),
        ("http://localhost", "localhost:80"),
        ("https://localhost", "localhost"),
        ("http://[::1]:8080", "[::1]:8080"),
    ],
)
async def test_its_own_pages_may_use_it(origin: str, host: str) -> None:
    exchange = await get({}, origin=origin, host=host)
    assert is_reached(exchange)
    assert "access-control-allow-origin" not in exchange.headers


FOREIGN = [PAGE, "null", "http://127.0.0.1:3000", "http://localhost:8080", "ftp://127.0.0.1:8080", "", "nonsense"]
FOREIGN += ["http://127.0.0.1:8080.evil.example", "http://127.0.0.1:8080/x", "vscode-webview://abc"]


@pytest.mark.parametrize("origin", FOREIGN)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
async def test_pages_from_elsewhere_may_not(origin: str, method: str) -> None:
    ask = {"origin": origin, "access-control-request-method": "POST"}
    exchange = await client().start(method, "/v1/chat/completions", headers=ask).finish()
    assert refused_as(exchange) == (403, "origin_not_allowed")
    assert not [name for name in exchange.headers if name.startswith("access-control")]


@pytest.mark.parametrize(("site", "reached"), [("cross-site", False), ("same-origin", True), ("none", True)])
async def test_what_browsers_send_without_an_origin(site: str, reached: bool) -> None:
    assert is_reached(await get({}, sec_fetch_site=site)) == reached


async def test_a_page_that_was_allowed_sees_the_answer() -> None:
    settings = {"allowed_origins": (PAGE.upper() + "/",), "api_keys": (KEY,)}
    exchange = await get(settings, origin=PAGE, sec_fetch_site="cross-site", x_api_key=KEY)
    assert is_reached(exchange)
    assert exchange.headers["access-control-allow-origin"] == PAGE
    assert "Origin" in exchange.headers["vary"]
    without_key = await get(settings, origin=PAGE)
    assert refused_as(without_key) == (401, "invalid_api_key")
    assert without_key.headers["access-control-allow-origin"] == PAGE
    assert refused_as(await get(settings, origin="null", x_api_key=KEY)) == (403, "origin_not_allowed")


async def test_a_preflight_is_answered_without_a_key_for_allowed_pages() -> None:
    ask = {
        "origin": PAGE,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization, content-type, x-stainless-lang",
        "access-control-request-private-network": "true",
    }
    exchange = await client(allowed_origins=(PAGE,), api_keys=(KEY,)).start("OPTIONS", "/v1/x", headers=ask).finish()
    assert exchange.status == 204
    assert exchange.headers["access-control-allow-origin"] == PAGE
    assert exchange.headers["access-control-allow-headers"] == "authorization, content-type, x-stainless-lang"
    assert exchange.headers["access-control-allow-private-network"] == "true"
    assert "POST" in exchange.headers["access-control-allow-methods"]


async def test_any_page_may_be_allowed_but_no_nameless_one() -> None:
    settings = {"allowed_origins": ("*",), "api_keys": (KEY,)}
    assert is_reached(await get(settings, origin="https://anything.example", x_api_key=KEY))
    assert refused_as(await get(settings, origin="null", x_api_key=KEY)) == (403, "origin_not_allowed")


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"origins": ("*",)}, "asks for no key"),
        ({"origins": ("https://a.example/path",)}, "is not an origin"),
        ({"origins": ("a.example",)}, "is not an origin"),
        ({"origins": ("null",)}, "is not an origin"),
        ({"host_names": ("http://a.example",)}, "is not the name of a host"),
        ({"api_keys": ("",)}, "cannot be sent"),
        ({"api_keys": ("two words\n",)}, "cannot be sent"),
        ({"api_keys": ("schlüssel",)}, "cannot be sent"),
    ],
)
def test_what_could_not_work_is_refused_at_the_start(rules: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        AccessRules("127.0.0.1", **rules)
    assert caught.value.hint
    assert "schlüssel" not in caught.value.message


# --- headers ----------------------------------------------------------------------------------------------------------


async def test_headers_are_counted_and_measured() -> None:
    many = {f"x-{number}": "1" for number in range(101)}
    assert refused_as(await client().get("/", headers=many)) == (431, "headers_too_large")
    assert refused_as(await client(max_header_bytes=1000).get("/", headers={"x": "1" * 1000})) == (
        431,
        "headers_too_large",
    )
    assert is_reached(await client(max_header_bytes=1000).get("/", headers={"x": "1" * 500}))


async def test_answers_are_not_guessed_at_nor_framed() -> None:
    exchange = await get({})
    assert exchange.headers["x-content-type-options"] == "nosniff"
    assert exchange.headers["x-frame-options"] == "DENY"
