"""The loopback ports of the services: those that are given, those of the last `coevo up`, or free ones."""

from __future__ import annotations

import errno
import random
import socket
from contextlib import suppress
from dataclasses import asdict, dataclass

from core.errors import CoevoError
from orchestrator.installation.home import Home, Services


class StartError(CoevoError):
    """A service did not start; the message names it and its log."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Loopback ports of the services. 0 stands for any free port."""

    serve: int = 8000
    dashboard: int = 8265
    prefect: int = 4200
    api: int = 8080

    def resolved(self) -> Ports:
        """The ports with every 0 replaced by a free port. Raises `StartError` if a given port is in use."""
        if taken := self.taken():
            listed = ", ".join(f"{port} (--{name}-port)" for name, port in taken.items())
            remedy = "free it, give another one (0 takes any free port), or start with --free-ports"
            raise StartError(f"port in use on 127.0.0.1: {listed}; {remedy}")
        return Ports(**{name: port or free_port() for name, port in asdict(self).items()})

    def taken(self) -> dict[str, int]:
        """The ports that are in use, by the names of their services."""
        return {name: port for name, port in asdict(self).items() if port and _is_in_use(port)}

    @classmethod
    def of(cls, services: Services) -> Ports:
        """The ports of services that were started here."""
        urls = (services.serve_url, services.dashboard_url, services.prefect_url, services.api_url)
        return cls(*(int(url.rpartition(":")[2]) for url in urls))

    def as_last_time(self, home: Home) -> Ports:
        """The ports of the home's last `coevo up` where they are still free, and these ports elsewhere.

        So addresses stay the same after `coevo down` or a reboot.
        """
        usual = asdict(self)
        free = {name: port for name, port in home.last_ports().items() if name in usual and not _is_in_use(port)}
        return Ports(**{**usual, **free})


ANY_FREE = Ports(0, 0, 0, 0)


def free_port() -> int:
    """A free port of 127.0.0.1 in a range that no program uses by default.

    Ray's workers use 10002 to 19999, and Linux assigns ports from 32768 on (other systems from higher ones).
    """
    while True:
        port = random.randrange(20_000, 32_768)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _is_in_use(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that have just ended do not matter
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False
