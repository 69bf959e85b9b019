"""The flow runner with a real Prefect server; in a container, with fake programs for Ray, Serve and the worker."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from orchestrator.installation.environment import environment
from orchestrator.installation.home import Home, Services
from orchestrator.installation.ports import free_port
from orchestrator.runner import process as runner
from tests.live import terminated, wait_until
from tests.services.prefect_server import AUTH, prefect_server

pytestmark = pytest.mark.heavy

ENDS_ONCE_THE_OTHER_RUNS = 'until [ -s "{other}" ]; do sleep 0.05; done'
STAYS = 'echo $$ > "{own}"; exec sleep 600'


@pytest.fixture
def programs(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in which the runner looks for its programs."""
    folder = home.path / "bin"
    folder.mkdir()
    monkeypatch.setattr(runner, "_BIN", folder)
    ray = ("COEVO_RAY_ADDRESS", "COEVO_RAY_DASHBOARD_URL", "COEVO_SERVE_URL", "RAY_AUTH_TOKEN")
    for name in (*ray, "PREFECT_API_URL"):
        monkeypatch.setenv(name, "http://elsewhere:1")
    before = signal.getsignal(signal.SIGTERM)
    yield folder
    signal.signal(signal.SIGTERM, before)


def _write(folder: Path, program: str, script: str) -> None:
    (folder / program).write_text(f"#!/bin/sh\n{script}\n")
    (folder / program).chmod(0o700)


@pytest.mark.usefixtures("prefect")
@pytest.mark.parametrize(("ends", "stays"), [("ray", "prefect"), ("prefect", "ray")])
def test_a_runner_fails_and_ends_the_other_process_when_its_ray_node_or_worker_ends(
    programs: Path, ends: str, stays: str
) -> None:
    pid = programs / "pid"
    scripts = {ends: ENDS_ONCE_THE_OTHER_RUNS.format(other=pid), stays: STAYS.format(own=pid)}
    _write(programs, "serve", "exit 0")
    _write(programs, "ray", scripts["ray"])
    # The runner also calls it to register deployments.
    _write(programs, "prefect", f'[ "$1" = worker ] || exit 0\n{scripts["prefect"]}')
    with pytest.raises(SystemExit, match="the runner's Ray node or its Prefect worker ended"):
        runner.main()
    assert not psutil.pid_exists(int(pid.read_text()))


def test_a_runner_beside_ray_outlives_a_restart_of_prefect(home: Home, tmp_path: Path) -> None:
    port, log, prefect = free_port(), tmp_path / "runner.log", tmp_path / "prefect"
    prefect.mkdir()
    address = f"http://127.0.0.1:{port}"
    services = Services("127.0.0.1:1", "http://127.0.0.1:1", "http://127.0.0.1:1", address, "", {}, prefect_auth=AUTH)
    home.save_services(services)

    def wait_for(lines: str, times: int) -> None:
        """Wait until the log has so many lines with one of the texts in the pattern `lines`."""

        def found() -> bool:
            return len(re.findall(lines, log.read_text())) >= times

        wait_until(lambda: found() or process.poll() is not None, f"{lines!r} in {log}")
        assert process.poll() is None, log.read_text()

    with log.open("w") as output:
        # The process begins again with the same arguments.
        program = "from orchestrator.runner import process as runner; runner._CHECK_S = 0.3; runner.main()"
        command = [sys.executable, "-c", program]
        process = subprocess.Popen(command, env=environment(home, services), stdout=output, stderr=output)
    with terminated(process):
        with prefect_server(prefect, port):
            wait_for("deployments are being served", 1)
        # If Prefect ends while the runner asks it for work, the runner begins again before its watch finds the outage.
        wait_for("Prefect does not answer|the flow runner begins again", 1)
        with prefect_server(prefect, port):
            wait_for("deployments are being served", 2)


def test_a_runner_begins_again_if_prefect_ends_while_it_looks_for_orphans(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(_worker: str | None) -> None:
        raise httpx.ConnectError("no Prefect")

    begun_again = list[bool]()
    home.save_services(Services("a:1", "http://a:2", "http://a:3", "http://a:4", "", {}))
    monkeypatch.setattr(runner, "problem_with_prefect", lambda _server: "")
    monkeypatch.setattr(runner, "_end_orphans", ended)
    monkeypatch.setattr(runner, "_begin_again", lambda: begun_again.append(True))
    runner._run_beside_ray()
    assert begun_again == [True]
