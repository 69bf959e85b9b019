"""Samples and annotations of audits, clusters of questions, what was trained on, series, alerts and their delivery."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def _question() -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["question_id"], ["questions.id"], ondelete="CASCADE")


def _run() -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["run"], ["runs.name"], ondelete="CASCADE")


def upgrade() -> None:
    op.create_table(
        "audit_samples",
        _text("question_id"),
        _text("oracle"),
        _text("run"),
        _integer("iteration"),
        _text("stratum"),
        _integer("place"),
        sa.PrimaryKeyConstraint("question_id", "oracle"),
        _question(),
    )
    op.create_table(
        "annotations",
        _text("question_id"),
        _text("annotator"),
        _text("verdict"),
        _text("note"),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("question_id", "annotator"),
        _question(),
    )
    op.create_table(
        "question_clusters",
        _text("question_id"),
        _text("run"),
        _integer("iteration"),
        _integer("cluster"),
        _integer("size"),
        sa.PrimaryKeyConstraint("question_id"),
        _question(),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "trained_on",
        _text("question_id"),
        _text("checkpoint"),
        sa.Column("steps", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("question_id", "checkpoint"),
        _question(),
        sa.ForeignKeyConstraint(["checkpoint"], ["checkpoints.id"], ondelete="CASCADE"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "series",
        _text("run"),
        _integer("iteration"),
        _text("name"),
        _text("over"),
        _text("oracle"),
        sa.Column("value", sa.Double, nullable=False),
        sa.Column("lo", sa.Double),
        sa.Column("hi", sa.Double),
        _integer("n"),
        sa.Column("estimated", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("run", "iteration", "name", "over", "oracle"),
        _run(),
        sqlite_with_rowid=False,
    )
    _alerts()
    indexes = {
        "audit_samples": ["run", "iteration", "oracle", "place"],
        "question_clusters": ["run", "iteration", "cluster"],
    }
    for table, columns in indexes.items():
        op.create_index(f"ix_{table}_{'_'.join(columns)}", table, columns)


def _alerts() -> None:
    op.create_table(
        "alerts",
        _text("id"),
        _text("run"),
        _integer("iteration"),
        *(_text(name) for name in ("rule", "series", "over", "oracle", "severity")),
        sa.Column("value", sa.Double, nullable=False),
        sa.Column("lo", sa.Double),
        sa.Column("hi", sa.Double),
        sa.Column("n", sa.Integer),
        sa.Column("reference", sa.Double),
        sa.Column("threshold", sa.Double),
        _text("text"),
        sa.Column("raised_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("acknowledged_at", sa.DateTime(timezone=True)),
        sa.Column("acknowledged_by", sa.Text),
        _text("note"),
        sa.PrimaryKeyConstraint("id"),
        _run(),
    )
    op.create_index("ix_alerts_raised_at_id", "alerts", ["raised_at", "id"])
    op.create_index("ix_alerts_run_iteration", "alerts", ["run", "iteration"])
    op.create_table(
        "deliveries",
        _text("alert"),
        _text("target"),
        _integer("attempts"),
        sa.Column("next_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("delivered_at", sa.DateTime(timezone=True)),
        sa.Column("error", sa.Text),
        sa.PrimaryKeyConstraint("alert", "target"),
        sa.ForeignKeyConstraint(["alert"], ["alerts.id"], ondelete="CASCADE"),
    )


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False)


def _integer(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, nullable=False)
