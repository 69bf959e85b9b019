"""A run can belong to an experiment."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.create_table(
        "experiment_runs",
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("experiment", sa.Text(), nullable=False),
        sa.Column("arm", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["run"], ["runs.name"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run"),
    )
    op.create_index(None, "experiment_runs", ["experiment"])
