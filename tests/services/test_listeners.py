"""Whose socket takes a connection on this machine. A real stranger is in tests/orchestrator/test_strangers.py."""

from __future__ import annotations

import os
import socket
from select import select

import pytest

from services.listeners import IS_CHECKED, Stranger, _listeners_in, _watch, refuse_stranger, stranger_of, users_at

pytestmark = pytest.mark.skipif(not IS_CHECKED, reason="this system does not say whose a socket is")
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
LINE = "   0: {address}:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 {user} 0 12345 1\n"


@pytest.mark.parametrize(
    ("bound", "asked", "is_ours"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "0.0.0.0", True),
        ("127.0.0.1", "::ffff:127.0.0.1", True),
        ("0.0.0.0", "127.0.0.1", True),
        ("0.0.0.0", "127.0.0.2", True),
        ("127.0.0.2", "127.0.0.1", False),
        ("127.0.0.1", "::1", False),
    ],
)
def test_a_socket_of_this_user_takes_a_connection(bound: str, asked: str, is_ours: bool) -> None:
    with socket.create_server((bound, 0)) as server:
        port = server.getsockname()[1]
        assert users_at(asked, port) == ({os.geteuid()} if is_ours else set())
        if is_ours:
            refuse_stranger(asked, port)
            return
        with pytest.raises(Stranger):
            refuse_stranger(asked, port)


NOBODY = 65534
# An address, whether the socket takes IPv6 only, and whether it may share its port.
BOUND = [(host, False, shared) for host in ("127.0.0.1", "0.0.0.0", "::ffff:127.0.0.1") for shared in (False, True)]
BOUND += [(host, only_6, shared) for host in ("::", "::1") for only_6 in (False, True) for shared in (False, True)]


def listening(host: str, only_6: bool, shared: bool, port: int = 0, user: int = 0) -> socket.socket:
    """A listening socket that belongs to `user`. Raises `OSError`."""
    os.seteuid(user)
    try:
        server = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    finally:
        os.seteuid(0)
    try:
        if shared:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if ":" in host:
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only_6)
        server.bind((host, port))
        server.listen()
    except OSError:
        server.close()
        raise
    return server


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a socket of another user")
@pytest.mark.parametrize("ours", BOUND)
def test_it_is_said_whose_socket_a_connection_reaches_while_another_user_listens_too(
    ours: tuple[str, bool, bool],
) -> None:
    reached = list[bool]()
    for theirs in BOUND:
        with listening(*ours) as our_socket:
            port = our_socket.getsockname()[1]
            try:
                their_socket = listening(*theirs, port=port, user=NOBODY)
            except OSError:
                continue  # the kernel lets them not listen there
            with their_socket:
                for host in ("127.0.0.1", "::1"):
                    try:
                        connection = socket.create_connection((host, port))
                    except OSError:
                        continue
                    with connection:
                        [taker], _, _ = select([our_socket, their_socket], [], [])
                        taker.accept()[0].close()
                        reached.append(taker is their_socket)
                        assert users_at(host, port) == {NOBODY if reached[-1] else 0}, (theirs, host)
    assert set(reached) == (set() if ours[:2] == ("::", False) else {False, True})  # it shares its port with nobody


@pytest.mark.parametrize("host", ["localhost", b"127.0.0.1"])
def test_a_guarded_port_is_looked_up_for_a_name_too(host: str | bytes) -> None:
    """A client may leave it to Python's socket to look a name up."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        port = server.getsockname()[1]
        _watch("socket.connect", (client, (host, port)), {port})
        with pytest.raises(Stranger):
            _watch("socket.connect", (client, (host, 1)), {1})


@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1"])
def test_another_machine_is_not_asked_for(host: str) -> None:
    assert users_at(host, 80) is None
    refuse_stranger(host, 80)


@pytest.mark.parametrize("url", ["", "a", "http://example.org", "http://a:99999", "http://[", "x:y"])
def test_an_address_that_is_none_has_no_stranger(url: str) -> None:
    assert stranger_of(url) is None


@pytest.mark.parametrize(
    ("address", "state", "expected"),
    [
        ("0100007F", "0A", [("127.0.0.1", 7)]),
        ("0100007F", "01", []),  # a connection
        ("00000000", "0A", [("0.0.0.0", 7)]),
        ("00000000000000000000000001000000", "0A", [("::1", 7)]),
        ("0000000000000000FFFF00000100007F", "0A", [("127.0.0.1", 7)]),
    ],
)
def test_the_kernel_s_table_is_read(address: str, state: str, expected: list[tuple[str, int]]) -> None:
    table = HEAD + "".join(LINE.format(address=address, port=port, state=state, user=7) for port in (80, 81))
    assert [(str(listener.address), listener.user) for listener in _listeners_in(table.splitlines(), 81)] == expected
