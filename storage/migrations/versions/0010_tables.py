"""The tables of 0.1; versions 0001 to 0009, which it takes the place of, were never released."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = None


def _of(column: str, owner: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [owner], ondelete="CASCADE")


def upgrade() -> None:
    op.create_table(
        "api_keys",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_index(None, "api_keys", ["sha256"])
    op.create_table(
        "run_leases",
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("expires", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("run"),
    )
    op.create_table(
        "runs",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("preset", sa.Text()),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "alerts",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("series", sa.Text(), nullable=False),
        sa.Column("over", sa.Text(), nullable=False),
        sa.Column("oracle", sa.Text(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("lo", sa.Double()),
        sa.Column("hi", sa.Double()),
        sa.Column("n", sa.Integer()),
        sa.Column("reference", sa.Double()),
        sa.Column("threshold", sa.Double()),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("raised_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("acknowledged_at", sa.DateTime(timezone=True)),
        sa.Column("acknowledged_by", sa.Text()),
        sa.Column("note", sa.Text(), nullable=False),
        _of("run", "runs.name"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(None, "alerts", ["raised_at", "id"])
    op.create_index(None, "alerts", ["run", "iteration"])
    op.create_table(
        "checkpoints",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("manifest", sa.JSON(), nullable=False),
        sa.Column("parent", sa.Text()),
        sa.ForeignKeyConstraint(["parent"], ["checkpoints.id"]),
        _of("run", "runs.name"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(None, "checkpoints", ["parent"])
    op.create_index(None, "checkpoints", ["run"])
    op.create_table(
        "filter_stats",
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("candidates", sa.Integer(), nullable=False),
        sa.Column("kept", sa.Integer(), nullable=False),
        sa.Column("too_easy", sa.Integer(), nullable=False),
        sa.Column("too_hard", sa.Integer(), nullable=False),
        sa.Column("no_majority", sa.Integer(), nullable=False),
        sa.Column("malformed", sa.Integer(), nullable=False),
        sa.Column("duplicate", sa.Integer(), nullable=False),
        sa.Column("mean_p_hat", sa.Double()),
        sa.Column("unparsed_share", sa.Double()),
        sa.Column("unknown", sa.Integer(), nullable=False),
        _of("run", "runs.name"),
        sa.PrimaryKeyConstraint("run", "iteration"),
    )
    op.create_table(
        "pool_jobs",
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("units", sa.Double(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("preempted", sa.Boolean(), nullable=False),
        sa.Column("used", sa.Double(), nullable=False),
        _of("run", "runs.name"),
        sa.PrimaryKeyConstraint("run", "iteration", "stage"),
    )
    op.create_table(
        "series",
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("over", sa.Text(), nullable=False),
        sa.Column("oracle", sa.Text(), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("lo", sa.Double()),
        sa.Column("hi", sa.Double()),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("estimated", sa.Boolean(), nullable=False),
        _of("run", "runs.name"),
        sa.PrimaryKeyConstraint("run", "iteration", "name", "over", "oracle"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "stages",
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("lease_expires", sa.DateTime(timezone=True), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True)),
        sa.Column("result", sa.JSON(none_as_null=True)),
        sa.Column("error", sa.Text()),
        sa.Column("progress_done", sa.Integer()),
        sa.Column("progress_total", sa.Integer()),
        sa.Column("progress_note", sa.Text()),
        _of("run", "runs.name"),
        sa.PrimaryKeyConstraint("run", "iteration", "stage"),
    )
    op.create_table(
        "train_metrics",
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Double()),
        _of("run", "runs.name"),
        sa.PrimaryKeyConstraint("run", "iteration", "role", "step", "name"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "deliveries",
        sa.Column("alert", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("delivered_at", sa.DateTime(timezone=True)),
        sa.Column("error", sa.Text()),
        _of("alert", "alerts.id"),
        sa.PrimaryKeyConstraint("alert", "target"),
    )
    op.create_table(
        "evaluations",
        sa.Column("checkpoint_id", sa.Text(), nullable=False),
        sa.Column("benchmark", sa.Text(), nullable=False),
        sa.Column("item_id", sa.Text(), nullable=False),
        sa.Column("level", sa.Text()),
        sa.Column("samples", sa.Integer(), nullable=False),
        sa.Column("correct", sa.Integer(), nullable=False),
        sa.Column("greedy_correct", sa.Boolean(), nullable=False),
        sa.Column("majority_correct", sa.Boolean(), nullable=False),
        _of("checkpoint_id", "checkpoints.id"),
        sa.PrimaryKeyConstraint("checkpoint_id", "benchmark", "item_id"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "questions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text()),
        sa.Column("raw", sa.Text(), nullable=False),
        sa.Column("checkpoint", sa.Text()),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("answer", sa.Text()),
        sa.ForeignKeyConstraint(["checkpoint"], ["checkpoints.id"]),
        _of("run", "runs.name"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(None, "questions", ["run", "iteration", "index"], unique=True)
    op.create_table(
        "annotations",
        sa.Column("question_id", sa.Text(), nullable=False),
        sa.Column("annotator", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        _of("question_id", "questions.id"),
        sa.PrimaryKeyConstraint("question_id", "annotator"),
    )
    op.create_table(
        "audit_samples",
        sa.Column("question_id", sa.Text(), nullable=False),
        sa.Column("oracle", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("stratum", sa.Text(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        _of("question_id", "questions.id"),
        sa.PrimaryKeyConstraint("question_id", "oracle"),
    )
    op.create_index(None, "audit_samples", ["run", "iteration", "oracle", "place"])
    op.create_table(
        "oracle_labels",
        sa.Column("question_id", sa.Text(), nullable=False),
        sa.Column("oracle", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("truth", sa.Text()),
        _of("question_id", "questions.id"),
        sa.PrimaryKeyConstraint("question_id", "oracle"),
        sqlite_with_rowid=False,
    )
    op.create_index(None, "oracle_labels", ["run", "iteration", "index", "oracle", "verdict"])
    op.create_table(
        "pseudo_labels",
        sa.Column("question_id", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text()),
        sa.Column("votes", sa.Integer()),
        sa.Column("m", sa.Integer()),
        sa.Column("parsed", sa.Integer()),
        sa.Column("unknown", sa.Integer()),
        sa.Column("p_hat", sa.Double()),
        sa.Column("denominator", sa.Text()),
        sa.Column("classes", sa.JSON(none_as_null=True)),
        _of("question_id", "questions.id"),
        sa.PrimaryKeyConstraint("question_id"),
    )
    op.create_index(None, "pseudo_labels", ["run", "iteration", "p_hat", "index", "verdict"])
    op.create_index(None, "pseudo_labels", ["run", "iteration", "verdict", "index"])
    op.create_table(
        "question_clusters",
        sa.Column("question_id", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("cluster", sa.Integer(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        _of("question_id", "questions.id"),
        sa.PrimaryKeyConstraint("question_id"),
        sqlite_with_rowid=False,
    )
    op.create_index(None, "question_clusters", ["run", "iteration", "cluster"])
    op.create_table(
        "rollouts",
        sa.Column("question_id", sa.Text(), nullable=False),
        sa.Column("sample_index", sa.Integer(), nullable=False),
        sa.Column("answer", sa.Text()),
        sa.Column("tokens", sa.Integer(), nullable=False),
        sa.Column("finish_reason", sa.Text(), nullable=False),
        sa.Column("mean_entropy", sa.Double()),
        sa.Column("entropy_error", sa.Double()),
        sa.Column("checkpoint", sa.Text(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["checkpoint"], ["checkpoints.id"]),
        _of("question_id", "questions.id"),
        sa.PrimaryKeyConstraint("question_id", "sample_index"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "trained_on",
        sa.Column("question_id", sa.Text(), nullable=False),
        sa.Column("checkpoint", sa.Text(), nullable=False),
        sa.Column("steps", sa.JSON(), nullable=False),
        _of("checkpoint", "checkpoints.id"),
        _of("question_id", "questions.id"),
        sa.PrimaryKeyConstraint("question_id", "checkpoint"),
        sqlite_with_rowid=False,
    )
