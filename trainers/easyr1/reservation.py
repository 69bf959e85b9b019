"""Reserves GPUs on the machines of our Ray, and runs EasyR1's processes on them.

One actor on each machine holds the GPUs of that machine and runs EasyR1's part there, in EasyR1's own environment and
with a separate Ray. When the actor ends, for whatever reason, the processes that it started end too (child.py), and the
GPUs are free.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

PATIENCE_S = 900.0  # how long to wait for the machines: a replacement has to start and to pull its container image
_ROOT = Path(__file__).resolve().parents[2]
_POLL_S = 0.5
_END_S = 40.0  # more than child.py's two waits of ten seconds for the processes that EasyR1 started


def reserve(nodes: int, gpus: int) -> Reserved | None:
    """Reserve `gpus` GPUs on each of `nodes` machines, or return None if Ray does not provide them in time.

    For a while Ray still offers the GPUs of a machine that was lost. The reservation then fails, and is tried again
    until the deadline, because another machine may join.
    """
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        reserved, ready = Reserved(nodes, gpus), False
        try:
            if ready := reserved.answers(deadline):
                return reserved
        finally:
            if not ready:
                reserved.end()
        time.sleep(_POLL_S)
    return None


class Reserved:
    """`gpus` GPUs on each of `nodes` machines of our Ray; EasyR1's own Ray starts on the first of them."""

    def __init__(self, nodes: int, gpus: int) -> None:
        self._layout = _Layout(nodes, gpus, f"er1-{uuid.uuid4().hex[:8]}", secrets.token_hex(32))
        self._group = placement_group([{"GPU": gpus, "CPU": 1}] * nodes, strategy="STRICT_SPREAD")
        actor_class: Any = _Reservation
        self._actors = [
            actor_class.options(
                num_gpus=gpus,
                num_cpus=1,
                max_concurrency=2,
                scheduling_strategy=PlacementGroupSchedulingStrategy(self._group, rank),
            ).remote(rank, self._layout)
            for rank in range(nodes)
        ]

    def answers(self, deadline: float) -> bool:
        """Whether all actors have started before `deadline`."""
        addresses = [actor.address.remote() for actor in self._actors]
        while time.monotonic() < deadline:
            answered, missing = ray.wait(addresses, num_returns=len(addresses), timeout=_POLL_S)
            try:
                ray.get(answered)
            except RayError:
                return False
            if not missing:
                return True
        return False

    def run(self, command: list[str], source: str, folder: Path, keys: Any) -> list[Any]:
        """Start EasyR1, and return for each machine an object reference to the exit status of its part.

        The first machine's is the exit status of `command`.
        """
        address = self._actors[0].address.remote()
        return [
            actor.run.remote(command, source, folder / log_of(rank), address, [keys])
            for rank, actor in enumerate(self._actors)
        ]

    def end(self) -> None:
        """End EasyR1, wait until it is gone so that the GPUs' memory is free, and release the GPUs."""
        ended = [actor.end.remote() for actor in self._actors]
        ray.wait(ended, num_returns=len(ended), timeout=_END_S)
        for actor in self._actors:  # this also ends EasyR1 where an actor was too slow
            ray.kill(actor)
        remove_placement_group(self._group)


@dataclass(frozen=True, slots=True)
class _Layout:
    """What EasyR1's Ray cluster looks like; the same on all machines."""

    nodes: int
    gpus: int  # on each machine
    # The name of the temporary folder. It is the same on all machines, because a machine that joins a Ray uses the
    # first one's path, and short, because Ray puts sockets into the folder.
    name: str
    token: str  # for EasyR1's Ray, if its version supports tokens

    def command(self, rank: int, address: str, command: list[str]) -> list[str]:
        """The command of machine `rank`, so that `command` runs on a Ray cluster of all machines."""
        if self.nodes == 1:
            return command
        script = [command[0], str(Path(__file__).with_name("nodes.py"))]
        if rank == 0:
            return [*script, "head", address, str(self.nodes), str(self.gpus), *command]
        return [*script, "member", address, str(self.gpus), ray.util.get_node_ip_address()]


@ray.remote(max_restarts=0)
class _Reservation:
    """Holds one machine's GPUs, and runs EasyR1's part on them."""

    def __init__(self, rank: int, layout: _Layout) -> None:
        self._rank, self._layout = rank, layout
        self._process: subprocess.Popen[str] | None = None
        self._ended = threading.Event()

    def end(self) -> None:
        """End EasyR1, and return when all its processes are gone."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()  # child.py ends everything when its standard input closes
            self._ended.wait()

    def address(self) -> str:
        """HOST:PORT of this machine, with a free port on which a Ray can start."""
        with socket.socket() as listener:
            listener.bind(("", 0))
            return f"{ray.util.get_node_ip_address()}:{listener.getsockname()[1]}"

    def run(self, command: list[str], source: str, log: Path, address: str, keys: list[Any]) -> int:
        """Run this machine's part of EasyR1 until it ends, and return its exit status. Killing this actor ends it too.

        `keys` holds one object reference to environment variables. It is a list because Ray would resolve a reference
        that is passed as an argument itself.
        """
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "PYTHON"))}
        temporary = Path(tempfile.gettempdir()) / self._layout.name
        environment = {
            **inherited,
            **ray.get(keys[0]),
            "RAY_ADDRESS": "local",
            "RAY_TMPDIR": str(temporary),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self._layout.token,
            "PYTHONPATH": os.pathsep.join([source, str(_ROOT)]),
            "HF_HUB_OFFLINE": "1",
        }
        command = self._layout.command(self._rank, address, command)
        child = [sys.executable, str(Path(__file__).with_name("child.py")), str(log), *command]
        temporary.mkdir(mode=0o700, exist_ok=True)
        with subprocess.Popen(
            child, env=environment, cwd=source, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            self._process = process
            output = process.stdout.read() if process.stdout else ""
        shutil.rmtree(temporary, ignore_errors=True)
        self._ended.set()
        return int(output or -1)


def log_of(rank: int) -> str:
    """The name of the log file of machine `rank`; the first machine's is the log of EasyR1 itself."""
    return "easyr1.log" if rank == 0 else f"machine_{rank}.log"
