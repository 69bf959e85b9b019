"""A fork of a real run without changes, started over REST, ends with the same rows and hashes as the run itself."""

from __future__ import annotations

import subprocess
from typing import Any

from orchestrator.verification.run import verify_run
from storage import queries
from tests.live import COEVO, Live, wait_until
from tests.orchestrator import whole_runs
from tests.orchestrator.whole_runs import WholeRun

RUN = "forked"
_KEYS = ("id", "model", "evaluation_id", "checkpoint_id")


def test_a_fork_without_changes_is_the_other_run_from_there_on(live: Live, whole_run: WholeRun) -> None:
    """It begins after iteration 0, the evaluation of the base model, and has made iteration 1."""
    at = f"{whole_run.name}:0"
    command = [COEVO, "runs", "start", "--from", at, "--name", RUN]
    subprocess.run(command, env=live.environment, capture_output=True, check=True)
    ends = {"done", "failed", "stopped", "cancelled"}
    wait_until(lambda: whole_runs.status(live, RUN) in ends, "the fork to end", 500)
    assert whole_runs.status(live, RUN) == "done"
    fork = _named(whole_runs.rows(live, RUN), whole_run.name)
    assert fork == {table: [*filter(_is_made, rows)] for table, rows in _named(whole_run.rows, whole_run.name).items()}
    assert whole_runs.texts(live, RUN) == whole_run.texts
    with live.store().read() as session:
        hashes = {
            run: [row.sha256 for row in queries.checkpoints.checkpoints_of(session, run)]
            for run in (whole_run.name, RUN)
        }
    assert hashes[RUN] == hashes[whole_run.name]
    assert not (live.home.checkpoints / RUN / "base").exists()
    verification = verify_run(live.home, live.store(), RUN)
    assert [violation for check in verification.checks for violation in check.violations] == []
    assert live.coevo("run", "--from", at, "--name", RUN).returncode == 0  # it is continued, and nothing is left to do
    assert live.coevo("runs", "delete", whole_run.name, "--yes").returncode == 1
    assert live.coevo("runs", "delete", RUN, "--yes").returncode == 0


def _named(rows: dict[str, list[Any]], run: str) -> dict[str, list[Any]]:
    """The rows of iterations, with one name for both runs. An alert's id is of its run's name, too."""
    return {
        table: sorted(
            tuple((name, value.replace(run, "RUN")) for name, value in row if table != "alerts" or name != "id")
            for row in of_table
        )
        for table, of_table in rows.items()
        if table not in ("runs", "inherited_iterations")
    }


def _is_made(row: Any) -> bool:
    """Whether the fork has made the row, which is neither of iteration 0 nor of the base model's evaluation."""
    of_base = any(name in _KEYS and "RUN/base/0" in value for name, value in row)
    return ("iteration", "0") not in row and not of_base
