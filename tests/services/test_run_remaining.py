"""The remaining time of a run in the store: which runs it is based on, and how the API and `coevo status` say it."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import update
from typer.testing import CliRunner

from core.settings.config import CoEvolution
from core.statistics.remaining import Remaining
from orchestrator.cli import app
from orchestrator.installation.home import Home
from orchestrator.ledger import owner
from orchestrator.plan import plan
from orchestrator.progress import time_left
from services.api.app import PREFIX, create_app
from services.remaining import range_text, remaining_at
from storage import queries
from storage.models import Runs, Stages
from storage.session import Store, open_store
from tests.synthetic_run import START, create, fill_run, finish


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home with the finished run `before`, and `now`, which is at its first training and twice as slow."""
    monkeypatch.setenv("COEVO_HOME", str(tmp_path))
    monkeypatch.delenv("COEVO_DATABASE", raising=False)
    home = Home(tmp_path)
    store = open_store(home.database, create=True)
    fill_run(store, "before")
    with store.write() as session:
        create(session, "now")
        queries.runs.set_run_status(session, "now", "running")
        finish(session, "now", 0, "evaluate", {}, 98.0)
        queries.run_leases.claim_run(session, run="now", owner=owner(), lease_seconds=60)
        queries.ledger.claim_stage(
            session, run="now", iteration=1, stage="train_challenger", owner=owner(), lease_seconds=60
        )
    return home


def remaining(home: Home, run: str) -> dict[str, object]:
    store = open_store(home.database)
    with store.write() as session:  # the stage began a minute ago
        begun = queries.tables.database_time(session) - timedelta(seconds=60)
        session.execute(update(Stages).where(Stages.status == "running").values(started_at=begun))
    api = create_app(store, home.exports, ask_for_keys=False, planned=plan)
    answer: dict[str, object] = TestClient(api, "http://localhost").get(f"{PREFIX}/runs/{run}/remaining").json()
    return answer


def test_a_finished_run_of_the_same_preset_tells_how_long_another_takes(home: Home) -> None:
    answer = remaining(home, "now")
    assert (answer["iteration"], answer["stage"], answer["similar"]) == (1, "train_challenger", ["before"])
    of_stage, of_run = answer["of_stage"], answer["of_run"]
    assert isinstance(of_stage, dict)
    assert isinstance(of_run, dict)
    # It took 38 s, give or take a tenth, so here twice that; a minute has passed.
    assert of_stage["low"] == 0
    assert 2 * 34 * 1.5 - 61 <= of_stage["high"] <= 2 * 42 * 1.5 - 59
    assert of_run["low"] > of_stage["high"]
    assert answer["unknown"] is None
    done = remaining(home, "before")
    assert (done["of_run"], done["unknown"]) == (None, "all stages are done")


def test_the_terminal_of_a_run_has_the_remaining_time_of_its_stage(home: Home) -> None:
    store = open_store(home.database)
    with store.read() as session:
        config = queries.runs.config_of_run(session, "now")
    assert re.fullmatch(r"\d+ to \d+ (s|min) left", time_left(store, "now", config))
    assert time_left(store, "before", config) == ""


def test_a_run_of_another_preset_or_that_has_not_ended_tells_nothing(home: Home) -> None:
    with open_store(home.database).write() as session:
        queries.runs.set_run_status(session, "before", "failed")
    answer = remaining(home, "now")
    assert (answer["similar"], answer["of_stage"], answer["of_run"]) == ([], None, None)
    assert "how long train_challenger of iteration 1 takes" in str(answer["unknown"])


def test_the_first_stage_that_nothing_is_known_of_is_named(sqlite: Store) -> None:
    with sqlite.write() as session:
        create(session, "r")
        finish(session, "r", 0, "evaluate", {}, 10.0)
    with sqlite.read() as session:
        stages = queries.ledger.stages_of(session, "r")
    answer = remaining_at(START, stages, [(1, "evaluate"), (1, "train_solver"), (2, "train_solver")], {})
    assert (answer.of_stage is None, answer.of_run) == (False, None)
    assert answer.unknown is not None
    assert "train_solver of iteration 1 " in answer.unknown


def test_an_interrupted_stage_does_not_count(sqlite: Store) -> None:
    with sqlite.write() as session:
        create(session, "r")
        for t, took in ((0, 10.0), (1, 1.0)):
            finish(session, "r", t, "evaluate", {}, took)
        session.execute(update(Stages).where(Stages.iteration == 1).values(attempt=2))
    with sqlite.read() as session:
        stages = queries.ledger.stages_of(session, "r")
    answer = remaining_at(START, stages, [(0, "evaluate"), (1, "evaluate"), (2, "evaluate")], {})
    assert answer.of_stage is not None
    assert answer.of_stage.low == pytest.approx(10 / 1.5)  # from the evaluation of the base model only


def test_the_time_of_a_stage_ends_with_the_lease_of_its_process(sqlite: Store) -> None:
    with sqlite.write() as session:
        create(session, "r")
        finish(session, "r", 0, "evaluate", {}, 10.0)
        queries.ledger.claim_stage(session, run="r", iteration=1, stage="evaluate", owner="dead", lease_seconds=60)
        times = {"started_at": START, "lease_expires": START + timedelta(seconds=4)}
        session.execute(update(Stages).where(Stages.iteration == 1).values(times))
    with sqlite.read() as session:
        stages = queries.ledger.stages_of(session, "r")
    answer = remaining_at(START + timedelta(days=1), stages, [(0, "evaluate"), (1, "evaluate")], {})
    assert answer.of_stage is not None
    assert answer.of_stage.low == pytest.approx(10 / 1.5 - 4)


def test_status_shows_the_range(home: Home) -> None:
    remaining(home, "now")  # sets when the stage began
    result = CliRunner().invoke(app, ["status"], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    [row] = [line for line in result.stdout.splitlines() if line.split()[:1] == ["now"]]
    assert re.search(r" \d+ to \d+ min ", row), row


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (0, 20, "0 to 20 s"),
        (20.2, 20.4, "20 s"),
        (100, 200, "2 to 3 min"),
        (3600, 9000, "1 to 2 h"),
        (0, 1e6, "0 to 278 h"),
    ],
)
def test_a_range_has_the_unit_of_its_upper_end(low: float, high: float, text: str) -> None:
    assert range_text(Remaining(low, high)) == text


def test_a_run_of_another_version_is_refused_with_the_setting(sqlite: Store, tmp_path: Path) -> None:
    with sqlite.write() as session:
        config = queries.runs.create_run(session, name="r", config=CoEvolution()).config
        session.execute(update(Runs).values(config={**config, "newer": 1}))
    api = TestClient(
        create_app(sqlite, tmp_path, ask_for_keys=False), "http://localhost", raise_server_exceptions=False
    )
    answer = api.get(f"{PREFIX}/runs/r/remaining")
    assert (answer.status_code, "newer: unknown setting" in answer.json()["detail"]) == (409, True)


def test_a_run_without_a_plan_has_no_remaining_time(sqlite: Store, tmp_path: Path) -> None:
    with sqlite.write() as session:
        queries.runs.create_run(session, name="r", config=CoEvolution())
    api = TestClient(create_app(sqlite, tmp_path, ask_for_keys=False), "http://localhost")
    answer = api.get(f"{PREFIX}/runs/r/remaining").json()
    assert (answer["of_run"], answer["unknown"]) == (None, "this server does not know the stages of runs")
