"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_NARROW = {"sqlite_with_rowid": False}


def upgrade() -> None:
    _runs_and_what_they_own()
    _questions_and_what_is_said_of_them()
    _figures()


def _key(*columns: str) -> sa.PrimaryKeyConstraint:
    return sa.PrimaryKeyConstraint(*columns)


def _to(column: str, target: str, ondelete: str | None = None) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [target], ondelete=ondelete)


def _runs_and_what_they_own() -> None:
    op.create_table(
        "runs",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("preset", sa.Text),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("config", sa.JSON, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        _key("name"),
    )
    op.create_table(
        "stages",
        sa.Column("run", sa.Text, nullable=False),
        sa.Column("iteration", sa.Integer, nullable=False),
        sa.Column("stage", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("lease_expires", sa.DateTime(timezone=True), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True)),
        sa.Column("result", sa.JSON),
        sa.Column("error", sa.Text),
        _key("run", "iteration", "stage"),
        _to("run", "runs.name", ondelete="CASCADE"),
    )
    op.create_table(
        "checkpoints",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("run", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("iteration", sa.Integer, nullable=False),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("manifest", sa.JSON, nullable=False),
        sa.Column("parent", sa.Text),
        _key("id"),
        _to("run", "runs.name", ondelete="CASCADE"),
        _to("parent", "checkpoints.id"),
    )
    op.create_index("ix_checkpoints_run", "checkpoints", ["run"])
    op.create_index("ix_checkpoints_parent", "checkpoints", ["parent"])


def _questions_and_what_is_said_of_them() -> None:
    op.create_table(
        "questions",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("run", sa.Text, nullable=False),
        sa.Column("iteration", sa.Integer, nullable=False),
        sa.Column("index", sa.Integer, nullable=False),
        sa.Column("text", sa.Text),
        sa.Column("raw", sa.Text, nullable=False),
        sa.Column("checkpoint", sa.Text, nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        _key("id"),
        _to("run", "runs.name", ondelete="CASCADE"),
        _to("checkpoint", "checkpoints.id"),
    )
    op.create_index("ix_questions_run_iteration_index", "questions", ["run", "iteration", "index"], unique=True)
    op.create_table(
        "rollouts",
        sa.Column("question_id", sa.Text, nullable=False),
        sa.Column("sample_index", sa.Integer, nullable=False),
        sa.Column("answer", sa.Text),
        sa.Column("tokens", sa.Integer, nullable=False),
        sa.Column("finish_reason", sa.Text, nullable=False),
        sa.Column("mean_entropy", sa.Double),
        sa.Column("checkpoint", sa.Text, nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        _key("question_id", "sample_index"),
        _to("question_id", "questions.id", ondelete="CASCADE"),
        _to("checkpoint", "checkpoints.id"),
        **_NARROW,
    )
    op.create_table(
        "pseudo_labels",
        sa.Column("question_id", sa.Text, nullable=False),
        sa.Column("verdict", sa.Text, nullable=False),
        sa.Column("answer", sa.Text),
        sa.Column("votes", sa.Integer),
        sa.Column("m", sa.Integer),
        sa.Column("parsed", sa.Integer),
        sa.Column("unknown", sa.Integer),
        sa.Column("p_hat", sa.Double),
        sa.Column("denominator", sa.Text),
        sa.Column("classes", sa.JSON),
        _key("question_id"),
        _to("question_id", "questions.id", ondelete="CASCADE"),
    )
    op.create_table(
        "oracle_labels",
        sa.Column("question_id", sa.Text, nullable=False),
        sa.Column("oracle", sa.Text, nullable=False),
        sa.Column("verdict", sa.Text, nullable=False),
        sa.Column("truth", sa.Text),
        _key("question_id", "oracle"),
        _to("question_id", "questions.id", ondelete="CASCADE"),
        **_NARROW,
    )


def _figures() -> None:
    counts = ("candidates", "kept", "too_easy", "too_hard", "no_majority", "malformed", "duplicate", "unknown")
    op.create_table(
        "filter_stats",
        sa.Column("run", sa.Text, nullable=False),
        sa.Column("iteration", sa.Integer, nullable=False),
        *[sa.Column(name, sa.Integer, nullable=False) for name in counts],
        sa.Column("mean_p_hat", sa.Double),
        sa.Column("unparsed_share", sa.Double),
        _key("run", "iteration"),
        _to("run", "runs.name", ondelete="CASCADE"),
    )
    op.create_table(
        "train_metrics",
        sa.Column("run", sa.Text, nullable=False),
        sa.Column("iteration", sa.Integer, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("value", sa.Double),
        _key("run", "iteration", "role", "step", "name"),
        _to("run", "runs.name", ondelete="CASCADE"),
        **_NARROW,
    )
    op.create_table(
        "evaluations",
        sa.Column("checkpoint_id", sa.Text, nullable=False),
        sa.Column("benchmark", sa.Text, nullable=False),
        sa.Column("item_id", sa.Text, nullable=False),
        sa.Column("level", sa.Text),
        sa.Column("samples", sa.Integer, nullable=False),
        sa.Column("correct", sa.Integer, nullable=False),
        sa.Column("greedy_correct", sa.Boolean, nullable=False),
        sa.Column("majority_correct", sa.Boolean, nullable=False),
        _key("checkpoint_id", "benchmark", "item_id"),
        _to("checkpoint_id", "checkpoints.id", ondelete="CASCADE"),
        **_NARROW,
    )
