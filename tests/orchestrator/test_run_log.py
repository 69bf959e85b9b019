"""What a stage says goes to the terminal, to the run's file and to Prefect's logs, without secrets."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core import logs
from core.errors import CoevoError
from orchestrator.installation.home import Home
from orchestrator.reporting import run_log
from storage.files.run_logs import LogEvent, last_events
from tests.live import wait_until
from tests.logging_process import console
from tests.services.prefect_server import AUTH, post

LIBRARY = logging.getLogger("some.library")


@pytest.fixture(autouse=True)
def _console() -> Iterator[None]:
    """This process logs as that of `coevo run` does."""
    with console("run"):
        yield


def events(home: Home) -> list[LogEvent]:
    return last_events(home.run_logs, "demo", 100)


def test_lines_and_warnings_of_a_stage_are_kept_in_the_run_s_file(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    with run_log.recorded(home, "demo", 2, "evaluate"):
        LIBRARY.info("of no interest")
        LIBRARY.warning("the service is slow")
        logging.getLogger("prefect.client").error("Prefect logs this itself")
        thread = threading.Thread(target=LIBRARY.error, args=("from another thread",))
        thread.start()
        thread.join()
        run_log.say("evaluate 2: pass@1 57.4%")
    LIBRARY.warning("after the stage")
    kept = [(event.iteration, event.stage, event.level, event.message) for event in events(home)]
    assert kept == [
        (2, "evaluate", "WARNING", "the service is slow"),
        (2, "evaluate", "ERROR", "from another thread"),
        (2, "evaluate", "INFO", "evaluate 2: pass@1 57.4%"),
    ]
    err = capsys.readouterr().err
    said = [json.loads(line)["message"] for line in err.splitlines()]
    assert said[-2:] == ["evaluate 2: pass@1 57.4%", "after the stage"]


def test_secrets_are_hidden_in_the_file_and_in_the_terminal(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JUDGE_API_KEY", "plain-words-of-a-key")
    api_key = home.api_key
    with run_log.recorded(home, "demo", 1, "audit_labels"):
        LIBRARY.warning("refused: %s and %s", os.environ["JUDGE_API_KEY"], api_key)
        run_log.say("asked https://ann:hunter22@example.org with plain-words-of-a-key")
    # Prefect stores and shows the error itself.
    with (
        pytest.raises(CoevoError, match=r"^ValueError: no answer with \[secret\]$") as raised,
        run_log.recorded(home, "demo", 1, "audit_labels"),
    ):
        raise ValueError(f"no answer with {os.environ['JUDGE_API_KEY']}")
    assert raised.value.__suppress_context__
    written = (home.run_logs / "demo.log").read_text() + capsys.readouterr().err
    assert written.count("[secret]") >= 5
    for secret in ("plain-words-of-a-key", api_key, "hunter22"):
        assert secret not in written


def test_what_is_said_cannot_command_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(logs.VARIABLE, "text")
    with console("run"):
        run_log.say("the judge said \x1b[2J")
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith("the judge said  [2J")


def test_a_failure_is_logged_with_its_traceback_only_if_it_is_a_bug(home: Home) -> None:
    for error in (CoevoError("dataset.band: no question was kept"), ValueError("a bug"), KeyboardInterrupt()):
        with pytest.raises(type(error)), run_log.recorded(home, "demo", 1, "train_solver"):
            raise error
    expected, bug, interrupted = events(home)
    assert (expected.level, "Traceback" in expected.message) == ("ERROR", False)
    assert expected.message.endswith(": CoevoError: dataset.band: no question was kept")
    assert (bug.level, bug.message.splitlines()[1]) == ("ERROR", "Traceback (most recent call last):")
    assert bug.message.endswith("ValueError: a bug")
    assert (interrupted.level, "train_solver 1 was interrupted after" in interrupted.message) == ("WARNING", True)


def test_a_long_traceback_keeps_its_end_from_a_whole_line_on(home: Home) -> None:
    def even(depth: int) -> None:
        if depth == 0:
            raise ValueError("a bug")
        odd(depth - 1)

    def odd(depth: int) -> None:  # a second function, because a traceback leaves out frames that repeat
        even(depth - 1)

    with pytest.raises(ValueError, match="a bug"), run_log.recorded(home, "demo", 1, "train_solver"):
        even(200)
    [bug] = events(home)
    _, cut, first, *_, last = bug.message.splitlines()
    assert (cut, last) == ("[…]", "ValueError: a bug")
    assert first.startswith("  ")


# As in `coevo run`, where Prefect's own messages in the terminal begin at WARNING.
_FLOW = """
import logging, os, threading
os.environ["PREFECT_LOGGING_LEVEL"] = "WARNING"
from prefect import flow, task
from core import logs
from orchestrator.reporting import run_log
from orchestrator.installation.home import home

logs.configure("run")

@task
def stage():
    with run_log.recorded(home(), "demo", 2, "evaluate"):
        thread = threading.Thread(target=logging.getLogger("some.library").warning, args=("hf_0123456789abcdef",))
        thread.start()
        thread.join()
        run_log.say("evaluate 2: pass@1 57.4%")

@flow
def run():
    stage()

run()
"""


def run_with_prefect(program: str, home: Path, url: str) -> subprocess.CompletedProcess[str]:
    variables = {"PREFECT_API_URL": f"{url}/api", "PREFECT_API_AUTH_STRING": AUTH, "COEVO_HOME": str(home)}
    environment = {**os.environ, **variables, "PREFECT_HOME": str(home / "prefect")}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_prefect_s_logs_of_the_task_run_have_the_same_lines(tmp_path: Path, prefect_url: str) -> None:
    done = run_with_prefect(_FLOW, tmp_path, prefect_url)
    assert done.stderr.count("evaluate 2: pass@1 57.4%") == 1

    [flow_run] = post(prefect_url, "/flow_runs/filter", flows={"name": {"any_": ["run"]}})
    of_run = {"flow_run_id": {"any_": [flow_run["id"]]}}

    def logged() -> list[dict[str, Any]]:
        rows = post(prefect_url, "/logs/filter", logs=of_run, sort="TIMESTAMP_ASC")
        return [row for row in rows if row["name"] in ("orchestrator.reporting.run_log", "some.library")]

    wait_until(lambda: len(logged()) == 2, "Prefect to store both lines", 60)
    warning, line = logged()
    assert (warning["level"], warning["message"]) == (logging.WARNING, "hf_[secret]")
    assert (line["level"], line["message"]) == (logging.INFO, "evaluate 2: pass@1 57.4%")
    assert warning["task_run_id"] == line["task_run_id"] is not None


_REFUSED_FLOW = """
from orchestrator.flows import co_evolve

co_evolve("mistyped", preset="dmeo")
"""


def test_a_typo_in_the_preset_is_one_line_in_prefect_s_logs(tmp_path: Path, prefect_url: str) -> None:
    assert run_with_prefect(_REFUSED_FLOW, tmp_path, prefect_url).returncode == 1
    flow_runs = post(prefect_url, "/flow_runs/filter", flows={"name": {"any_": ["co-evolve"]}})
    [flow_run] = [row for row in flow_runs if row["name"] == "mistyped"]
    complaint = "RunError: preset: 'dmeo': no such preset (did you mean demo?); expected one of demo, demo-long"
    assert complaint in flow_run["state"]["message"]

    def errors() -> list[str]:
        of_run = {"flow_run_id": {"any_": [flow_run["id"]]}, "level": {"ge_": logging.ERROR}}
        return [row["message"] for row in post(prefect_url, "/logs/filter", logs=of_run)]

    wait_until(lambda: bool(errors()), "Prefect to store the line", 60)
    [line] = errors()
    assert complaint in line
    assert "Traceback" not in line
