"""Faults that a run meets: nothing is lost, and the error says what to do."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.postgres import temporary_postgresql
from tests.chaos.forks import in_a_fork
from tests.chaos.scripted_faults import KILLED_IN, outcome_under

pytestmark = pytest.mark.heavy


def _under(fault: str, folder: Path, database: str | None = None) -> dict[str, Any]:
    """The outcome of `scripted_faults`; nothing may be lost."""
    outcome: dict[str, Any] = in_a_fork(outcome_under, fault, folder, database or f"sqlite:///{folder}/home/coevo.db")
    assert outcome["violations"] == []
    return outcome


@pytest.mark.slow
def test_every_other_write_to_the_ledger_is_a_process_s_last_act(tmp_path: Path) -> None:
    outcome = _under("crashes", tmp_path)
    assert outcome["processes"] > 100
    assert outcome["errors"] == []


def test_a_kill_in_each_stage_loses_nothing(tmp_path: Path) -> None:
    outcome = _under("stages", tmp_path)
    killed_in = [file.name for file in (tmp_path / KILLED_IN).iterdir()]
    for stage in ("evaluate", "generate_questions", "label_questions", "train_solver"):
        assert any(stage in name for name in killed_in)
    assert outcome["processes"] == len(killed_in) + 1
    assert outcome["errors"] == []


@pytest.mark.slow
def test_the_clock_moves_by_hours_in_both_directions(tmp_path: Path, database_url: str) -> None:
    outcome = _under("clock", tmp_path, database_url)
    assert outcome["processes"] > 3
    assert outcome["errors"] == []


@pytest.mark.slow
def test_four_processes_recover_a_run_at_once(tmp_path: Path) -> None:
    outcome = _under("rivals", tmp_path)
    assert len(outcome["errors"]) > 10
    for error in outcome["errors"]:
        assert re.search("(RunHeld|StageHeld): .*process .* on", error), error


def test_of_twenty_starts_at_once_one_works(tmp_path: Path, database_url: str) -> None:
    outcome = _under("triggers", tmp_path, database_url)
    assert outcome["processes"] == 20
    assert outcome["errors"] != []
    for error in outcome["errors"]:
        assert re.search("(RunHeld|StageHeld): .*process .* on", error), error


@pytest.mark.slow
def test_postgresql_cuts_connections_in_a_transaction_and_starts_again(tmp_path: Path, own_postgresql: str) -> None:
    outcome = _under("cut", tmp_path, own_postgresql)
    assert len(outcome["errors"]) > 10
    for error in outcome["errors"]:
        assert re.search("^(StorageUnusable|StoreError): database", error, re.MULTILINE), error
    assert any("terminating connection" in error for error in outcome["errors"])


@pytest.mark.slow
def test_the_disk_is_full_at_one_write_after_another(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(home)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root may mount a small file system, and some containers forbid it")
    try:
        outcome = _under("full_disk", tmp_path)
    finally:
        subprocess.run(["umount", "--lazy", home], check=True)
    assert len(outcome["errors"]) > 20
    for error in outcome["errors"]:
        assert "the disk is full; `coevo store du` shows what takes space" in error


@pytest.fixture
def own_postgresql() -> Iterator[str]:
    """A server of this test alone: others do not see their connections cut."""
    with temporary_postgresql() as url:
        if url is None:
            pytest.skip("PostgreSQL: no server programs (initdb, pg_ctl) on this machine")
        yield url
