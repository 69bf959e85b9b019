"""A campaign on real services."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from core.processes.faultpoints import FAULT_POINTS
from orchestrator.installation.home import ROOT
from tests.chaos import small_run
from tests.live import Live


@pytest.mark.slow
def test_kills_at_every_fault_point_lose_nothing(live: Live) -> None:
    """The first run is killed at every fault point. With --here, only processes of the campaign's runs are killed."""
    command = [sys.executable, "-m", "tests.chaos", "--kills", "32", "--here", "--json"]
    result = subprocess.run(command, cwd=ROOT, env=live.shell, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    outcome = json.loads(result.stdout)
    assert outcome["violations"] == []
    assert outcome["kills"] == 32
    assert {*outcome["by_victim"]} == {"driver", "suspended"}
    assert outcome["max_redone_batches"] == 1
    assert outcome["not_killed_at"] == []
    assert {*outcome["killed_at"]} == {*FAULT_POINTS}
    assert small_run.NAME not in live.coevo("runs", "list").stdout  # its flow runs are deleted too
