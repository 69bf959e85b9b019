"""Campaigns on a scripted loop: a kill costs nothing but the batch at work, and a planted bug is seen."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from core.processes.faultpoints import FAULT_POINTS
from orchestrator.installation.home import ROOT

pytestmark = pytest.mark.heavy

OF_TRAINERS = {"training begun"}  # the scripted loop has a fake training


SEEN_AS = {
    "publish_in_place": "CheckpointError",
    "key_without_meaning": "evaluations: a row is too many",
    "seed_of_the_process": "a row is missing",
    "write_without_a_fence": "usage: a row is too many",
    "done_before_written": "rollouts: a row is missing",
    "begun_once": "FileExistsError: somebody creates the run",
}


def _campaign(folder: Path, kills: int, *bugs: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.chaos.scripted_loop", str(folder), str(kills), *bugs]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    outcome: dict[str, Any] = json.loads(result.stdout)
    return outcome


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Bug -> what a campaign sees of it. One process plants them all, one after another, since its start takes time."""
    return _campaign(tmp_path_factory.mktemp("bugs"), 1, *SEEN_AS)


def test_nothing_is_lost_when_a_run_is_killed_or_suspended_again_and_again(tmp_path: Path) -> None:
    outcome = _campaign(tmp_path, 40)
    assert outcome["violations"] == []
    assert outcome["kills"] == 40
    assert {*outcome["by_victim"]} == {"driver", "suspended"}
    assert outcome["max_redone_batches"] == 1
    assert {*outcome["not_killed_at"]} == OF_TRAINERS
    assert {*outcome["killed_at"]} == {*FAULT_POINTS}


@pytest.mark.slow
@pytest.mark.parametrize("bug", SEEN_AS)
def test_a_planted_bug_is_seen(outcomes: dict[str, Any], bug: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    def is_seen(outcome: dict[str, Any]) -> bool:
        return any(SEEN_AS[bug] in violation for violation in outcome["violations"])

    # Which of two processes writes first is chance: a campaign may miss `write_without_a_fence`, but not five in a row.
    again = (_campaign(tmp_path_factory.mktemp("again"), 1, bug)[bug] for _ in range(4))
    assert is_seen(outcomes[bug]) or any(map(is_seen, again)), outcomes[bug]


def test_a_first_run_that_hangs_is_killed_and_the_message_has_its_last_lines(tmp_path: Path) -> None:
    program = """if True:
        import os, sys, time
        from pathlib import Path
        from tests.chaos import campaign
        from orchestrator.installation.home import Home
        def hang(_own_processes):
            print("it hangs here", flush=True)
            time.sleep(600)
        campaign.PATIENCE_S, folder = 0.2, Path(sys.argv[1])
        chaos = campaign.Campaign(Home(folder), folder, hang, kills=1, seed=0, victims=(), report=print)
        try:
            chaos.run()
        except campaign.ChaosError as error:
            print(error)
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            print("no process is left")
    """
    command = [sys.executable, "-c", program, str(tmp_path)]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert printed.startswith("the run hangs although nothing was killed:\nit hangs here\n")
    assert printed.endswith("no process is left\n")
