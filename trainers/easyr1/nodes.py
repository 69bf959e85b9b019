"""Starts one Ray cluster over several machines for EasyR1. EasyR1's own Python runs this on each machine.

    nodes.py head ADDRESS NODES GPUS COMMAND…    starts the cluster, waits for all machines, runs the command
    nodes.py member ADDRESS GPUS HOST            joins the cluster and stays in it

ADDRESS is the head's HOST:PORT, GPUS the number of GPUs that each machine contributes, and HOST the member's own host.
This script does not end the Ray processes that it started; its parent, child.py, does.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys

import ray

from core.waiting.polling import wait_until

_PATIENCE_S = 300.0
_RAY = [sys.executable, "-m", "ray.scripts.scripts", "start", "--disable-usage-stats"]


def head(address: str, nodes: int, gpus: int, command: list[str]) -> int:
    """Start a Ray cluster, wait for `nodes` machines with `gpus` GPUs each, and run the command on it.

    Returns the command's exit status. Raises `TimeoutError` if machines are missing after five minutes.
    """
    host, port = address.rsplit(":", 1)
    options = ["--head", f"--port={port}", "--include-dashboard=false", f"--ray-client-server-port={_free_port()}"]
    subprocess.run([*_RAY, *options, *_common_options(host, gpus)], check=True)
    os.environ["RAY_ADDRESS"] = address
    ray.init(logging_level=logging.WARNING)

    joined = 0

    def all_have_joined() -> bool:
        nonlocal joined
        joined = sum(node["Resources"].get("GPU", 0) >= gpus for node in ray.nodes() if node["Alive"])
        return joined >= nodes

    if not wait_until(all_have_joined, _PATIENCE_S, 0.5):
        raise TimeoutError(
            f"EasyR1's Ray: expected {nodes} machines with {gpus} GPUs, {joined} joined within {_PATIENCE_S:g} s"
        )
    ray.shutdown()
    return subprocess.run(command, check=False).returncode


def member(address: str, gpus: int, host: str) -> int:
    """Join the Ray cluster at `address`, and return the exit status when this machine's part of it has ended."""

    def head_answers() -> bool:
        head_host, port = address.rsplit(":", 1)
        try:
            socket.create_connection((head_host, int(port)), timeout=5).close()
        except OSError:
            return False
        return True

    if not wait_until(head_answers, _PATIENCE_S, 0.5):
        raise TimeoutError(f"EasyR1's Ray: nothing answers at {address} after {_PATIENCE_S:g} s")
    options = [f"--address={address}", "--block", *_common_options(host, gpus)]
    return subprocess.run([*_RAY, *options], check=False).returncode


def _common_options(host: str, gpus: int) -> list[str]:
    """The options of `ray start` for head and members.

    The ports are free ones, because `ray start` would otherwise take those of our Ray on the same machine.
    """
    ports = ["--min-worker-port=0", "--max-worker-port=0", f"--dashboard-agent-listen-port={_free_port()}"]
    return [f"--node-ip-address={host}", f"--num-gpus={gpus}", *ports]


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("", 0))
        return int(listener.getsockname()[1])


def main(role: str, *arguments: str) -> int:
    """Run `head` or `member`, as `role` says, and return its exit status."""
    if role == "head":
        address, nodes, gpus, *command = arguments
        return head(address, int(nodes), int(gpus), command)
    address, gpus, host = arguments
    return member(address, int(gpus), host)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
