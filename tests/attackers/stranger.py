"""An attacker: another user of the machine, who listens at a port of coevo's and answers every request with 200.

`python -m tests.attackers.stranger PORT` takes the port as soon as it is free; `python -m tests.attackers.stranger`
waits for a program whose arguments name a port for Prefect, and takes that port before the program does. It prints a
line when it listens, and the head of each request.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import repeat
from pathlib import Path

import pytest

USER = 65534  # nobody
_STARTS_PREFECT = re.compile(rb"prefect_command\0server\0start\0.*--port=(\d+)")  # as `coevo up` starts it
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1\r\nConnection: close\r\n\r\n1"


def main() -> None:
    os.setgroups([])
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)
    ports = repeat(int(sys.argv[1])) if len(sys.argv) > 1 else _ports_in_arguments(int(os.environ["STARTED_BY"]))
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    for port in ports:
        with suppress(OSError):  # a service listens there
            listener.bind(("127.0.0.1", port))
            break
    listener.listen(100)
    print(f"listening at {port}", flush=True)
    while True:
        connection, _ = listener.accept()
        with connection:
            head = b""
            while b"\r\n\r\n" not in head and (part := connection.recv(65536)):
                head += part
            print(head, flush=True)
            connection.sendall(_ANSWER)


def _ports_in_arguments(parent: int) -> Iterator[int]:
    """The ports at which programs of `parent` listen, or will. All users can read the arguments of a process."""
    while True:
        for process in Path("/proc").glob("[0-9]*"):
            try:
                is_child = f"PPid:\t{parent}\n" in (process / "status").read_text()
                arguments = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if is_child and (port := _STARTS_PREFECT.search(arguments)):
                yield int(port[1])


@contextmanager
def attacking(log: Path, port: int | None = None) -> Iterator[None]:
    """Run the attacker for the block; what it prints is in `log`."""
    if os.geteuid():
        pytest.skip("only root can run a program as another user")
    command = [sys.executable, "-u", "-m", "tests.attackers.stranger", *([] if port is None else [str(port)])]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env={**os.environ, "STARTED_BY": str(os.getpid())}
        )
    try:
        yield
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main()
