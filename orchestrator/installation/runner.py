"""The process that runs flows which are triggered from the Prefect UI or its API.

`coevo up` starts it beside Ray. Where `$COEVO_RAY_ADDRESS` says that Ray is elsewhere, this is a container of its own:
it becomes a node of that Ray which offers nothing, since a driver needs a node of the cluster on its own machine, and
a Prefect worker takes flow runs from the work pool of deploy/prefect.yaml.
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
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectNotFound

from core.errors import CoevoError
from orchestrator.flows import co_evolve, iteration, self_train
from orchestrator.installation.cluster import trouble_with_prefect
from orchestrator.installation.home import ROOT, Services, home
from orchestrator.installation.orphans import end_orphans, worker_name
from storage.session import open_store

POOL = "coevo"
DEPLOYMENTS = ROOT / "deploy" / "prefect.yaml"
_LIMIT = 4  # flow runs at a time; those beyond it wait
_BIN = Path(sys.executable).parent
_PATIENCE_S = 300.0
_POLL_S = 0.2
_GRACE_S = 20.0  # a Prefect worker that is asked to end may hang


def main() -> None:
    """Run what is triggered until a signal ends it, or until a part of it ends by itself: then the exit status is 1."""
    if os.environ.get("COEVO_RAY_ADDRESS"):
        _run_elsewhere(Services.from_environment())
    else:
        _run_beside_ray()


def _run_beside_ray() -> None:
    server = home().services().prefect
    while trouble_with_prefect(server):  # both are started at once; `coevo up` loses patience, and ends this process
        time.sleep(_POLL_S)
    _end_orphans(None)
    deployments = [
        co_evolve.to_deployment(name="coevo", description=co_evolve.description, tags=["coevo"]),
        self_train.to_deployment(name="coevo", description=self_train.description, tags=["coevo"]),
        iteration.to_deployment(name="coevo", description=iteration.description, tags=["coevo"]),
    ]
    serve(*cast(list[RunnerDeployment], deployments), limit=cast(Any, _LIMIT))


def _run_elsewhere(services: Services) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    join = ["ray", "start", f"--address={services.ray_address}", "--num-cpus=0", "--num-gpus=0"]
    join += ["--metrics-export-port=8080", "--block"]
    with _process(*join) as node:
        _start_serve(services, node)
        register()
        _end_orphans(worker_name())
        # The flow run's own process is a child of the worker, so what the environment says reaches it.
        start = ["prefect", "worker", "start", f"--pool={POOL}", f"--name={worker_name()}", "--type=process"]
        with _process(*start, "--with-healthcheck") as worker:
            while node.poll() is None and worker.poll() is None:
                time.sleep(1)
    raise SystemExit("the runner's Ray node or its Prefect worker ended")


def _end_orphans(worker: str | None) -> None:
    store = open_store(home().database, create=True)
    for name in end_orphans(store, worker):
        print(f"flow run {name}: its process is gone, so it is ended; `coevo resume` goes on with the run", flush=True)
    store.close()


def _start_serve(services: Services, node: subprocess.Popen[bytes]) -> None:
    """Start Serve without applications once this node has joined, to listen where other containers reach it: the first
    start decides that, and `orchestrator.serving.checkpoints` puts the applications in. One that runs is left as it
    is."""
    port = urlsplit(services.serve_url).port or 80
    command = [str(_BIN / "serve"), "start", f"--address={services.ray_address}", "--proxy-location=HeadOnly"]
    deadline = time.monotonic() + _PATIENCE_S
    while subprocess.run([*command, "--http-host=0.0.0.0", f"--http-port={port}"], check=False).returncode:
        if node.poll() is not None or time.monotonic() > deadline:
            raise CoevoError(f"no Ray node and no Serve here for {services.ray_address}; see what they said above")


def register() -> None:
    """Make the work pool where there is none, and register the deployments of deploy/prefect.yaml with Prefect.

    A pool that exists keeps its concurrency limit. Raises `subprocess.CalledProcessError`.
    """
    with get_client(sync_client=True) as client:
        try:
            client.read_work_pool(POOL)
        except ObjectNotFound:
            client.create_work_pool(WorkPoolCreate(name=POOL, type="process", concurrency_limit=_LIMIT))
    deploy = [str(_BIN / "prefect"), "--no-prompt", "deploy", "--all", f"--prefect-file={DEPLOYMENTS}"]
    subprocess.run(deploy, cwd=ROOT, check=True)


@contextmanager
def _process(program: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """One of the environment's programs, ended with the block."""
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
