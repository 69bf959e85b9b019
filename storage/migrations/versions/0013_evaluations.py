"""An evaluation has its manifest and its answers; the questions of benchmarks are stored. Old results stay."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

_COUNTS = ("item_id", "level", "samples", "correct", "greedy_correct", "majority_correct")


def upgrade() -> None:
    op.rename_table("evaluations", "results")
    if op.get_bind().dialect.name == "postgresql":  # where names of primary keys are unique in the schema
        op.execute("ALTER INDEX pk_evaluations RENAME TO pk_results")
    _create_tables()
    results = sa.table("results", *map(sa.column, ("checkpoint_id", "benchmark", *_COUNTS)))
    times = (sa.column(name, sa.DateTime(timezone=True)) for name in ("created_at", "finished_at"))
    others: Any = map(sa.column, ("id", "run", "checkpoint_id", "model", "benchmark", "seconds"))
    evaluations = sa.table("evaluations", sa.column("manifest", sa.JSON()), *others, *times)
    items = sa.table("evaluated_items", *map(sa.column, ("evaluation_id", *_COUNTS)))
    checkpoints = sa.table("checkpoints", sa.column("id"), sa.column("run"))
    now, connection = datetime.now(UTC), op.get_bind()
    pairs = sa.select(results.c.checkpoint_id, results.c.benchmark, checkpoints.c.run).distinct()
    for checkpoint, benchmark, run in connection.execute(
        pairs.join_from(results, checkpoints, checkpoints.c.id == results.c.checkpoint_id)
    ).all():
        key = sha256(json.dumps([checkpoint, benchmark]).encode()).hexdigest()[:16]  # as `core.types.evaluation_id`
        row = {"id": key, "run": run, "checkpoint_id": checkpoint, "model": checkpoint, "benchmark": benchmark}
        row |= {"manifest": {}, "seconds": 0.0, "created_at": now, "finished_at": now}
        connection.execute(evaluations.insert().values(row))
        counts = sa.select(sa.literal(key), *(results.c[name] for name in _COUNTS))
        of_pair = counts.where(results.c.checkpoint_id == checkpoint, results.c.benchmark == benchmark)
        connection.execute(items.insert().from_select(["evaluation_id", *_COUNTS], of_pair))
    op.drop_table("results")


def _create_tables() -> None:
    op.create_table(
        "benchmark_items",
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("item_id", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("level", sa.Text()),
        sa.Column("subject", sa.Text()),
        sa.PrimaryKeyConstraint("sha256", "item_id"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "evaluations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("run", sa.Text()),
        sa.Column("checkpoint_id", sa.Text()),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("benchmark", sa.Text(), nullable=False),
        sa.Column("manifest", sa.JSON(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True)),
        sa.ForeignKeyConstraint(["run"], ["runs.name"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["checkpoint_id"], ["checkpoints.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(None, "evaluations", ["run"])
    op.create_index(None, "evaluations", ["checkpoint_id"])
    op.create_table(
        "evaluated_items",
        sa.Column("evaluation_id", sa.Text(), nullable=False),
        sa.Column("item_id", sa.Text(), nullable=False),
        sa.Column("level", sa.Text()),
        sa.Column("samples", sa.Integer(), nullable=False),
        sa.Column("correct", sa.Integer(), nullable=False),
        sa.Column("greedy_correct", sa.Boolean(), nullable=False),
        sa.Column("majority_correct", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["evaluation_id"], ["evaluations.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("evaluation_id", "item_id"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "evaluated_answers",
        sa.Column("evaluation_id", sa.Text(), nullable=False),
        sa.Column("item_id", sa.Text(), nullable=False),
        sa.Column("sample_index", sa.Integer(), nullable=False),
        sa.Column("answer", sa.Text()),
        sa.Column("answer_class", sa.Integer()),
        sa.Column("verdict", sa.Text()),
        sa.Column("tokens", sa.Integer(), nullable=False),
        sa.Column("finish_reason", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["evaluation_id"], ["evaluations.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("evaluation_id", "item_id", "sample_index"),
        sqlite_with_rowid=False,
    )
