"""Campaigns on a scripted loop: a kill costs nothing but the batch at work, and a planted bug is seen."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from core.processes.faultpoints import FAULT_POINTS
from orchestrator.installation.home import Home
from tests.chaos import campaign
from tests.chaos.forks import in_a_fork
from tests.chaos.scripted_loop import campaign_on, outcome_with

pytestmark = pytest.mark.heavy

OF_TRAINERS = {"training begun", "weights written", "weights swapped"}  # the scripted loop has a fake training


SEEN_AS = {
    "publish_in_place": "CheckpointError",
    "key_without_meaning": "evaluations: a row is too many",
    "seed_of_the_process": "a row is missing",
    "write_without_a_fence": "usage: a row is too many",
    "done_before_written": "rollouts: a row is missing",
    "begun_once": "FileExistsError: somebody creates the run",
}


def test_nothing_is_lost_when_a_run_is_killed_or_suspended_again_and_again(tmp_path: Path) -> None:
    outcome = in_a_fork(campaign_on, tmp_path, 40)
    assert outcome["violations"] == []
    assert outcome["kills"] == 40
    assert {*outcome["by_victim"]} == {"driver", "suspended"}
    assert outcome["max_redone_batches"] == 1
    assert {*outcome["not_killed_at"]} == OF_TRAINERS
    assert {*outcome["killed_at"]} == {*FAULT_POINTS}


@pytest.mark.slow
@pytest.mark.parametrize("bug", SEEN_AS)
def test_a_planted_bug_is_seen(bug: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    def is_seen(outcome: dict[str, Any]) -> bool:
        return any(SEEN_AS[bug] in violation for violation in outcome["violations"])

    # Which of two processes writes first is chance: a campaign may miss `write_without_a_fence`, but not five in a row.
    outcomes = (in_a_fork(outcome_with, bug, tmp_path_factory.mktemp("bug")) for _ in range(5))
    assert any(map(is_seen, outcomes))


def _message_of_a_hanging_run(folder: Path) -> str:
    def hang(_own_processes: bool) -> None:
        print("it hangs here", flush=True)
        time.sleep(600)

    pytest.MonkeyPatch().setattr(campaign, "PATIENCE_S", 0.2)  # in this process only
    chaos = campaign.Campaign(Home(folder), folder, hang, kills=1, seed=0, victims=(), report=print)
    with pytest.raises(campaign.ChaosError) as raised:
        chaos.run()
    with pytest.raises(ChildProcessError):  # no process is left
        os.waitpid(-1, os.WNOHANG)
    return str(raised.value)


def test_a_first_run_that_hangs_is_killed_and_the_message_has_its_last_lines(tmp_path: Path) -> None:
    message = in_a_fork(_message_of_a_hanging_run, tmp_path)
    assert message.startswith("the run hangs although nothing was killed:\nit hangs here\n")
