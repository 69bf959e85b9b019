"""`coevo runs log` and the API's route of a run's log."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest
from fastapi.testclient import TestClient

from orchestrator.installation.home import Home
from orchestrator.reporting.run_log import recorded, say
from services.api.app import PREFIX, create_app
from services.api.installation import Installation
from storage import queries
from storage.session import Store
from tests.commands import coevo
from tests.synthetic_run import create

HOSTILE = "\x1b[2J<img src=x onerror=alert(1)> [bold]not markup[/bold]\nsecond line"


@pytest.fixture
def store(home: Home, sqlite: Store) -> Store:
    with sqlite.write() as session:
        create(session, "demo")
    with recorded(home, "demo", 1, "evaluate"):
        say("evaluate 1: pass@1 57.4%")
        logging.getLogger("a").warning("%s", HOSTILE)
    return sqlite


@pytest.mark.usefixtures("store")
def test_the_log_is_printed_as_text_and_as_json_and_its_absence_is_no_error(home: Home) -> None:
    text = coevo("runs", "log", "demo").stdout
    assert "INFO    evaluate 1: pass@1 57.4%" in text
    assert " [2J<img src=x onerror=alert(1)> [bold]not markup[/bold]\n  second line" in text
    assert "\x1b[2J" not in text
    [last] = coevo("runs", "log", "demo", "--lines", "1", "--json").stdout.splitlines()
    assert json.loads(last)["message"] == HOSTILE
    assert "\x1b" not in last
    (home.run_logs / "demo.log").unlink()
    nothing = coevo("runs", "log", "demo")
    assert (nothing.stdout, f"has no log in {home.run_logs}" in nothing.stderr) == ("", True)


def test_a_log_is_followed_until_the_run_ends(home: Home, store: Store) -> None:
    with store.write() as session:
        queries.runs.set_run_status(session, "demo", "running")
    command = [sys.executable, "-m", "orchestrator.cli", "runs", "log", "demo", "--follow", "--lines", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = [process.stdout.readline() for _ in range(3)]
        assert "pass@1 57.4%" in first[0]
        with recorded(home, "demo", 2, "evaluate"):
            for number in range(5):  # more than --lines, between two looks at the log
                say(f"evaluate 2: pass@1 6{number}.1%")
        for number in range(5):
            assert f"evaluate 2: pass@1 6{number}.1%" in process.stdout.readline()
        with store.write() as session:
            queries.runs.set_run_status(session, "demo", "done")
        assert process.stdout.read() == ""
        assert process.wait(60) == 0


def test_the_api_answers_the_last_lines_of_the_log(home: Home, store: Store) -> None:
    here = Installation(run_logs=home.run_logs)
    api = TestClient(create_app(store, home.exports, ask_for_keys=False, installation=here), "http://localhost")
    [warning] = api.get(f"{PREFIX}/runs/demo/log", params={"lines": 1}).json()
    assert (warning["level"], warning["stage"], warning["message"]) == ("WARNING", "evaluate", HOSTILE)
    assert api.get(f"{PREFIX}/runs/nobody/log").status_code == 404
    assert api.get(f"{PREFIX}/runs/demo/log", params={"lines": 501}).status_code == 422
    elsewhere = TestClient(create_app(store, home.exports, ask_for_keys=False), "http://localhost")
    assert elsewhere.get(f"{PREFIX}/runs/demo/log").json() == []
