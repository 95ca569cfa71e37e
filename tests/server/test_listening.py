"""Where an endpoint listens: addresses, ports that are taken, and what is said then."""

from __future__ import annotations

import errno
import socket

import pytest

from localspec.errors import UsageError
from localspec.server.listening import bind, bound_port


def test_a_free_port_is_one_for_all_addresses() -> None:
    sockets = bind("localhost", 0)
    try:
        assert bound_port(sockets)
        assert {each.getsockname()[1] for each in sockets} == {bound_port(sockets)}
    finally:
        for each in sockets:
            each.close()


def test_nobody_is_let_in_before_it_listens() -> None:
    (bound,) = bind("127.0.0.1", 0)
    with bound, pytest.raises(ConnectionRefusedError):
        socket.create_connection(bound.getsockname(), timeout=5)


def test_a_port_that_is_taken_is_named_with_the_next_step() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(UsageError) as caught:
            bind("127.0.0.1", port)
    assert str(port) in caught.value.message
    assert "--port" in caught.value.hint


def test_a_port_is_free_again_right_after_an_end() -> None:
    first = socket.create_server(("127.0.0.1", 0))
    port = first.getsockname()[1]
    client = socket.create_connection(("127.0.0.1", port))
    accepted, _ = first.accept()
    accepted.close()  # who closes first leaves the port waiting
    client.close()
    first.close()
    for each in bind("127.0.0.1", port):
        each.close()


@pytest.mark.parametrize(
    ("host", "words"), [("192.0.2.1", "no address of this machine"), ("no.such.host.invalid", "has no address")]
)
def test_an_address_of_others_is_refused(host: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        bind(host, 0)
    assert "127.0.0.1" in caught.value.hint


@pytest.mark.parametrize("order", [(socket.AF_INET6, socket.AF_INET), (socket.AF_INET, socket.AF_INET6)])
def test_a_system_without_ipv6_listens_on_the_other_address(
    monkeypatch: pytest.MonkeyPatch, order: tuple[int, int]
) -> None:
    """The name localhost has an address of IPv6 there, too."""
    addresses = {socket.AF_INET6: ("::1", 0, 0, 0), socket.AF_INET: ("127.0.0.1", 0)}
    found = [(family, socket.SOCK_STREAM, 6, "", addresses[family]) for family in order]
    real = socket.socket

    def without_ipv6(family: int = -1, *more: int, **named: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return real(family, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    monkeypatch.setattr(socket, "socket", without_ipv6)
    (bound,) = bind("localhost", 0)
    with bound:
        assert bound.getsockname()[0] == "127.0.0.1"
        assert bound.getsockname()[1]
