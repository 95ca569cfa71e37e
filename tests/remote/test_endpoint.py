"""Addresses as people write them, and which key goes where."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import UsageError
from localspec.printable import printable
from localspec.remote.endpoint import Endpoint, endpoint_at, endpoint_key


@pytest.mark.parametrize(
    ("written", "url", "root"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/v1", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080/v1", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080/v1", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:8080/v1/", "http://127.0.0.1:8080/v1", "http://127.0.0.1:8080"),
        ("http://[::1]:8080/v1/chat/completions", "http://[::1]:8080/v1", "http://[::1]:8080"),
        ("HTTPS://Example.com/v1/models", "https://example.com/v1", "https://example.com"),
        ("https://host/api", "https://host/api/v1", "https://host/api"),
        ("https://host/v1beta/openai", "https://host/v1beta/openai", "https://host/v1beta/openai"),
        ("https://host/api/paas/v4", "https://host/api/paas/v4", "https://host/api/paas"),
    ],
)
def test_addresses_with_and_without_their_version(written: str, url: str, root: str) -> None:
    endpoint = endpoint_at(written)
    assert (endpoint.url, endpoint.root) == (url, root)
    assert endpoint_at(endpoint.url).url == url


@pytest.mark.parametrize(
    "written",
    [
        "",
        "localhost:8080",
        "127.0.0.1:8080/v1",
        "ftp://host/v1",
        "http://",
        "http:///v1",
        "http://host:port/v1",
        "http://host:99999/v1",
        "http://[::1/v1",
        "http://host/v1?key=secret",
        "http://host/v1#part",
        "http://ho st/v1",
        "http://host/\x1b[31m",
        "http://host\\@other/v1",
    ],
)
def test_what_is_no_address_is_refused_by_name(written: str) -> None:
    with pytest.raises(UsageError, match="--endpoint") as caught:
        endpoint_at(written)
    assert caught.value.hint
    assert caught.value.message.isprintable()


@pytest.mark.parametrize("written", ["http://me:s3cret@host/v1", "http://s3cret@host/v1", "http://me:s3cret@host:x/v1"])
def test_credentials_in_an_address_are_refused_and_not_repeated(written: str) -> None:
    with pytest.raises(UsageError) as caught:
        endpoint_at(written)
    assert "s3cret" not in f"{caught.value.message} {caught.value.hint}"


@given(st.text())
def test_no_text_is_more_than_a_wrong_address(text: str) -> None:
    try:
        shown = endpoint_at(text).url
    except UsageError as error:
        shown = error.message
    assert printable(shown) == shown


@pytest.mark.parametrize(
    ("url", "is_loopback"),
    [
        ("http://localhost/v1", True),
        ("http://api.localhost/v1", True),
        ("http://127.8.0.1/v1", True),
        ("http://[::1]:1/v1", True),
        ("http://0.0.0.0:8080/v1", True),
        ("http://192.168.0.4/v1", False),
        ("http://localhost.example.com/v1", False),
        ("http://notlocalhost/v1", False),
    ],
)
def test_this_machine_is_told_from_others(url: str, is_loopback: bool) -> None:
    assert endpoint_at(url).is_loopback is is_loopback


LOCAL = Endpoint("http://127.0.0.1:1/v1")
FAR = Endpoint("http://far.example/v1")
FAR_AND_SAFE = Endpoint("https://far.example/v1")


def test_a_key_comes_from_the_environment() -> None:
    both = {"LOCALSPEC_ENDPOINT_KEY": "ours", "OPENAI_API_KEY": "theirs"}
    assert endpoint_key(both, FAR) == "ours"
    assert endpoint_key({"OPENAI_API_KEY": "theirs\n"}, LOCAL) == "theirs"
    assert endpoint_key({"OPENAI_API_KEY": "theirs"}, FAR_AND_SAFE) == "theirs"
    assert endpoint_key(both | {"MINE": "mine"}, FAR, "MINE") == "mine"
    assert endpoint_key({}, LOCAL) is None


def test_a_key_for_somebody_else_does_not_cross_a_network_in_the_clear() -> None:
    assert endpoint_key({"OPENAI_API_KEY": "theirs"}, FAR) is None
    assert endpoint_key({"OPENAI_API_KEY": "theirs"}, FAR, "OPENAI_API_KEY") == "theirs"  # the user has said so


@pytest.mark.parametrize("key", ["two words", "line\nend", "schlüssel", "a\x00b"])
def test_a_key_that_cannot_be_sent_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(UsageError, match="LOCALSPEC_ENDPOINT_KEY") as caught:
        endpoint_key({"LOCALSPEC_ENDPOINT_KEY": key}, LOCAL)
    assert key not in f"{caught.value.message} {caught.value.hint}"


def test_a_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(UsageError, match="--api-key-env names MINE"):
        endpoint_key({"MINE": ""}, LOCAL, "MINE")


def test_a_key_is_not_in_what_a_log_would_show() -> None:
    assert "s3cret" not in repr(Endpoint("http://host/v1", "s3cret"))
