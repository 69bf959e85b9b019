"""GPUs on machines of our Ray, and EasyR1's processes on them.

One actor on each machine holds its GPUs and runs EasyR1's part there, in EasyR1's own environment, with a Ray of its
own. When an actor goes, what it started goes, however it went (child.py), and the GPUs are free.
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

PATIENCE_S = 900.0  # for machines; a replaced one has to start, and to fetch its image
_ROOT = Path(__file__).resolve().parents[2]
_POLL_S = 0.5
_END_S = 40.0  # child.py gives all that EasyR1 started twice ten seconds


def reserve(nodes: int, gpus: int) -> Reserved | None:
    """None where Ray does not give them in time. One that is lost Ray gives for a while yet; then another may come."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        reserved, there = Reserved(nodes, gpus), False
        try:
            if there := reserved.answers(deadline):
                return reserved
        finally:
            if not there:
                reserved.end()
        time.sleep(_POLL_S)
    return None


class Reserved:
    """GPUs on machines of Ray's, so many on each; EasyR1's own Ray begins on the first."""

    def __init__(self, nodes: int, gpus: int) -> None:
        self._layout = _Layout(nodes, gpus, f"er1-{uuid.uuid4().hex[:8]}", secrets.token_hex(32))
        self._group = placement_group([{"GPU": gpus, "CPU": 1}] * nodes, strategy="STRICT_SPREAD")
        actor: Any = _Reservation
        self._each = [
            actor.options(
                num_gpus=gpus,
                num_cpus=1,
                max_concurrency=2,
                scheduling_strategy=PlacementGroupSchedulingStrategy(self._group, rank),
            ).remote(rank, self._layout)
            for rank in range(nodes)
        ]

    def answers(self, deadline: float) -> bool:
        """Whether all of them are there, and in time."""
        asked = [bundle.address.remote() for bundle in self._each]
        while time.monotonic() < deadline:
            there, missing = ray.wait(asked, num_returns=len(asked), timeout=_POLL_S)
            try:
                ray.get(there)
            except RayError:
                return False
            if not missing:
                return True
        return False

    def run(self, command: list[str], source: str, folder: Path, keys: Any) -> list[Any]:
        """Start EasyR1; for each machine what becomes its exit status, the first's that of `command`."""
        address = self._each[0].address.remote()
        return [
            bundle.run.remote(command, source, folder / log_of(rank), address, [keys])
            for rank, bundle in enumerate(self._each)
        ]

    def end(self) -> None:
        """End EasyR1, wait until it is gone, and give the GPUs back: whoever has them next needs their memory."""
        ended = [bundle.end.remote() for bundle in self._each]
        ray.wait(ended, num_returns=len(ended), timeout=_END_S)  # lost or too slow: to kill them ends EasyR1 too
        for bundle in self._each:
            ray.kill(bundle)
        remove_placement_group(self._group)


@dataclass(frozen=True, slots=True)
class _Layout:
    nodes: int
    gpus: int
    name: str  # of a temporary folder, the same on all machines: where one joins a Ray it takes the first's. Short, as
    # Ray puts sockets below it
    token: str  # of EasyR1's Ray, where that knows tokens

    def command(self, rank: int, address: str, command: list[str]) -> list[str]:
        """What one machine runs, so that EasyR1 starts on a Ray that all make up together."""
        if self.nodes == 1:
            return command
        begin = [command[0], str(Path(__file__).with_name("nodes.py"))]
        if rank == 0:
            return [*begin, "head", address, str(self.nodes), str(self.gpus), *command]
        return [*begin, "member", address, str(self.gpus), ray.util.get_node_ip_address()]


@ray.remote(max_restarts=0)
class _Reservation:
    """Holds one machine's GPUs, and runs EasyR1's part on them."""

    def __init__(self, rank: int, layout: _Layout) -> None:
        self._rank, self._layout = rank, layout
        self._process: subprocess.Popen[str] | None = None
        self._over = threading.Event()

    def end(self) -> None:
        """End EasyR1, and return when all of it is gone."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._over.wait()

    def address(self) -> str:
        """Where a Ray may begin here: HOST:PORT."""
        with socket.socket() as listener:
            listener.bind(("", 0))
            return f"{ray.util.get_node_ip_address()}:{listener.getsockname()[1]}"

    def run(self, command: list[str], source: str, log: Path, address: str, keys: list[Any]) -> int:
        """The exit status. Blocks; whoever kills this actor ends EasyR1."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "PYTHON"))}
        temporary = Path(tempfile.gettempdir()) / self._layout.name
        environment = {
            **clean,
            **ray.get(keys[0]),  # in a list Ray passes it on as it is
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
        self._over.set()
        return int(output or -1)


def log_of(rank: int) -> str:
    """The file that a machine's part writes to; the first's is EasyR1's own."""
    return "easyr1.log" if rank == 0 else f"machine_{rank}.log"
