"""Whose socket takes a connection on this machine. A real stranger is in tests/orchestrator/test_strangers.py."""

from __future__ import annotations

import os
import socket

import pytest

from services.listeners import IS_CHECKED, Stranger, _listeners_in, refuse_stranger, stranger_of, users_at

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
