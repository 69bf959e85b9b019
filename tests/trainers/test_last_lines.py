"""The last lines of a training's logs are short, readable and without secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainers.last_lines import last_lines, log_last_lines


def test_only_the_end_is_taken_from_a_whole_line_on(tmp_path: Path) -> None:
    log = tmp_path / "easyr1.log"
    log.write_text("".join(f"line {i}\n" for i in range(100_000)) + "RuntimeError: out of memory\n")
    cut, first, *_, last = last_lines(log).splitlines()
    assert (cut, last) == ("[…]", "RuntimeError: out of memory")
    assert first.startswith("line 99")
    assert len(last_lines(log)) < 3_010


def test_a_line_of_json_is_shown_as_level_and_message(tmp_path: Path) -> None:
    log = tmp_path / "worker-0.log"
    log.write_text('{"level": "ERROR", "message": "failed\\nTraceback"}\n{"loss": 1}\n\xff3\n', encoding="latin-1")
    assert last_lines(log) == 'ERROR   failed\nTraceback\n{"loss": 1}\n\ufffd3'


def test_secrets_are_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "words-of-a-key")
    log = tmp_path / "easyr1.log"
    log.write_text("logged in with words-of-a-key\n")
    assert last_lines(log) == "logged in with [secret]"


def test_a_worker_that_wrote_nothing_has_no_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "empty.log").touch()
    log_last_lines([tmp_path / "empty.log", tmp_path / "missing.log"])
    assert not caplog.records
