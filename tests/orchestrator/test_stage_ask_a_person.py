"""What Prefect's form tells the person who decides how a paused run goes on."""

from __future__ import annotations

import re
from dataclasses import asdict

import pytest
from sqlalchemy import update

from core.statistics.decline import Fall
from core.statistics.guard import Alarm, Guard, iteration_alarms
from core.types import Stage, StageKey
from orchestrator.reporting.results import stage_result
from orchestrator.stages.ask_a_person import description
from services.drift.series import refresh
from storage import queries
from storage.models import Stages
from storage.session import Store
from tests.synthetic_run import fill_run

PAGE = "http://127.0.0.1:8080/runs/r/3"
WARNING = "no better Solver for 3 iterations on micro: the best is iteration 2"


@pytest.fixture
def store(sqlite: Store) -> Store:
    """A run of three iterations, the last of which is worse than the second, with alarms after the last."""
    fill_run(sqlite, "r")
    guard = Guard(actions={"decline": "pause", "ill_posed": "pause"})
    guard = guard.model_copy(update={"decline_points": 0.005, "ill_posed_share": 0.02})
    fall = Fall(now=0.63, best=0.66, n=1_020, p=0.0004, limit=0.002)
    alarms = iteration_alarms(guard, fall, {"ill_posed_share": 0.05})
    step = Alarm("no_entropy", "pause", 0.04, 0.06, 7, "step 7: the policy's entropy is 0.04")
    texts = [alarm.text for alarm in alarms]
    health = {"alarms": [asdict(alarm) for alarm in (*alarms, step)], "warnings": [*texts, step.text, WARNING]}
    with sqlite.write() as session:
        for t in (1, 2, 3):
            refresh(session, "r", t)
        of_health = (Stages.run == "r", Stages.iteration == 3, Stages.stage == "check_health")
        session.execute(update(Stages).where(*of_health).values(result={**health, "action": "pause"}))
    return sqlite


def described(store: Store, page: str = PAGE) -> str:
    with store.read() as session:
        return description(session, "r", 3, page)


def test_each_alarm_is_shown_with_the_threshold_that_it_crossed(store: Store) -> None:
    lines = described(store).splitlines()
    assert lines[0] == f"**Run r is paused after iteration 3.** [Iteration 3 on the dashboard]({PAGE})"
    assert lines[2:4] == ["Why:", ""]
    # What each alarm is about, and its threshold.
    expected = (("decline", "63.0%", "0.5 points"), ("ill_posed", "5%", "2%"), ("no_entropy", "0.04", "0.06 nats"))
    for line, (alarm, said, limit) in zip(lines[4:7], expected, strict=True):
        assert re.fullmatch(rf"- \*\*{alarm}\*\*: .*{said}.*; it is an alarm if .*{limit}.*", line)
    assert lines[7:9] == [f"- {WARNING}", ""]
    assert "dashboard" not in described(store, "")


def test_the_figures_of_the_iteration_and_of_the_one_to_go_back_to_have_n_and_intervals(store: Store) -> None:
    lines = described(store).splitlines()
    stages: tuple[tuple[int, Stage, int], ...] = ((3, "evaluate", 11), (3, "audit_labels", 12), (2, "evaluate", 13))
    with store.read() as session:
        for t, stage, at in stages:
            row = queries.ledger.find_stage(session, run="r", iteration=t, stage=stage)
            assert row is not None
            assert row.result is not None
            shown = stage_result(session, StageKey("r", t, stage), row.result).line
            assert "(n = " in shown
            assert lines[at] == f"- iteration {t}: {shown}"


def test_the_answers_say_to_which_iteration_they_lead(store: Store) -> None:
    go_on, back, stop = described(store).splitlines()[-3:]
    for line, words in (
        (go_on, "go on.* iteration 3"),
        (back, "roll back.* iteration 2"),
        (stop, "stop.* iteration 2"),
    ):
        assert re.match(rf"- \*\*{words}", line)
