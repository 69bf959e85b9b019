"""Killed at any point and gone on with, a run ends as if nothing had happened."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from storage import queries
from storage.models import Base
from storage.texts import read_texts
from tests.live import BENCHMARK_ITEMS, Live, wait_until

# What differs between two runs of the same seed: their name, when and by whom things were done, and how fast.
_IGNORED = {
    "owner",
    "lease_expires",
    "attempt",
    "started_at",
    "finished_at",
    "created_at",
    "updated_at",
    "path",
    "since",
    "used",
    "error",
}
_TIMED = {"tokens_per_second", "sample_seconds", "reward_seconds", "update_seconds"}


@pytest.fixture(scope="module")
def uninterrupted(live: Live) -> str:
    done = live.coevo(*live.small_run("straight"))
    assert done.returncode == 0, done.stderr
    return "straight"


def test_killed_in_every_stage_a_run_ends_with_the_same_rows_and_hashes(live: Live, uninterrupted: str) -> None:
    store = live.store()

    def count(table: str) -> int:
        with store.read() as session:
            return int(session.scalar(_count(table, "killed")) or 0)

    work = live.home.work / "killed" / "1"
    points: list[tuple[str, Callable[[], bool]]] = [
        ("base evaluation under way", lambda: 0 < count("evaluations") < BENCHMARK_ITEMS),
        ("Challenger training under way", (work / "train_challenger" / "step_1").exists),
        ("questions half generated", lambda: 0 < count("questions") < 300),
        ("questions half labelled", lambda: count("rollouts") > 0),
        ("Solver training under way", (work / "train_solver" / "step_1").exists),
        ("evaluation under way", lambda: count("evaluations") > BENCHMARK_ITEMS),
    ]
    arguments = live.small_run("killed")
    for what, reached in points:
        process = live.start(*arguments)
        wait_until(lambda reached=reached, process=process: reached() or process.poll() is not None, what)
        assert process.poll() is None, f"ended by itself before: {what}"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        arguments = ["resume", "killed"]
    done = live.coevo("resume", "killed")
    assert done.returncode == 0, done.stderr
    assert _rows(live, "killed") == _rows(live, uninterrupted)
    assert _texts(live, "killed") == _texts(live, uninterrupted)


def _count(table: str, run: str) -> Any:
    from sqlalchemy import func

    rows = Base.metadata.tables[table]
    key = {"evaluations": "checkpoint_id", "rollouts": "question_id", "questions": "run"}[table]
    column = rows.c[key]
    return select(func.count()).select_from(rows).where(column.like(f"{run}/%") | (column == run))


def _rows(live: Live, run: str) -> dict[str, list[Any]]:
    """Every row of a run, its name taken out."""
    found = {}
    with live.store().read() as session:
        for name, table in Base.metadata.tables.items():
            rows = [
                tuple((column, _anonymous(value, run)) for column, value in row.items() if column not in _IGNORED)
                for row in session.execute(select(table)).mappings()
                if any(isinstance(value, str) and value.split("/")[0] == run for value in row.values())
            ]
            found[name] = sorted(row for row in rows if not _timed(dict(row)))
    assert all(found[name] for name in ("questions", "rollouts", "pseudo_labels", "checkpoints", "evaluations"))
    return found


def _timed(row: dict[str, Any]) -> bool:
    return row.get("name") in {repr(name) for name in _TIMED}


def _anonymous(value: Any, run: str) -> str:
    return repr(value).replace(run, "RUN")


def _texts(live: Live, run: str) -> list[Any]:
    return [
        (row.question_id.removeprefix(run), row.sample_index, row.text)
        for row in read_texts(live.home.texts, run, 1, "label_questions")
    ]


def test_the_checkpoints_are_those_of_the_manifest(live: Live, uninterrupted: str) -> None:
    from storage.checkpoints import verify

    with live.store().read() as session:
        checkpoints = queries.checkpoints_of(session, uninterrupted)
    assert [c.role for c in checkpoints] == ["base", "challenger", "solver"]
    for checkpoint in checkpoints:
        verify(Path(checkpoint.path), checkpoint.sha256)
