"""The log of a run as a file: what was written is read again, and the file stays small."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from pathlib import Path

from hypothesis import given
from hypothesis.strategies import text

from core.logs import JsonLines, Subject, working_on
from core.texts.redaction import without_secrets
from storage.files.run_logs import LogEvent, events_in, last_events, log_file, log_path

TIME = datetime(2026, 3, 1, 9, 0, 0, 123456, tzinfo=UTC)


def record(message: str) -> logging.LogRecord:
    made = logging.LogRecord("test", logging.INFO, "", 0, message, None, None)
    made.created = TIME.timestamp()
    return made


def event(message: str, iteration: int = 1) -> LogEvent:
    return LogEvent(TIME, "demo", iteration, "evaluate", "INFO", message)


def line(message: str) -> str:
    with working_on(Subject("demo", 1, "evaluate")):
        return JsonLines().format(record(message))


def write(folder: Path, messages: list[str]) -> None:
    """Log each message in an iteration of its own."""
    handler = log_file(folder, "demo")
    for i, message in enumerate(messages):
        with working_on(Subject("demo", i, "evaluate")):
            handler.emit(record(message))
    handler.close()


@given(message=text(max_size=200))
def test_any_message_is_one_line_and_is_read_as_it_was(message: str) -> None:
    written = line(message)
    assert not {"\n", "\r"} & set(written)
    [read] = events_in([written])
    assert read == event(without_secrets(message))


def test_the_last_events_are_read_in_their_order(tmp_path: Path) -> None:
    write(tmp_path, [f"line {i}" for i in range(30)])
    assert [event.message for event in last_events(tmp_path, "demo", 3)] == ["line 27", "line 28", "line 29"]
    assert last_events(tmp_path, "another", 3) == []


def test_a_line_that_a_crash_cut_off_is_passed_over(tmp_path: Path) -> None:
    whole = line("whole")
    log_path(tmp_path, "demo").write_text(f"{whole[:40]}\n{whole}\n[1, 2]\n" + whole.replace('"INFO"', '"LOUD"'))
    assert last_events(tmp_path, "demo", 10) == [event("whole")]


def test_the_lines_of_an_earlier_version_are_read_too(tmp_path: Path) -> None:
    earlier = {"time": TIME.isoformat(), "run": "demo", "iteration": 1, "stage": "evaluate", "level": "INFO"}
    log_path(tmp_path, "demo").write_text(json.dumps({**earlier, "message": "whole"}) + "\n")
    assert last_events(tmp_path, "demo", 10) == [event("whole")]


def test_the_log_takes_at_most_three_megabytes_and_loses_its_oldest_lines(tmp_path: Path) -> None:
    write(tmp_path, ["x" * 3_000] * 1_500)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 3_000_000
    kept = last_events(tmp_path, "demo", 2_000)
    assert [event.iteration for event in kept] == [*range(1_500 - len(kept), 1_500)]
    assert len(kept) > 600
