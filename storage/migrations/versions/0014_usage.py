"""What the stages of a run use: time, devices, requests, tokens. Nothing is known of earlier stages."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.create_table(
        "usage",
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        *(sa.Column(name, sa.Double(), nullable=False) for name in ("seconds", "cpu_seconds", "gpu_seconds")),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in ("requests", "prompt_tokens", "reply_tokens")),
        sa.PrimaryKeyConstraint("run", "iteration", "stage", "purpose"),
        sa.ForeignKeyConstraint(["run"], ["runs.name"], ondelete="CASCADE"),
        sqlite_with_rowid=False,
    )
