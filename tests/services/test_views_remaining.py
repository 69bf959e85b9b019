"""The remaining time of a run in the store, and how the API and `coevo status` say it."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from local_api import local_api
from sqlalchemy import update
from typer.testing import CliRunner

from core.settings.config import CoEvolution
from orchestrator.cli import app
from orchestrator.installation.home import Home
from orchestrator.ledger import owner
from orchestrator.plan import LOOP, plan
from orchestrator.reporting.progress import time_left
from services.api.app import PREFIX
from services.views.remaining import Remaining, range_text, remaining_at
from storage import queries
from storage.models import Runs, Stages
from storage.session import Store, open_store
from tests.synthetic_run import CONFIG, START, create, fill_run, finish


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home with the finished run `before`, and `now`, which is in its second iteration."""
    monkeypatch.setenv("COEVO_HOME", str(tmp_path))
    monkeypatch.delenv("COEVO_DATABASE", raising=False)
    home = Home(tmp_path)
    store = open_store(home.database, create=True)
    fill_run(store, "before")
    with store.write() as session:
        create(session, "now")
        queries.runs.set_run_status(session, "now", "running")
        finish(session, "now", 0, "evaluate", {}, 98.0)
        for stage in LOOP:
            finish(session, "now", 1, stage, {}, 300.0)
        queries.run_leases.claim_run(session, run="now", owner=owner(), lease_seconds=60)
        key: dict[str, Any] = {"run": "now", "iteration": 2, "stage": "train_challenger", "owner": owner()}
        queries.ledger.claim_stage(session, **key, lease_seconds=60)
    return home


def remaining(home: Home, run: str) -> dict[str, Any]:
    store = open_store(home.database)
    with store.write() as session:  # the stage began a minute ago
        begun = queries.tables.database_time(session) - timedelta(seconds=60)
        session.execute(update(Stages).where(Stages.status == "running").values(started_at=begun))
    answer = local_api(store, home.exports, planned=plan).get(f"{PREFIX}/runs/{run}/remaining").json()
    return dict(answer)


def test_the_iterations_that_are_done_tell_how_long_the_run_takes(home: Home) -> None:
    answer = remaining(home, "now")
    assert (answer["iteration"], answer["stage"], answer["unknown"]) == (2, "train_challenger", None)
    assert answer["of_stage"]["mean"] == pytest.approx(240, abs=5)  # a minute of five has passed
    to_come = sum(t >= 2 for t, _ in plan(CONFIG))
    assert answer["of_run"]["mean"] == pytest.approx(300 * to_come - 60, abs=5)
    assert answer["of_run"]["low"] == answer["of_run"]["mean"] == answer["of_run"]["high"]  # one iteration is done
    done = remaining(home, "before")
    assert (done["of_run"], done["unknown"]) == (None, "all stages are done")


def test_the_terminal_of_a_run_has_the_remaining_time_of_its_stage(home: Home) -> None:
    store = open_store(home.database)
    with store.read() as session:
        config = queries.runs.config_of_run(session, "now")
    assert re.fullmatch(r"\d+ (s|min) left", time_left(store, "now", config))
    assert time_left(store, "before", config) == ""


@pytest.mark.parametrize(
    ("took", "interrupted", "expected"),
    [
        ({}, (), None),
        ({0: 30.0}, (), (30, 30, 30)),  # the base model's evaluation counts if nothing else is known
        ({0: 1.0, 1: 30.0}, (), (30, 30, 30)),
        ({0: 1.0, 1: 30.0, 2: 60.0}, (), (45, 30, 60)),
        ({0: 10.0, 1: 1.0}, (1,), (10, 10, 10)),  # the time of an interrupted stage is that of its last attempt only
    ],
)
def test_a_stage_takes_what_it_took_in_earlier_iterations(
    sqlite: Store, took: dict[int, float], interrupted: tuple[int, ...], expected: tuple[float, float, float] | None
) -> None:
    with sqlite.write() as session:
        create(session, "r")
        for t, seconds in took.items():
            finish(session, "r", t, "evaluate", {}, seconds)
        session.execute(update(Stages).where(Stages.iteration.in_(interrupted)).values(attempt=2))
        stages = queries.ledger.stages_of(session, "r")
    done = len(took)
    answer = remaining_at(START, stages, [(t, "evaluate") for t in range(done + 2)])
    assert (answer.iteration, answer.stage) == (done, "evaluate")
    assert answer.of_stage == (expected and Remaining(*map(float, expected)))
    assert answer.of_run == (expected and Remaining(*(2.0 * seconds for seconds in expected)))


def test_the_first_stage_that_nothing_is_known_of_is_named(sqlite: Store) -> None:
    with sqlite.write() as session:
        create(session, "r")
        finish(session, "r", 0, "evaluate", {}, 10.0)
        stages = queries.ledger.stages_of(session, "r")
    answer = remaining_at(START, stages, [(1, "evaluate"), (1, "train_solver"), (2, "train_solver")])
    assert (answer.of_stage is None, answer.of_run) == (False, None)
    assert "train_solver of iteration 1 " in (answer.unknown or "")


@pytest.mark.parametrize(
    ("later", "lease", "left"),
    [
        (0, 86_400, 10.0),
        (4, 86_400, 6.0),
        (3600, 86_400, 0.0),
        (86_400, 4, 6.0),  # the time of a stage ends with the lease of its process
    ],
)
def test_a_stage_has_its_time_less_what_has_passed(sqlite: Store, later: int, lease: int, left: float) -> None:
    """So many seconds after a second evaluation began, of which the first took 10 s."""
    with sqlite.write() as session:
        create(session, "r")
        finish(session, "r", 0, "evaluate", {}, 10.0)
        queries.ledger.claim_stage(session, run="r", iteration=1, stage="evaluate", owner="dead", lease_seconds=60)
        times = {"started_at": START, "lease_expires": START + timedelta(seconds=lease)}
        session.execute(update(Stages).where(Stages.iteration == 1).values(times))
        stages = queries.ledger.stages_of(session, "r")
    answer = remaining_at(START + timedelta(seconds=later), stages, [(0, "evaluate"), (1, "evaluate")])
    assert answer.of_stage == Remaining(left, left, left)


def test_status_shows_the_range(home: Home) -> None:
    remaining(home, "now")  # sets when the stage began
    result = CliRunner().invoke(app, ["status"], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    [row] = [line for line in result.stdout.splitlines() if line.split()[:1] == ["now"]]
    assert re.search(r" \d+ min ", row), row


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [(20.2, 20.4, "20 s"), (60, 100, "60 to 100 s"), (0, 200, "0 to 3 min"), (3600, 9000, "1 to 2 h")],
)
def test_a_range_has_the_unit_of_its_upper_end(low: float, high: float, text: str) -> None:
    assert range_text(low, high) == text


def test_a_run_of_another_version_and_one_without_a_plan_have_no_remaining_time(sqlite: Store, tmp_path: Path) -> None:
    with sqlite.write() as session:
        config = queries.runs.create_run(session, name="r", config=CoEvolution()).config
    api = local_api(sqlite, tmp_path)
    answer = api.get(f"{PREFIX}/runs/r/remaining").json()
    assert (answer["of_run"], answer["unknown"]) == (None, "this server does not know the stages of runs")
    with sqlite.write() as session:
        session.execute(update(Runs).values(config={**config, "newer": 1}))
    refused = api.get(f"{PREFIX}/runs/r/remaining")
    assert (refused.status_code, "newer: unknown setting" in refused.json()["detail"]) == (409, True)
