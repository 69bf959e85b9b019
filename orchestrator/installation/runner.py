"""The flow runner: the process that runs flows which are triggered in the Prefect UI or through its API.

`coevo up` starts it on the machine of Ray. If `$COEVO_RAY_ADDRESS` says that Ray is elsewhere, the runner is a separate
container. It then joins that Ray as a node without resources, since a driver needs a node of the cluster on its own
machine, and a Prefect worker takes flow runs from the work pool of deploy/prefect.yaml.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from prefect import serve
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.exceptions import ObjectNotFound

from core.errors import CoevoError
from orchestrator.installation.deployments import remove_former, served
from orchestrator.installation.home import ROOT, Services, home
from orchestrator.installation.orphans import end_orphans, worker_name
from orchestrator.installation.reachable import problem_with_prefect
from storage.session import open_store

POOL = "coevo"
DEPLOYMENTS = ROOT / "deploy" / "prefect.yaml"
_LIMIT = 4  # flow runs at a time; others wait
_BIN = Path(sys.executable).parent
_PATIENCE_S = 300.0
_POLL_S = 0.2
_GRACE_S = 20.0  # a Prefect worker that is told to end may hang; then it is killed


def main() -> None:
    """Run triggered flows until a signal comes. If a part of the runner ends by itself, the exit status is 1."""
    if os.environ.get("COEVO_RAY_ADDRESS"):
        _run_elsewhere(Services.from_environment())
    else:
        _run_beside_ray()


def _run_beside_ray() -> None:
    server = home().services().prefect
    while problem_with_prefect(server):  # `coevo up` starts both at once and stops this process if it waits too long
        time.sleep(_POLL_S)
    _end_orphans(None)
    with get_client(sync_client=True) as client:
        remove_former(client)
    serve(*served(), limit=cast(Any, _LIMIT))


def _run_elsewhere(services: Services) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    join_ray = ["ray", "start", f"--address={services.ray_address}", "--num-cpus=0", "--num-gpus=0"]
    join_ray += ["--metrics-export-port=8080", "--block"]
    with _process(*join_ray) as node:
        _start_serve(services, node)
        register()
        _end_orphans(worker_name())
        # The process of a flow run is a child of the worker, so it has the same environment.
        worker_command = ["prefect", "worker", "start", f"--pool={POOL}", f"--name={worker_name()}", "--type=process"]
        with _process(*worker_command, "--with-healthcheck") as worker:
            while node.poll() is None and worker.poll() is None:
                time.sleep(1)
    raise SystemExit("the runner's Ray node or its Prefect worker ended")


def _end_orphans(worker: str | None) -> None:
    store = open_store(home().database, create=True)
    for name in end_orphans(store, worker):
        print(f"flow run {name} was ended, because its process is gone; `coevo resume` continues the run", flush=True)
    store.close()


def _start_serve(services: Services, node: subprocess.Popen[bytes]) -> None:
    """Start Serve without applications as soon as this node has joined Ray.

    The first start decides on which address Serve listens, and other containers must reach it.
    `orchestrator.serving.checkpoints` deploys the applications later. A running Serve is left as it is.
    """
    port = urlsplit(services.serve_url).port or 80
    command = [str(_BIN / "serve"), "start", f"--address={services.ray_address}", "--proxy-location=HeadOnly"]
    deadline = time.monotonic() + _PATIENCE_S
    while subprocess.run([*command, "--http-host=0.0.0.0", f"--http-port={port}"], check=False).returncode:
        if node.poll() is not None or time.monotonic() > deadline:
            raise CoevoError(f"Ray at {services.ray_address}: this node or Serve did not start; see their output above")


def register() -> None:
    """Create the work pool if it is missing, and register the deployments of deploy/prefect.yaml with Prefect.

    An existing pool keeps its concurrency limit. Raises `subprocess.CalledProcessError`.
    """
    with get_client(sync_client=True) as client:
        try:
            client.read_work_pool(POOL)
        except ObjectNotFound:
            client.create_work_pool(WorkPoolCreate(name=POOL, type="process", concurrency_limit=_LIMIT))
        deploy = [str(_BIN / "prefect"), "--no-prompt", "deploy", "--all", f"--prefect-file={DEPLOYMENTS}"]
        subprocess.run(deploy, cwd=ROOT, check=True)
        remove_former(client)


@contextmanager
def _process(program: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program of this Python environment, which is stopped at the end of the block."""
    process = subprocess.Popen([_BIN / program, *arguments])
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()


if __name__ == "__main__":
    main()
