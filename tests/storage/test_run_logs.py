"""The log of a run as a file: what was written is read again, and the file stays small."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path

from hypothesis import given
from hypothesis.strategies import text

from storage.run_logs import LONGEST_MESSAGE, LogEvent, as_line, events_in, last_events, log_file, log_path, shortened

TIME = datetime(2026, 3, 1, 9, 0, 0, 123456, tzinfo=UTC)


def event(message: str, number: int = 1) -> LogEvent:
    return LogEvent(TIME, "demo", number, "evaluate", "INFO", message)


def write(folder: Path, *lines: str) -> None:
    handler = log_file(folder, "demo")
    for line in lines:
        handler.emit(logging.LogRecord("test", logging.INFO, "", 0, line, None, None))
    handler.close()


@given(message=text(max_size=200))
def test_any_message_is_one_line_and_is_read_as_it_was(message: str) -> None:
    line = as_line(event(message))
    assert not {"\n", "\r"} & set(line)
    [read] = events_in([line])
    assert read == event(message)


def test_the_last_events_are_read_in_their_order(tmp_path: Path) -> None:
    write(tmp_path, *(as_line(event(f"line {i}", i)) for i in range(30)))
    assert [event.message for event in last_events(tmp_path, "demo", 3)] == ["line 27", "line 28", "line 29"]
    assert last_events(tmp_path, "another", 3) == []


def test_a_line_that_a_crash_cut_off_is_passed_over(tmp_path: Path) -> None:
    line = as_line(event("whole"))
    log_path(tmp_path, "demo").write_text(f"{line[:40]}\n{line}\n[1, 2]\n" + line.replace('"INFO"', '"LOUD"'))
    assert last_events(tmp_path, "demo", 10) == [event("whole")]


def test_the_log_takes_at_most_three_megabytes_and_loses_its_oldest_lines(tmp_path: Path) -> None:
    lines = [as_line(event("x" * 3_000, i)) for i in range(1_500)]
    write(tmp_path, *lines)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 3_000_000
    kept = last_events(tmp_path, "demo", 2_000)
    assert [event.iteration for event in kept] == [*range(1_500 - len(kept), 1_500)]
    assert len(kept) > 600


def test_a_long_message_loses_its_middle() -> None:
    message = "begin" + "x" * 100_000 + "end"
    assert (shortened(message)[:5], shortened(message)[-3:]) == ("begin", "end")
    assert len(shortened(message)) <= LONGEST_MESSAGE
    assert shortened("x" * LONGEST_MESSAGE) == "x" * LONGEST_MESSAGE
