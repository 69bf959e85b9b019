"""The flow runner: the process that runs flows which are triggered in the Prefect UI or through its API.

`coevo up` starts it on the machine of Ray, where it outlives a restart of Prefect. If `$COEVO_RAY_ADDRESS` says that
Ray is elsewhere, the runner is a separate container. It then joins that Ray as a node without resources, since a driver
needs a node of the cluster on its own machine, and a Prefect worker takes flow runs from the work pool of
deploy/prefect.yaml.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, NoReturn, cast
from urllib.parse import urlsplit

import httpx
import psutil
from prefect import serve
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.exceptions import ObjectNotFound

from core import logs
from core.errors import CoevoError
from orchestrator.installation.home import ROOT, Services, home
from orchestrator.installation.reachable import problem_with_prefect
from orchestrator.runner.deployments import served
from orchestrator.runner.flow_run_process import use_for_flow_runs
from orchestrator.runner.orphans import end_orphans, worker_name
from services.prefect.server import PrefectServer
from storage.session import open_store

_log = logging.getLogger("orchestrator.runner.process")  # __name__ is "__main__" in the process itself
POOL = "coevo"
DEPLOYMENTS = ROOT / "deploy" / "prefect.yaml"
_LIMIT = 4  # flow runs at a time; others wait
_BIN = Path(sys.executable).parent
_PATIENCE_S = 300.0
_POLL_S = 0.2
_CHECK_S, _OUTAGE_CHECKS = 3.0, 3  # seconds between two checks of Prefect; failed checks that are an outage
_GRACE_S = 20.0  # a Prefect worker that is told to end may hang; then it is killed


def main() -> None:
    """Run triggered flows until a signal comes. If a part of the runner ends by itself, the exit status is 1."""
    logs.configure("runner", home().secrets())
    if os.environ.get("COEVO_RAY_ADDRESS"):
        _run_elsewhere(Services.from_environment())
    else:
        _run_beside_ray()


def _run_beside_ray() -> None:
    server, pause_s = home().services().prefect, _POLL_S
    while problem_with_prefect(server):  # `coevo up` starts both at once, and Prefect may be started again at any time
        time.sleep(pause_s)
        pause_s = min(1.2 * pause_s, _CHECK_S)
    try:
        _end_orphans(None)
        Thread(target=_begin_again_after_an_outage, args=(server,), daemon=True).start()
        use_for_flow_runs()
        serve(*served(), limit=cast(Any, _LIMIT))
    except* (RuntimeError, httpx.HTTPError):  # Prefect has ended again, or was away for some minutes
        _begin_again()


def _begin_again_after_an_outage(server: PrefectServer) -> None:
    """Watch Prefect, and begin again when it answers after an outage and no flow run is at work here.

    After three failed requests Prefect's runner no longer notices that a flow run shall be cancelled.
    """
    failed, was_away = 0, False
    while True:
        time.sleep(_CHECK_S)
        failed = failed + 1 if problem_with_prefect(server) else 0
        if failed == _OUTAGE_CHECKS:
            was_away = True
            _log.warning("Prefect does not answer; the flow runner waits for it")
        if was_away and not failed and not psutil.Process().children():
            _begin_again()


def _begin_again() -> NoReturn:
    """Replace this process by a new runner with the same pid, by which `coevo up` knows it."""
    _log.info("the flow runner begins again, since Prefect did not answer for a while")
    os.execv(sys.executable, sys.orig_argv)  # noqa: S606 (no shell is needed)


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
    with closing(open_store(home().database, create=True)) as store:
        for name in end_orphans(store, worker):
            _log.warning("flow run %s was ended, because its process is gone; `coevo resume` continues the run", name)


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
