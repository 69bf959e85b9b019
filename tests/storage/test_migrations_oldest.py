"""A database of the oldest version that was shipped, with rows in every table, is upgraded and reads as before."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from old_databases import as_stored_by_0010, database_of_version, insert
from sqlalchemy import inspect, select

from core.settings.config import CoEvolution
from core.settings.parsing import parse_config
from core.types import evaluation_id
from storage import queries
from storage.models import Base
from storage.session import Store, open_store

NOW = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)
CONFIG = CoEvolution(seed=7)
QUESTION = {"run": "old", "iteration": 1, "question_id": "old/1/000000"}
STAGE = {"run": "old", "iteration": 1, "stage": "train_solver", "owner": "host:42:7"}
CHECKPOINT: dict[str, Any] = {"run": "old", "step": 3, "sha256": "ab", "manifest": {"model.safetensors": "cd"}}
TIMES = {"lease_expires": NOW, "started_at": NOW, "finished_at": NOW + timedelta(hours=1)}
ALERT: dict[str, Any] = {"run": "old", "iteration": 1, "rule": "fall", "series": "kept_share", "over": "all", "n": 3}
ODD = "a line\u2028, \0 and \U0001f600"
ODD_STORED = "a line\u2028, \ue0000000 and \U0001f600"  # PostgreSQL has no NUL
# Table -> its rows, in an order in which they can be inserted.
ROWS: dict[str, list[dict[str, Any]]] = {
    "runs": [
        {
            "name": "old",
            "preset": "demo",
            "seed": 2**63 - 1,
            "status": "done",
            "config": as_stored_by_0010(CONFIG),
            "created_at": NOW,
            "updated_at": NOW + timedelta(days=1),
        }
    ],
    "api_keys": [{"name": "ann", "sha256": "ef", "scopes": ["read"], "created_at": NOW, "revoked_at": None}],
    "run_leases": [{"run": "old", "owner": "host:42:7", "expires": NOW}],
    "checkpoints": [
        {**CHECKPOINT, "id": "old/base/0", "role": "base", "iteration": 0, "path": "/m/0", "parent": None},
        {**CHECKPOINT, "id": "old/solver/1", "role": "solver", "iteration": 1, "path": "/m/1", "parent": "old/base/0"},
    ],
    "stages": [
        {
            **STAGE,
            **TIMES,
            "status": "done",
            "attempt": 2,
            "result": {"steps": 3, "optimiser": None},
            "error": None,
            "progress_done": 3,
            "progress_total": 3,
            "progress_note": "steps",
        }
    ],
    "pool_jobs": [
        {
            **STAGE,
            "kind": "GPU",
            "units": 2.0,
            "priority": 5,
            "status": "running",
            "since": NOW,
            "preempted": False,
            "used": 0.1 + 0.2,
        }
    ],
    "filter_stats": [
        {
            "run": "old",
            "iteration": 1,
            **{"candidates": 8, "kept": 2, "too_easy": 1, "too_hard": 1, "no_majority": 1, "malformed": 2},
            **{"duplicate": 1, "mean_p_hat": 1 / 3, "unparsed_share": None, "unknown": 0},
        }
    ],
    "train_metrics": [
        {"run": "old", "iteration": 1, "role": "solver", "step": 1, "name": name, "value": value}
        for name, value in {"reward_mean": 0.1, "kl": None}.items()
    ],
    "series": [
        {
            **{"run": "old", "iteration": 1, "name": "kept_share", "over": "all", "oracle": "", "value": 0.25},
            **{"lo": None, "hi": 0.5, "n": 8, "estimated": False},
        }
    ],
    "alerts": [
        {
            **ALERT,
            "id": "old/1/fall",
            **{"oracle": "", "severity": "warning", "value": 0.5, "lo": None, "hi": None, "reference": 0.75},
            **{
                "threshold": None,
                "text": ODD_STORED,
                "raised_at": NOW,
                "acknowledged_at": NOW,
                "acknowledged_by": "ann",
            },
            "note": "seen",
        }
    ],
    "deliveries": [
        {"alert": "old/1/fall", "target": "webhook", "attempts": 2, "next_at": NOW, "delivered_at": None, "error": "x"}
    ],
    "questions": [
        {
            **{"id": "old/1/000000", "run": "old", "iteration": 1, "index": 0, "text": ODD_STORED, "raw": ODD_STORED},
            **{"checkpoint": "old/base/0", "seed": -(2**63), "answer": None},
        }
    ],
    "rollouts": [
        {
            **{"question_id": "old/1/000000", "sample_index": 0, "answer": "3", "tokens": 7, "finish_reason": "stop"},
            **{"mean_entropy": 1 / 7, "entropy_error": None, "checkpoint": "old/base/0", "seed": 11},
        }
    ],
    "pseudo_labels": [
        {
            **QUESTION,
            **{"index": 0, "verdict": "kept", "answer": "3", "votes": 6, "m": 10, "parsed": 9, "unknown": 0},
            **{"p_hat": 0.6, "denominator": "all", "classes": [["3", 6], ["4", 3]]},
        }
    ],
    "question_clusters": [{**QUESTION, "cluster": 0, "size": 1}],
    "oracle_labels": [{**QUESTION, "index": 0, "oracle": "exact", "verdict": "wrong", "truth": "4"}],
    "audit_samples": [{**QUESTION, "oracle": "human", "stratum": "kept", "place": 4}],
    "annotations": [
        {"question_id": "old/1/000000", "annotator": "ann", "verdict": "right", "note": ODD_STORED, "made_at": NOW}
    ],
    "trained_on": [{"question_id": "old/1/000000", "checkpoint": "old/solver/1", "steps": [1, 2]}],
    "evaluations": [
        {
            **{"checkpoint_id": "old/solver/1", "benchmark": "micro", "item_id": "a", "level": None, "samples": 8},
            **{"correct": 3, "greedy_correct": True, "majority_correct": False},
        }
    ],
}


def upgraded(url: str) -> Store:
    with database_of_version(url, "0010") as connection:
        assert {*inspect(connection).get_table_names()} == {*ROWS, "alembic_version"}
        for table, rows in ROWS.items():
            for row in rows:
                insert(connection, table, **row)
    return open_store(url, create=True)


def expected(table: str, row: dict[str, Any]) -> dict[str, Any]:
    """A row as the newest version has it: with the columns that were renamed or removed since, and with new ones."""
    row = {name: ODD if value == ODD_STORED else value for name, value in row.items()}
    if table == "runs":
        values = {"tags": [], "note": "", "preset_settings": None, "overrides": None, "noted_by": None}
        return {name: value for name, value in row.items() if name != "config"} | values
    if table == "audit_samples":
        return {("position" if name == "place" else name): value for name, value in row.items()}
    if table == "pool_jobs":
        return {name: value for name, value in row.items() if name not in ("priority", "preempted")} | {"charged": NOW}
    if table == "checkpoints":
        return {**row, "files_removed": False}
    if table == "evaluations":
        model = {"checkpoint_id": row["checkpoint_id"], "model": row["checkpoint_id"], "run": "old"}
        return {"id": evaluation_id("old/solver/1", "micro"), "benchmark": "micro", "manifest": {}, **model}
    return row


def test_every_row_of_the_oldest_version_reads_as_before(database_url: str) -> None:
    store = upgraded(database_url)
    with store.read() as session:
        for table, rows in ROWS.items():
            stored = [dict(row) for row in session.execute(select(Base.metadata.tables[table])).mappings()]
            assert len(stored) == len(rows), table
            for row in (expected(table, row) for row in rows):
                assert row in [{name: other[name] for name in row} for other in stored]
        new = {*Base.metadata.tables} - {*ROWS}
        counts = {name: len(session.execute(select(Base.metadata.tables[name])).all()) for name in new}
    store.close()
    assert {name: count for name, count in counts.items() if count} == {"evaluated_items": 1}


def test_the_queries_read_the_run_of_the_oldest_version(database_url: str) -> None:
    store = upgraded(database_url)
    with store.write() as session:
        stored = queries.runs.get_run(session, "old")
        [question] = queries.questions.questions_of(session, "old", 1)
        [label] = queries.questions.labels_of(session, "old", 1, "kept")
        [result] = queries.evaluations.evaluations_of(session, "old/solver/1", "micro")
        lineage = [row.id for row in queries.checkpoints.lineage(session, "old/solver/1")]
        queries.pool.drop_abandoned(session)
        [job] = queries.pool.pool_jobs(session)
    with store.write() as session:
        queries.runs.delete_run(session, "old")
        assert queries.run_rows.rows_of_run(session, "old") == {}
    store.close()
    config = parse_config(stored.config, "stored")
    assert (config.seed, config.kind) == (7, "co_evolve")
    assert question.text == ODD
    assert label.label is not None
    assert label.label.classes == (("3", 6), ("4", 3))
    assert (result.correct, result.samples) == (3, 8)
    assert lineage == ["old/solver/1", "old/base/0"]
    assert (job.status, job.units) == ("done", 2.0)
