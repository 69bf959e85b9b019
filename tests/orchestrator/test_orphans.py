"""Flow runs whose process has ended, on a real Prefect server with a real worker that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.objects import State, StateType
from prefect.states import Cancelling, Pending, Running

from core.settings.parsing import load_config
from orchestrator.installation.home import PRESETS, ROOT
from orchestrator.ledger import owner
from orchestrator.runner.orphans import end_orphans, worker_name
from storage import queries
from storage.session import Store
from tests.live import wait_until
from tests.services.prefect_server import AUTH

FLOWS = """
import signal
from prefect import flow
from orchestrator.reporting.flow_process import note_process

@flow(flow_run_name="below")
def below():
    signal.pause()

@flow(flow_run_name="{run}")
def above(run: str):
    note_process()
    below()
"""
DEAD = owner().rpartition(":")[0] + ":1"  # an earlier process with this process's pid
ELSEWHERE = "another-host:7:1"
REPLACED = owner().partition("@")[0] + "@an-earlier-container:7:1"  # its lease has ended


MINE, OTHER = worker_name(), "another-host"
# Run -> the state of its flow run, its worker and the flow run's process (None: it was not recorded yet), the holder of
# the run's lease; then, after the orphans were ended, the flow run's state and the run's status.
FLOW_RUNS: dict[str, tuple[State[Any], str, str | None, str | None, StateType, str]] = {
    "killed": (Running(), MINE, DEAD, DEAD, StateType.CRASHED, "failed"),
    "asked": (Cancelling(), MINE, DEAD, None, StateType.CANCELLED, "cancelled"),
    "alive": (Running(), MINE, owner(), owner(), StateType.RUNNING, "running"),
    "elsewhere": (Running(), OTHER, ELSEWHERE, ELSEWHERE, StateType.RUNNING, "running"),
    "waiting": (Pending(), MINE, None, None, StateType.CRASHED, "failed"),
    "theirs": (Pending(), OTHER, None, None, StateType.PENDING, "running"),
    "goes-on": (Running(), MINE, DEAD, ELSEWHERE, StateType.CRASHED, "running"),  # another machine works on it
    "replaced": (Running(), MINE, REPLACED, None, StateType.CRASHED, "failed"),
}


@pytest.fixture
def store(sqlite: Store) -> Store:
    with sqlite.write() as session:
        for name in FLOW_RUNS:
            queries.runs.create_run(session, name=name, config=load_config(PRESETS / "demo.toml"), preset="demo")
            queries.runs.set_run_status(session, name, "running")
    return sqlite


def flow_run(prefect: SyncPrefectClient, run: str, state: State[Any], worker: str, process: str | None) -> UUID:
    """Create a flow run of the server's deployment, in a state in which a worker or a flow would have left it."""
    deployment = prefect.read_deployment_by_name("co-evolve/co-evolve")
    created = prefect.create_flow_run_from_deployment(deployment.id, parameters={"run": run}, name=run)
    prefect.update_flow_run(created.id, infrastructure_pid="1")
    labels = {"prefect.worker.name": worker, **({"coevo.process": process} if process else {})}
    prefect.update_flow_run_labels(created.id, labels)
    prefect.set_flow_run_state(created.id, state, force=True)
    return created.id


def state_of(prefect: SyncPrefectClient, flow_run: UUID) -> StateType | None:
    return prefect.read_flow_run(flow_run).state_type


def test_flow_runs_of_dead_processes_are_ended_and_no_others(prefect: SyncPrefectClient, store: Store) -> None:
    flow_runs = {run: flow_run(prefect, run, *row[:3]) for run, row in FLOW_RUNS.items()}
    again = flow_run(prefect, "goes-on", Running(), OTHER, ELSEWHERE)
    holders = {run: row[3] for run, row in FLOW_RUNS.items() if row[3]}
    with store.write() as session:
        for run, holder in holders.items():
            queries.run_leases.claim_run(session, run=run, owner=holder, lease_seconds=600)
    assert sorted(end_orphans(store, MINE)) == ["asked", "goes-on", "killed", "replaced", "waiting"]
    with store.read() as session:
        leases = {run: queries.run_leases.run_holder(session, run) for run in holders}
        statuses = {row.name: row.status for row in queries.runs.list_runs(session)}
    assert {run: lease and lease.owner for run, lease in leases.items()} == {**holders, "killed": None}
    assert {run: state_of(prefect, id_) for run, id_ in flow_runs.items()} == {
        r: row[4] for r, row in FLOW_RUNS.items()
    }
    assert statuses == {run: row[5] for run, row in FLOW_RUNS.items()}
    assert state_of(prefect, again) == StateType.RUNNING


def test_a_killed_worker_s_flow_run_is_ended_with_its_subflow(
    prefect: SyncPrefectClient, store: Store, tmp_path: Path
) -> None:
    (tmp_path / "flows_of_the_test.py").write_text(FLOWS)
    prefect.create_work_pool(WorkPoolCreate(name="test", type="process"))
    deployment = prefect.create_deployment(
        prefect.create_flow_from_name("above"),
        name="test",
        path=str(tmp_path),
        entrypoint="flows_of_the_test.py:above",
        work_pool_name="test",
    )
    above = prefect.create_flow_run_from_deployment(deployment, parameters={"run": "killed"})
    prefect_settings = {"PREFECT_API_URL": str(prefect.api_url), "PREFECT_API_AUTH_STRING": AUTH}
    env = {**os.environ, **prefect_settings, "PYTHONPATH": str(ROOT)}
    start = [Path(sys.executable).parent / "prefect", "worker", "start", "--pool=test", f"--name={worker_name()}"]
    with (tmp_path / "worker.log").open("w") as log:
        worker = subprocess.Popen([*start, "--type=process"], env=env, stdout=log, stderr=log)
    try:
        wait_until(
            lambda: _running_flow_run(prefect, "below") is not None,
            f"the flow to begin; see {tmp_path}/worker.log",
            120,
        )
    finally:
        for process in [*psutil.Process(worker.pid).children(recursive=True), psutil.Process(worker.pid)]:
            process.send_signal(signal.SIGKILL)
        worker.wait()
    below = _running_flow_run(prefect, "below")
    assert below is not None
    assert (state_of(prefect, above.id), state_of(prefect, below)) == (StateType.RUNNING, StateType.RUNNING)
    assert end_orphans(store, worker_name()) == ["killed"]
    assert (state_of(prefect, above.id), state_of(prefect, below)) == (StateType.CRASHED, StateType.CRASHED)


def _running_flow_run(prefect: SyncPrefectClient, name: str) -> UUID | None:
    """The flow run of this name that is running."""
    flow_runs = prefect.read_flow_runs()
    running = [run for run in flow_runs if run.name == name and run.state_type == StateType.RUNNING]
    return running[0].id if running else None
