"""The address of the Hub: one that is none is told with its variable, and a password in it never."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from localspec.errors import HubError, UsageError
from localspec.hub.client import Hub
from localspec.hub.settings import endpoint, without_password
from tests.hub.server import FakeHub, Fault

NO_ADDRESSES = ["http://127.0.0.1:99999", "http://[::1", "ftp://x", "http://", "x", "http://h:port", "http://h/?a=1"]


@pytest.mark.parametrize("address", NO_ADDRESSES)
def test_an_address_that_is_none_is_told_with_its_variable(address: str) -> None:
    with pytest.raises(UsageError, match="HF_ENDPOINT") as refused:
        endpoint(environ={"HF_ENDPOINT": address})
    assert repr(address) in refused.value.message


@pytest.mark.parametrize("address", NO_ADDRESSES)
def test_so_it_is_by_the_command_line(address: str) -> None:
    """In a process of its own: huggingface_hub reads the variable once, while it is imported."""
    done = subprocess.run(
        [sys.executable, "-m", "localspec", "pull", "o/r:Q8_0"],
        env=os.environ | {"HF_ENDPOINT": address},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "HF_ENDPOINT" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "address",
    ["ftp://me:s3cr@t:x@host", "http://me:s3cr@t:x@[::1", "http://me:s3cr@t:x@host:99999/p", "me:s3cr@t:x@host"],
)
def test_a_password_is_never_shown(address: str) -> None:
    with pytest.raises(UsageError) as refused:
        endpoint(address)
    assert "s3cr" not in refused.value.message
    assert "t:x" not in refused.value.message
    assert "me:…@" in refused.value.message


def test_what_is_shown_of_an_address() -> None:
    assert without_password("http://me:secret@host:1/a") == "http://me:…@host:1/a"
    for plain in ("https://huggingface.co", "http://[::1]:80/a", "http://me@host", "http://host/a@b:c"):
        assert without_password(plain) == plain


@pytest.mark.parametrize(
    "fault", [Fault(200, body=b"<html>"), Fault(403, {"X-Error-Code": "GatedRepo"}), Fault(403), Fault(500), Fault(999)]
)
def test_nor_is_it_in_what_is_said_of_an_answer(server: FakeHub, fault: Fault) -> None:
    server.faults["api"] = [fault] * 9
    hub = Hub(endpoint=server.endpoint.replace("://", "://me:s3cret@"))
    with pytest.raises(HubError) as refused:
        hub.models("o/r")
    assert "s3cret" not in f"{refused.value} {refused.value.hint}"


def test_names_of_variables_keep_their_capitals(server: FakeHub, hub: Hub) -> None:
    server.faults["api"] = [Fault(403)]
    with pytest.raises(HubError, match="denies") as refused:
        hub.models("o/r")
    assert refused.value.hint == "Log in with `hf auth login`, or set HF_TOKEN."
