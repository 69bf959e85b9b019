"""The runner of a container, with a real Prefect server and fake programs for Ray, Serve and Prefect's worker."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from orchestrator.installation import runner

ENDS_ONCE_THE_OTHER_RUNS = 'until [ -s "{other}" ]; do sleep 0.05; done'
STAYS = 'echo $$ > "{own}"; exec sleep 600'


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in which the runner looks for its programs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setattr(runner, "_BIN", folder)
    monkeypatch.setenv("COEVO_HOME", str(tmp_path))
    monkeypatch.delenv("COEVO_DATABASE", raising=False)
    for name in (
        "COEVO_RAY_ADDRESS",
        "COEVO_RAY_DASHBOARD_URL",
        "COEVO_SERVE_URL",
        "PREFECT_API_URL",
        "RAY_AUTH_TOKEN",
    ):
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
