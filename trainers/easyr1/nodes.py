"""One Ray over several machines, for EasyR1: run by EasyR1's own Python, with its Ray, on each of them.

    nodes.py head ADDRESS NODES GPUS COMMAND…    starts it, waits until all machines are there, runs the command
    nodes.py member ADDRESS GPUS HOST            joins, and stays

ADDRESS is the head's HOST:PORT, GPUS what every machine gives, HOST the member's own. Whoever runs this ends what it
leaves behind: child.py.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys

import ray

from core.waiting import wait_until

_PATIENCE_S = 300.0
_RAY = [sys.executable, "-m", "ray.scripts.scripts", "start", "--disable-usage-stats"]


def head(address: str, nodes: int, gpus: int, command: list[str]) -> int:
    """Start a Ray, wait for `nodes` machines of `gpus` each, run the command on it; its exit status."""
    host, port = address.rsplit(":", 1)
    own = ["--head", f"--port={port}", "--include-dashboard=false", f"--ray-client-server-port={_free_port()}"]
    subprocess.run([*_RAY, *own, *_of_any(host, gpus)], check=True)
    os.environ["RAY_ADDRESS"] = address
    ray.init(logging_level=logging.WARNING)

    joined = 0

    def all_have_joined() -> bool:
        nonlocal joined
        joined = sum(node["Resources"].get("GPU", 0) >= gpus for node in ray.nodes() if node["Alive"])
        return joined >= nodes

    if not wait_until(all_have_joined, _PATIENCE_S, 0.5):
        raise TimeoutError(f"{nodes} machines of {gpus} GPUs expected, {joined} came within {_PATIENCE_S:g} s")
    ray.shutdown()
    return subprocess.run(command, check=False).returncode


def member(address: str, gpus: int, host: str) -> int:
    """Join the Ray at `address`, and stay for as long as this machine's part of it lives."""
    if not wait_until(lambda: _answers(address), _PATIENCE_S, 0.5):
        raise TimeoutError(f"no Ray at {address} within {_PATIENCE_S:g} s")
    joining = [f"--address={address}", "--block", *_of_any(host, gpus)]
    return subprocess.run([*_RAY, *joining], check=False).returncode


def _of_any(host: str, gpus: int) -> list[str]:
    """Ports that no other Ray on this machine has: ours is there too, and `ray start` would take the same."""
    ports = ["--min-worker-port=0", "--max-worker-port=0", f"--dashboard-agent-listen-port={_free_port()}"]
    return [f"--node-ip-address={host}", f"--num-gpus={gpus}", *ports]


def _answers(address: str) -> bool:
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError:
        return False
    return True


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("", 0))
        return int(listener.getsockname()[1])


def main(role: str, *rest: str) -> int:
    """The exit status."""
    if role == "head":
        address, nodes, gpus, *command = rest
        return head(address, int(nodes), int(gpus), command)
    address, count, host = rest
    return member(address, int(count), host)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
