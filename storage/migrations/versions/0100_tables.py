"""The tables of coevo 0.1.0. Lower numbers are those of versions that were never released."""

from __future__ import annotations

from functools import partial
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0100"
down_revision = None


def _columns(kind: Any, *names: str, nullable: bool = False) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=nullable) for name in names]


_text = partial(_columns, sa.Text())
_json = partial(_columns, sa.JSON())
_flag = partial(_columns, sa.Boolean())
_integer = partial(_columns, sa.Integer())
_big = partial(_columns, sa.BigInteger())
_number = partial(_columns, sa.Double())
_time = partial(_columns, sa.DateTime(timezone=True))


def _iteration_of_run() -> list[sa.Column[Any]]:
    return [*_text("run"), *_integer("iteration")]


# Rows are deleted with those that these columns refer to.
_OWNERS = {"run": "runs.name", "alert": "alerts.id", "evaluation_id": "evaluations.id", "question_id": "questions.id"}
_OWNERS |= dict.fromkeys(("checkpoint", "checkpoint_id"), "checkpoints.id")


def _table(name: str, *items: Any, key: str, of: str | None = None, **options: Any) -> None:
    """Create a table. `of` names the columns by which its rows belong to others; by default the first of the key."""
    columns = key.split()[:1] if of is None else of.split()
    owned = [(column, _OWNERS[column]) for column in columns if column in _OWNERS]
    owners = [sa.ForeignKeyConstraint([column], [owner], ondelete="CASCADE") for column, owner in owned]
    op.create_table(name, *items, *owners, sa.PrimaryKeyConstraint(*key.split()), **options)


_narrow = partial(_table, sqlite_with_rowid=False)


def upgrade() -> None:
    _table(
        "api_keys",
        *_text("name", "sha256"),
        *_json("scopes"),
        *_time("created_at"),
        *_time("revoked_at", nullable=True),
        key="name",
    )
    op.create_index(None, "api_keys", ["sha256"])
    _table("run_leases", *_text("run", "owner"), *_time("expires"), key="run", of="")
    _table(
        "runs",
        *_text("name"),
        *_text("preset", nullable=True),
        *_big("seed"),
        *_text("status"),
        *_json("config"),
        *_time("created_at", "updated_at"),
        *_json("preset_settings", "overrides", nullable=True),
        *_json("tags"),
        *_text("note"),
        *_text("noted_by", nullable=True),
        *_time("noted_at", nullable=True),
        key="name",
    )
    op.create_index(None, "runs", ["created_at", "name"])
    _table("experiment_runs", *_text("run", "experiment", "arm"), *_integer("position"), *_big("seed"), key="run")
    op.create_index(None, "experiment_runs", ["experiment"])
    _table(
        "alerts",
        *_text("id", "run"),
        *_integer("iteration"),
        *_text("rule", "series", "over", "oracle", "severity"),
        *_number("value"),
        *_number("lo", "hi", nullable=True),
        *_integer("n", nullable=True),
        *_number("reference", "threshold", nullable=True),
        *_text("text"),
        *_time("raised_at"),
        *_time("acknowledged_at", nullable=True),
        *_text("acknowledged_by", nullable=True),
        *_text("note"),
        key="id",
        of="run",
    )
    op.create_index(None, "alerts", ["raised_at", "id"])
    op.create_index(None, "alerts", ["run", "iteration"])
    _table(
        "checkpoints",
        *_text("id", "run", "role"),
        *_integer("iteration", "step"),
        *_text("path", "sha256"),
        *_json("manifest"),
        *_text("parent", nullable=True),
        *_flag("files_removed"),
        sa.ForeignKeyConstraint(["parent"], ["checkpoints.id"]),
        key="id",
        of="run",
    )
    op.create_index(None, "checkpoints", ["parent"])
    op.create_index(None, "checkpoints", ["run"])
    _table(
        "filter_stats",
        *_iteration_of_run(),
        *_integer("candidates", "kept", "too_easy", "too_hard", "no_majority", "malformed", "duplicate"),
        *_number("mean_p_hat", "unparsed_share", nullable=True),
        *_integer("unknown"),
        key="run iteration",
    )
    _table(
        "pool_jobs",
        *_iteration_of_run(),
        *_text("stage", "owner", "kind"),
        *_number("units"),
        *_text("status"),
        *_time("since"),
        *_number("used"),
        *_time("charged", nullable=True),
        key="run iteration stage",
    )
    _narrow(
        "series",
        *_iteration_of_run(),
        *_text("name", "over", "oracle"),
        *_number("value"),
        *_number("lo", "hi", nullable=True),
        *_integer("n"),
        *_flag("estimated"),
        *_text("interval", nullable=True),
        key="run iteration name over oracle",
    )
    _table(
        "stages",
        *_iteration_of_run(),
        *_text("stage", "status", "owner"),
        *_time("lease_expires"),
        *_integer("attempt"),
        *_time("started_at"),
        *_time("finished_at", nullable=True),
        *_json("result", nullable=True),
        *_text("error", nullable=True),
        *_integer("progress_done", "progress_total", nullable=True),
        *_text("progress_note", nullable=True),
        key="run iteration stage",
    )
    _narrow(
        "train_metrics",
        *_iteration_of_run(),
        *_text("role"),
        *_integer("step"),
        *_text("name"),
        *_number("value", nullable=True),
        key="run iteration role step name",
    )
    _table(
        "training_rollouts",
        *_iteration_of_run(),
        *_text("role"),
        *_integer("step", "prompt", "rollout"),
        *_text("question_id", "question", "answer", "label", nullable=True),
        *_flag("agrees", nullable=True),
        *_number("reward"),
        *_json("parts"),
        *_number("advantage", nullable=True),
        *_integer("tokens"),
        *_text("finish_reason"),
        *_number("mean_entropy", nullable=True),
        key="run iteration role step prompt rollout",
    )
    _narrow(
        "usage",
        *_iteration_of_run(),
        *_text("stage", "purpose"),
        *_number("seconds", "cpu_seconds", "gpu_seconds"),
        *_big("requests", "prompt_tokens", "reply_tokens"),
        key="run iteration stage purpose",
    )
    _table(
        "deliveries",
        *_text("alert", "target"),
        *_integer("attempts"),
        *_time("next_at"),
        *_time("delivered_at", nullable=True),
        *_text("error", nullable=True),
        key="alert target",
    )
    _narrow(
        "benchmark_items",
        *_text("sha256", "item_id"),
        *_integer("position"),
        *_text("problem", "answer"),
        *_text("level", "subject", nullable=True),
        key="sha256 item_id",
    )
    _table(
        "evaluations",
        *_text("id"),
        *_text("run", "checkpoint_id", nullable=True),
        *_text("model", "benchmark"),
        *_json("manifest"),
        *_number("seconds"),
        *_time("created_at"),
        *_time("finished_at", nullable=True),
        key="id",
        of="run checkpoint_id",
    )
    op.create_index(None, "evaluations", ["run"])
    op.create_index(None, "evaluations", ["checkpoint_id"])
    _narrow(
        "evaluated_items",
        *_text("evaluation_id", "item_id"),
        *_text("level", nullable=True),
        *_integer("samples", "correct"),
        *_flag("greedy_correct", nullable=True),
        *_flag("majority_correct"),
        key="evaluation_id item_id",
    )
    _narrow(
        "evaluated_answers",
        *_text("evaluation_id", "item_id"),
        *_integer("sample_index"),
        *_text("answer", nullable=True),
        *_integer("answer_class", nullable=True),
        *_text("verdict", nullable=True),
        *_integer("tokens"),
        *_text("finish_reason"),
        key="evaluation_id item_id sample_index",
    )
    _narrow(
        "judged_answers",
        *_text("evaluation_id", "item_id"),
        *_integer("sample_index"),
        *_text("judge", "verdict"),
        key="evaluation_id item_id sample_index judge",
    )
    _table(
        "questions",
        *_text("id", "run"),
        *_integer("iteration", "index"),
        *_text("text", nullable=True),
        *_text("raw"),
        *_text("checkpoint", nullable=True),
        *_big("seed"),
        *_text("answer", nullable=True),
        sa.ForeignKeyConstraint(["checkpoint"], ["checkpoints.id"]),
        key="id",
        of="run",
    )
    op.create_index(None, "questions", ["run", "iteration", "index"], unique=True)
    op.create_index(None, "questions", ["checkpoint"])
    _table(
        "annotations",
        *_text("question_id", "annotator", "verdict", "note"),
        *_time("made_at"),
        key="question_id annotator",
    )
    _table(
        "audit_samples",
        *_text("question_id", "oracle", "run"),
        *_integer("iteration"),
        *_text("stratum"),
        *_integer("position"),
        key="question_id oracle",
    )
    op.create_index(None, "audit_samples", ["run", "iteration", "oracle", "position"])
    _narrow(
        "oracle_labels",
        *_text("question_id", "oracle", "run"),
        *_integer("iteration", "index"),
        *_text("verdict"),
        *_text("truth", nullable=True),
        key="question_id oracle",
    )
    op.create_index(None, "oracle_labels", ["run", "iteration", "index", "oracle", "verdict"])
    _table(
        "pseudo_labels",
        *_text("question_id", "run"),
        *_integer("iteration", "index"),
        *_text("verdict"),
        *_text("answer", nullable=True),
        *_integer("votes", "m", "parsed", "unknown", nullable=True),
        *_number("p_hat", nullable=True),
        *_text("denominator", nullable=True),
        *_json("classes", nullable=True),
        key="question_id",
    )
    op.create_index(None, "pseudo_labels", ["run", "iteration", "p_hat", "index", "verdict"])
    op.create_index(None, "pseudo_labels", ["run", "iteration", "verdict", "index"])
    _narrow(
        "question_clusters", *_text("question_id", "run"), *_integer("iteration", "cluster", "size"), key="question_id"
    )
    op.create_index(None, "question_clusters", ["run", "iteration", "cluster"])
    _narrow(
        "rollouts",
        *_text("question_id"),
        *_integer("sample_index"),
        *_text("answer", nullable=True),
        *_integer("tokens"),
        *_text("finish_reason"),
        *_number("mean_entropy", "entropy_error", nullable=True),
        *_text("checkpoint"),
        *_big("seed"),
        sa.ForeignKeyConstraint(["checkpoint"], ["checkpoints.id"]),
        key="question_id sample_index",
    )
    op.create_index(None, "rollouts", ["checkpoint"])
    _narrow(
        "trained_on",
        *_text("question_id", "checkpoint"),
        *_json("steps"),
        key="question_id checkpoint",
        of="checkpoint question_id",
    )
    op.create_index(None, "trained_on", ["checkpoint"])
