"""Every process logs one line an event, as JSON or as text, without secrets, and says what it works on."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

from core import logs
from core.errors import CoevoError
from core.texts.redaction import hide
from tests.logging_process import console

LIBRARY = logging.getLogger("some.library")


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_a_line_has_all_fields(capsys: pytest.CaptureFixture[str]) -> None:
    with console("flow"):
        LIBRARY.warning("slow: %d s", 3)
        with logs.working_on(logs.Subject("demo", 2, "evaluate")):
            thread = threading.Thread(target=LIBRARY.error, args=("lost",))  # its threads say so too
            thread.start()
            thread.join()
        logging.getLogger("orchestrator.x").info("ours")
        LIBRARY.info("of no interest")
        LIBRARY.warning("of a run", extra={"run": "other"})
    slow, lost, ours, other = lines(capsys)
    assert list(slow) == ["time", "level", "process", "pid", "logger", "run", "iteration", "stage", "message"]
    assert slow["time"].endswith("+00:00")
    of_library = {"process": "flow", "pid": os.getpid(), "logger": "some.library"}
    assert slow == {**slow, **of_library, "level": "WARNING", "run": None, "stage": None, "message": "slow: 3 s"}
    assert lost == {**lost, "level": "ERROR", "run": "demo", "iteration": 2, "stage": "evaluate", "message": "lost"}
    assert (ours["level"], ours["message"]) == ("INFO", "ours")
    assert (other["run"], other["stage"]) == ("other", None)


def test_secrets_are_hidden_in_messages_and_tracebacks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGE_TOKEN", "words-of-the-environment")
    monkeypatch.setenv("COEVO_DATABASE", "postgresql://coevo:words-of-an-address@db/coevo")
    hide(["words-of-a-file"])
    with console("api"):
        LIBRARY.warning("%s, %s, %s", "words-of-the-environment", "words-of-an-address", "words-of-a-file")
        try:
            raise ValueError("words-of-the-environment")
        except ValueError:
            LIBRARY.exception("failed")
    message, failed = (line["message"] for line in lines(capsys))
    assert message == "[secret], [secret], [secret]"
    assert failed.startswith("failed\nTraceback (most recent call last):\n")
    assert failed.endswith("ValueError: [secret]")


def test_a_long_message_loses_its_middle(capsys: pytest.CaptureFixture[str]) -> None:
    with console("api"):
        LIBRARY.warning("begin%send", "x" * 100_000)
    [line] = lines(capsys)
    assert (line["message"][:5], line["message"][-3:]) == ("begin", "end")
    assert len(line["message"]) <= logs.LONGEST_MESSAGE
    assert logs.shortened("x" * logs.LONGEST_MESSAGE) == "x" * logs.LONGEST_MESSAGE


def test_text_is_for_people(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(logs.VARIABLE, "text")
    with console("run"), logs.working_on(logs.Subject("demo", 2, "evaluate")):
        LIBRARY.warning("a model's text: \x1b[2J\nand more")
    first, second = capsys.readouterr().err.splitlines()
    assert first[19:] == " WARNING demo: a model's text:  [2J"
    assert second == "and more"


@pytest.mark.parametrize(
    ("is_terminal", "variable", "expected"), [(False, "", "json"), (True, "", "text"), (True, "json", "json")]
)
def test_the_format_is_json_outside_of_a_terminal_unless_the_environment_names_one(
    is_terminal: bool, variable: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(logs.VARIABLE, variable)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal, raising=False)
    assert logs.format_of_process() == expected
    monkeypatch.setenv(logs.VARIABLE, "xml")
    with pytest.raises(CoevoError, match=r"^COEVO_LOG_FORMAT: "):
        logs.format_of_process()


def test_warnings_of_python_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings(), console("api"):
        warnings.simplefilter("always")
        warnings.warn("old", FutureWarning, stacklevel=1)
    [line] = lines(capsys)
    assert (line["level"], line["logger"], "FutureWarning: old" in line["message"]) == ("WARNING", "py.warnings", True)


_FAILING = """
import threading
from core import logs
logs.configure("runner", ["words-of-a-file"])
thread = threading.Thread(target=lambda: [][1])
thread.start()
thread.join()
raise ValueError("words-of-a-file")
"""


def test_errors_that_nothing_catches_are_lines() -> None:
    done = subprocess.run([sys.executable, "-c", _FAILING], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    in_thread, at_end = map(json.loads, done.stderr.splitlines())
    assert in_thread["message"].endswith("IndexError: list index out of range")
    assert at_end["message"].endswith("ValueError: [secret]")
    assert (at_end["process"], at_end["level"]) == ("runner", "ERROR")


_PREFECT = """
import logging
from prefect import flow
logging.getLogger("prefect.engine").error("of %s", "hf_0123456789abcdef")
logging.getLogger("uvicorn").error("of uvicorn")
from core import logs
logs.configure("flow")
logging.getLogger("prefect.engine").error("once")
logging.getLogger("uvicorn").error("once")
"""


def test_prefect_s_own_processes_log_in_the_same_form(tmp_path: Path) -> None:
    """Without its console's variable, Prefect would write text, and its lines twice after `configure`."""
    environment = {**os.environ, **logs.prefect_variables(), "PREFECT_HOME": str(tmp_path)}
    command = [sys.executable, "-c", _PREFECT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    written = [json.loads(line) for line in done.stderr.splitlines()]
    assert [(line["process"], line["logger"], line["message"]) for line in written] == [
        ("prefect", "prefect.engine", "of hf_[secret]"),
        ("prefect", "uvicorn", "of uvicorn"),
        ("flow", "prefect.engine", "once"),
        ("flow", "uvicorn", "once"),
    ]


def test_records_for_handlers_of_others_lose_their_secrets() -> None:
    hide(["words-of-a-file"])
    try:
        raise ValueError("words-of-a-file")
    except ValueError:
        record = logging.LogRecord("ray.serve", logging.ERROR, "", 0, "%s", ("words-of-a-file",), sys.exc_info())
    assert logs.take_secrets_out(record)
    written = logging.Formatter().format(record)
    assert written.startswith("[secret]\nTraceback")
    assert written.endswith("ValueError: [secret]")
