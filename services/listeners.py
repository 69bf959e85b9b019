"""Who listens at a port of this machine, so that no secret is sent to another user's process.

While a service does not run, any user of the machine can listen at its port of 127.0.0.1. Linux says in /proc/net/tcp
which user every listening socket belongs to; root, which can read all secrets anyway, may listen too, as Docker's proxy
does. Other systems do not say it, and there nothing is checked.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from socket import AF_UNSPEC, SOCK_STREAM, getaddrinfo
from urllib.parse import urlsplit

IS_CHECKED = Path("/proc/net/tcp").exists()
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LINE_BYTES = 150
_LISTENING = "0A"  # state of a socket, from Linux's include/net/tcp_states.h
_DEFAULT_PORTS = {"http": 80, "https": 443}
_guarded = set[int]()


class Stranger(ConnectionRefusedError):
    """No process of this user, or of root, listens at a loopback address, so nothing was sent there."""


@dataclass(frozen=True, slots=True)
class Listener:
    """A listening socket: the address that it is bound to, and the user whom it belongs to."""

    address: IPv4Address | IPv6Address
    user: int


def listeners(port: int) -> Iterator[Listener]:
    """The sockets of all users that listen at a TCP port of this machine. Raises `OSError` where there is no
    /proc/net/tcp.

    The kernel takes 20 ms for both tables, most of it after the listening sockets, which come first. So a line is read
    only when it is asked for.
    """
    for path in _TABLES:
        if path.exists():
            with path.open("rb", buffering=_LINE_BYTES) as table:
                yield from _listeners_in(map(bytes.decode, table), port)


def users_at(host: str, port: int) -> set[int] | None:
    """The users whose process would take a connection to this IP address; None where that is not checked, as for an
    address that is not loopback."""
    address = _unmapped(ip_address(host.partition("%")[0]))
    if address.is_unspecified:  # a connection to 0.0.0.0 goes to 127.0.0.1
        address = ip_address("127.0.0.1" if address.version == 4 else "::1")
    if not (IS_CHECKED and address.is_loopback):
        return None
    users = set[int]()
    for listener in listeners(port):
        is_for_all = listener.address.is_unspecified
        # Two users cannot listen where a connection could go to either, whatever options their sockets have.
        if listener.address == address or (is_for_all and listener.address.version == address.version):
            return {listener.user}
        if is_for_all and address.version == 4:
            users.add(listener.user)  # of [::], which may take IPv4 too: the table does not say whether it does
    return users


def stranger_at(host: str, port: int) -> str | None:
    """Says that another user's process listens at this IP address; None if none does."""
    return _stranger(host, port, users_at(host, port))


def stranger_of(url: str) -> str | None:
    """`stranger_at` for the host and the port of a URL; None if the host is no IP address."""
    host, port = _host_and_port(url)
    try:
        return stranger_at("127.0.0.1" if host == "localhost" else host, port)
    except ValueError:
        return None


def refuse_stranger(host: str, port: int) -> None:
    """Raise `Stranger` unless a secret may be sent to this IP address; to be called right before a connection is made.

    A port at which nobody listens is refused too: another user could begin to listen between this and the connection.
    """
    users = users_at(host, port)
    if problem := _stranger(host, port, users):
        raise Stranger(problem)
    if users == set():
        raise Stranger(f"{host}:{port}: no process listens there")


def guard(*urls: str) -> None:
    """Have this process connect to the ports of these addresses on loopback only while `refuse_stranger` allows it.

    This covers every client that uses Python's sockets. Prefect's own client does, and its requests contain the
    password. An empty address is left out.
    """
    if not IS_CHECKED:
        return
    if not _guarded:
        sys.addaudithook(_watch)
    _guarded.update(_host_and_port(url)[1] for url in urls if url)


def _watch(event: str, arguments: tuple[object, ...], guarded: set[int] = _guarded) -> None:
    """An audit hook (https://docs.python.org/3/library/sys.html#sys.addaudithook): what it raises reaches the caller of
    `socket.connect`, which makes no connection then."""
    if event != "socket.connect":
        return
    address = arguments[1]
    if isinstance(address, tuple) and address[1] in guarded:
        family = getattr(arguments[0], "family", AF_UNSPEC)
        for *_, (host, port, *_) in getaddrinfo(address[0], address[1], family, SOCK_STREAM):  # a name, or the address
            refuse_stranger(str(host), int(port))


def _stranger(host: str, port: int, users: set[int] | None) -> str | None:
    strangers = sorted((users or set()) - {os.geteuid(), 0})
    return f"{host}:{port}: expected a process of user {os.geteuid()}, got user {strangers[0]}" if strangers else None


def _host_and_port(url: str) -> tuple[str, int]:
    try:
        parts = urlsplit(url if "://" in url else f"//{url}")
        return parts.hostname or "", parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)
    except ValueError:  # such as a port that is no number: no client connects there
        return "", 0


def _listeners_in(table: Iterable[str], port: int) -> Iterator[Listener]:
    for line in table:
        fields = line.split()
        if fields[0] == "sl":  # the head
            continue
        address, _, number = fields[1].partition(":")
        if fields[3] == _LISTENING and int(number, 16) == port:
            # An address is words of four bytes, each in the byte order of the machine.
            words = (address[start : start + 8] for start in range(0, len(address), 8))
            packed = b"".join(int(word, 16).to_bytes(4, sys.byteorder) for word in words)
            yield Listener(_unmapped(ip_address(packed)), int(fields[7]))


def _unmapped(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    return (address.ipv4_mapped if isinstance(address, IPv6Address) else None) or address
