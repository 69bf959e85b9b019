"""What Prefect's hooks do when a flow run was cancelled or its process died."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator import processes
from orchestrator.flows import co_evolve
from orchestrator.home import Home
from orchestrator.ledger import owner, refuse_held
from storage import queries
from storage.session import Store, open_store
from tests.synthetic_run import create


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A run that is at work."""
    monkeypatch.setenv("COEVO_HOME", str(tmp_path))
    monkeypatch.delenv("COEVO_DATABASE", raising=False)
    opened = open_store(Home(tmp_path).database, create=True)
    with opened.write() as session:
        create(session, "r")
        queries.set_run_status(session, "r", "running")
    return opened


def _status_after_a_cancellation(store: Store) -> str:
    [hook] = co_evolve.on_cancellation_hooks
    hook(co_evolve, SimpleNamespace(parameters={"run": "r"}), None)  # type: ignore[arg-type]
    with store.read() as session:
        return queries.get_run(session, "r").status


def test_a_cancelled_flow_run_marks_the_run_that_it_worked_on_and_no_other(store: Store) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        name = f"{owner().split(':')[0]}:{other.pid}:{processes.started(other.pid):.0f}"
        with store.write() as session:
            queries.claim_run(session, run="r", owner=name, lease_seconds=600)
        # One that waited, say, while this other process works on the run.
        assert _status_after_a_cancellation(store) == "running"
        other.kill()
        other.wait()
        assert _status_after_a_cancellation(store) == "cancelled"
    refuse_held(store, "r")  # nobody has it any more
